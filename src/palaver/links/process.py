"""Read one process and its parents from the system. Read-only: starts, signals and ends nothing.

A pid is reused; a pid together with its start time is unique until the next boot. Start times count from
boot, so a change of the clock does not affect them.
"""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from palaver.model.agent import Seat

if sys.platform == "darwin":  # pragma: no cover - macOS
    from palaver.links import process_darwin

_LIMIT_STAT_BYTES: Final = 1024
_LIMIT_CHAIN: Final = 256
"""Parents that are read. A longer chain counts as cut: the processes above are unknown."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at the time of reading."""

    pid: int
    ppid: int
    pgrp: int
    session: int
    tty: int
    """The device number of the controlling terminal, as in `st_rdev` of `os.stat`; 0 without one."""
    foreground: int
    """The process group in the foreground of that terminal; -1 without one."""
    start: int
    """Ticks from boot to its start."""
    name: str
    """The command's short name, which the process can choose itself."""
    state: str = "S"
    image: int = 0
    """The address of its environment in memory: different after every exec.

    0 if the environment may not be read, -1 if the system does not tell the address.
    """

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and was not yet collected by its parent."""
        return self.state in ("Z", "X", "x")


def read_process(pid: int) -> Process | None:
    """Read one process; None if it does not exist or may not be read."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        fields = process_darwin.read_fields(pid)
        return None if fields is None else Process(*fields)
    try:
        file = os.open(b"/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(file, _LIMIT_STAT_BYTES)
        finally:
            os.close(file)
    except OSError:  # it does not exist, or ended between the two calls
        return None
    return parse_stat(stat)


def parse_stat(stat: bytes) -> Process | None:
    """Parse a line of /proc/PID/stat; None if it is not one.

    The name is in parentheses and may itself contain spaces, parentheses and line ends. It ends at the last
    closing parenthesis, because no field after it can contain one.
    """
    opening, closing = stat.find(b" ("), stat.rfind(b") ")
    fields = stat[closing + 2 :].split()
    try:
        return Process(
            int(stat[:opening]),
            int(fields[1]),
            int(fields[2]),
            int(fields[3]),
            int(fields[4]) & 0xFFFFFFFF,
            int(fields[5]),
            int(fields[19]),
            stat[opening + 2 : closing].decode("utf-8", "replace"),
            fields[0].decode("ascii", "replace"),
            int(fields[47]),
        )
    except (ValueError, IndexError):
        return None


def ancestors(
    pid: int,
    read: Callable[[int], Process | None] = read_process,
    is_enough: Callable[[Process], bool] | None = None,
) -> list[Process]:
    """Return the process and its parents, itself first; empty if there is no such process.

    The walk ends at the process without a parent, and before a parent that is younger than its child: that is
    another process with a reused pid. If a parent exits during the walk, its child has another parent then,
    and the walk goes on with that one. A chain that was cut shows by its last `ppid`, which is not 0. The
    walk also ends with the first process for which `is_enough` is true: each further one costs a system call.
    """
    chain: list[Process] = []
    for _ in range(_LIMIT_CHAIN):
        if pid <= 0:
            break
        process = read(pid)
        if process is None or (chain and process.start > chain[-1].start):
            adopted = read(chain[-1].pid) if chain else None
            if adopted is None or adopted.start != chain[-1].start or adopted.ppid == pid:
                break
            chain[-1], pid = adopted, adopted.ppid
            continue
        chain.append(process)
        if is_enough is not None and is_enough(process):
            break
        pid = process.ppid
    return chain


def is_alive(seat: Seat) -> bool:
    """Whether exactly the process of the seat runs. A zombie has ended."""
    process = read_process(seat.pid)
    return (
        process is not None
        and process.start == seat.start
        and not process.is_zombie
        and seat.boot == boot_id()
    )


@functools.cache
def boot_id() -> str:
    """Return the id of this boot. It cannot change while we run."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return process_darwin.boot_id()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - no path is built
        return file.read().strip()
