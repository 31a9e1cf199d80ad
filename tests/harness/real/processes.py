"""Processes that belong to one folder, whichever process started them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.processes import end_process


def processes_of(folder: Path) -> dict[int, str]:
    """Return the command lines of all processes that name a folder in their arguments or environment."""
    mark = os.fsencode(folder)
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # it has exited in the meantime
            words = (entry / "cmdline").read_bytes()
            if words and (mark in words or mark in (entry / "environ").read_bytes()):
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def end_processes_of(folder: Path) -> None:
    """End all of them, and repeat for processes that were just starting."""
    while found := processes_of(folder):
        for pid in found:
            end_process(pid, signal.SIGKILL)


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
