"""One process and its parents, read from the system. Looks only: it starts, signals and ends nothing.

A pid is used again; a pid with its start is not, until the next boot. Starts are counted from boot, so a step
of the clock moves none of them.
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
"""Parents looked at. A longer chain counts as cut: who stands above is unknown."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it was at the moment of reading."""

    pid: int
    ppid: int
    pgrp: int
    session: int
    tty: int
    """The device number of the controlling terminal, as `os.stat` gives it in st_rdev; 0 is none."""
    foreground: int
    """The process group in the foreground of that terminal; -1 is none."""
    start: int
    """Ticks from boot to its start."""
    name: str
    """The command's short name, which the process can choose itself."""
    state: str = "S"
    image: int = 0
    """Where its environment lies in memory: another one after every exec.

    0 when the environment may not be seen, -1 when the system tells no such place.
    """

    @property
    def is_zombie(self) -> bool:
        """True when it has ended and only waits to be collected."""
        return self.state in ("Z", "X", "x")


def read_process(pid: int) -> Process | None:
    """Read one process, or None when there is none (or none we may see)."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        fields = process_darwin.read_fields(pid)
        return None if fields is None else Process(*fields)
    try:
        file = os.open(b"/proc/%d/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(file, _LIMIT_STAT_BYTES)
        finally:
            os.close(file)
    except OSError:  # there is none, or it ended between the two calls
        return None
    return parse_stat(stat)


def parse_stat(stat: bytes) -> Process | None:
    """Read a line of /proc/PID/stat; None when it is not one.

    The name stands in parentheses and may itself hold spaces, parentheses and line ends: it reaches from the
    first opening to the last closing one, since nothing behind it can hold either.
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
    """Give the process and its parents, itself first; empty when there is no such process.

    The walk ends at the process without a parent, and before a parent that is younger than its child: that is
    another process with a number used again. A chain cut short shows by its last `ppid`, which is not 0. It
    also ends with the first process that `is_enough`: each further one costs a look at the system.
    """
    chain: list[Process] = []
    start: int | None = None
    while pid > 0 and len(chain) < _LIMIT_CHAIN:
        process = read(pid)
        if process is None or (start is not None and process.start > start):
            break
        chain.append(process)
        if is_enough is not None and is_enough(process):
            break
        pid, start = process.ppid, process.start
    return chain


def is_alive(seat: Seat) -> bool:
    """True while the very process of the seat runs. A zombie has ended."""
    process = read_process(seat.pid)
    return (
        process is not None
        and process.start == seat.start
        and not process.is_zombie
        and seat.boot == boot_id()
    )


@functools.cache
def boot_id() -> str:
    """Name this boot of the machine. It cannot change while we run."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return process_darwin.boot_id()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - no path is built
        return file.read().strip()
