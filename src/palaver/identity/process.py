"""Read one process and its parents from the system. Read-only: starts, signals and ends nothing.

A pid is reused; a pid together with its start time is unique until the next boot. Start times count from
boot, so a change of the clock does not affect them.
"""

import errno
import functools
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from palaver.errors import NotPerson
from palaver.protocol.agents import Seat

if sys.platform == "darwin":  # pragma: no cover - macOS
    from palaver.identity import process_darwin

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


# --------------------
# The process at the other end of a Unix socket, pinned so that its pid cannot be reused unnoticed.
#
# Reports the process and its user. `caller.py` decides which agent it is.

if sys.platform == "darwin":  # pragma: no cover - macOS
    from palaver.identity import process_darwin

SO_PEERPIDFD: Final = 77
"""Linux 6.5 and later: the peer as it connected, even if its pid was reused since."""
_CREDENTIALS: Final = struct.Struct("iII")


@dataclass(slots=True)
class Peer:
    """The process that connected. Holds a pidfd if possible: close it, or use it in a `with`."""

    pid: int
    """0 if it cannot be seen or has exited."""
    uid: int
    gid: int
    pidfd: int | None = None
    is_closed: bool = False
    """Its pidfd was closed, and the descriptor may be another file's by now."""

    def check_user(self) -> None:
        """Refuse a process of another user, whatever the permissions of the socket file allow."""
        if self.uid != os.geteuid():
            raise NotPerson(f"this bus belongs to user {os.geteuid()}; you are user {self.uid}")

    def chain(self, is_enough: Callable[[Process], bool] | None = None) -> list[Process]:
        """Return the peer and its parents, itself first; empty if it has exited, was closed, or is unseen.

        The chain ends with the first process for which `is_enough` is true.
        """
        if self.is_closed:
            return []
        chain = ancestors(self.pid, is_enough=is_enough)
        # Checked after reading: if the pid is still the peer's now, it was the peer's then.
        return chain if self._is_there() else []

    def _is_there(self) -> bool:
        if self.pidfd is None:
            return True
        try:
            signal.pidfd_send_signal(self.pidfd, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Close the pidfd. From then on `chain` is empty. Closing twice is harmless."""
        if self.pidfd is not None and not self.is_closed:
            os.close(self.pidfd)
        self.is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def peer_of(connection: socket.socket, *, peer_pidfd_option: int = SO_PEERPIDFD) -> Peer:
    """Read the peer of a connected Unix socket. A peer that cannot be pinned any more has pid 0."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return Peer(*process_darwin.peer_credentials(connection))
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(answer)
    try:
        return Peer(pid, uid, gid, connection.getsockopt(socket.SOL_SOCKET, peer_pidfd_option))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # it has exited, and its pid may be reused
            return Peer(0, uid, gid)
    try:
        return Peer(pid, uid, gid, os.pidfd_open(pid))
    except OSError:
        return Peer(0, uid, gid)
