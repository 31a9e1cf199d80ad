"""Check the log of a test's daemon for signs of a fault."""

from pathlib import Path
from typing import Final

_TROUBLE: Final = ("Traceback (most recent call last)", " watchdog: ")
"""A mistake of the daemon, and a step that held up every other caller."""


def check_daemon_log(home: Path) -> None:
    """Fail when a daemon of a home failed by mistake, or kept its loop busy for too long."""
    for path in sorted(home.glob("daemon.log*")):
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            assert not any(sign in line for sign in _TROUBLE), "\n".join(
                lines[max(0, number - 3) : number + 40]
            )
