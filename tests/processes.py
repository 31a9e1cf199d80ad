"""The processes of a test, found by the folder that belongs to it."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.limits import LIMIT_S


def processes_of(folder: Path) -> dict[int, str]:
    """Return the arguments of each process whose arguments, environment or directory name a folder."""
    name = os.fsencode(folder)
    found = {}
    for pid in _all_processes():
        with suppress(OSError):  # it has ended, or belongs to another user
            # Every home looks at all processes several times. `pathlib` would need twice the time.
            command = _read(f"/proc/{pid}/cmdline")
            inside = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))
            environment = (
                _read(f"/proc/{pid}/environ") if command else b""
            )  # a thread of the kernel has neither
            if any(name in text for text in (command, inside, environment)):
                found[pid] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def end_processes_of(folder: Path) -> None:
    """Kill the processes of a folder, until none of them has started another one."""
    # Two looks, because a process has no arguments for an instant while it becomes another program.
    looks = 2
    while looks:
        pids = processes_of(folder)
        looks = 2 if pids else looks - 1
        for pid in pids:
            end_process(pid, signal.SIGKILL)


def end_process(pid: int, number: int) -> None:
    """Send a process a signal and wait until it has exited."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
        wait_for_end(pidfd)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)


def wait_for_end(pidfd: int) -> None:
    """Wait until the process of a pidfd has ended."""
    ready, _, _ = select.select([pidfd], [], [], LIMIT_S)
    assert ready, "the process has not ended"


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _all_processes() -> Iterator[int]:
    """Yield the processes of the system, without this one and those above it."""
    above = {os.getpid()}
    pid = os.getpid()
    while pid > 1:
        pid = parent_of(pid)
        above.add(pid)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in above:
            yield int(entry)
