"""Check the log of a test's daemon for signs of a fault."""

import re
from pathlib import Path
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last)"
_BUSY: Final = re.compile(r" watchdog: the event loop was busy for (\d+) ms")
_LIMIT_MS: Final = 200
"""Twice the daemon's own limit: on a busy machine the same work takes more processor time."""


def check_daemon_log(home: Path) -> None:
    """Fail if a daemon of a home logged a traceback or a busy event loop."""
    for path in sorted(home.glob("daemon.log*")):
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            busy = _BUSY.search(line)
            is_fine = _TRACEBACK not in line and (busy is None or int(busy[1]) <= _LIMIT_MS)
            assert is_fine, "\n".join(lines[max(0, number - 3) : number + 40])
