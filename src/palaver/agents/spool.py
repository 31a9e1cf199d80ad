"""The last report of a holder that could not reach the daemon: a small file next to the agent's socket.

It is written when the agent has ended and the daemon stays offline. The daemon that reads it removes it.
"""

import os
from pathlib import Path

import msgspec

from palaver.model.last_report import REPORT_END, Report


def write_report(home: str, report: Report) -> Path:
    """Write a report atomically and durably; a later report of the same agent replaces it."""
    path = Path(home) / "agents" / f"{report.name}{REPORT_END}"
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(msgspec.json.encode(report))
        file.flush()
        os.fsync(file.fileno())
    return fresh.replace(path)
