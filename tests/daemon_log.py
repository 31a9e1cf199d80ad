"""Check the log of a test's daemon for signs of a fault."""

import re
from pathlib import Path
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last)"
_BUSY: Final = re.compile(r" watchdog: the event loop was busy for (\d+) ms")
_LIMIT_MS: Final = 200
"""Twice the daemon's own limit: on a busy machine the same work takes more processor time."""
_OWN_LIMIT: Final = re.compile(r"^watchdog_ms = \d+$", re.MULTILINE)


def check_daemon_log(home: Path) -> None:
    """Fail if a daemon of a home logged a traceback or a busy event loop.

    In a home with its own limit in `config.toml` every line of the watchdog is a failure.
    """
    settings = home / "config.toml"
    is_strict = settings.is_file() and _OWN_LIMIT.search(settings.read_text(errors="replace")) is not None
    limit_ms = 0 if is_strict else _LIMIT_MS
    for path in sorted(home.glob("daemon.log*")):
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            busy = _BUSY.search(line)
            is_fine = _TRACEBACK not in line and (busy is None or int(busy[1]) <= limit_ms)
            assert is_fine, "\n".join(lines[max(0, number - 3) : number + 40])
