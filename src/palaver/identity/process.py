"""Read processes from the system: their parents, their environment and their end.

Read-only: starts, signals and ends nothing.

A pid is reused; a pid together with its start time is unique until the next boot. Start times count from
boot, so a change of the clock does not affect them.
"""

import asyncio
import errno
import functools
import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from types import MappingProxyType, TracebackType
from typing import Final, Self

from palaver.errors import NotPerson
from palaver.harness.marks import MARKS, SEAT_MARK, SESSION_MARKS
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
    """Ticks from boot to its start; on macOS microseconds since 1970. Only compared with other starts."""
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
    # The page proc(5) numbers the fields from 1, and the first one here is its third.
    fields = stat[closing + 2 :].split()
    try:
        return Process(
            int(stat[:opening]),
            int(fields[1]),
            int(fields[2]),
            int(fields[3]),
            # The kernel prints the unsigned device number as a signed one.
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
            # The same parent again: it did not exit, so it is unreadable or its pid was reused.
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
        # A pid is reused; the pair of pid and start time is not, within one boot.
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
        # Only on macOS: on Linux a peer without a pidfd has pid 0, and so an empty chain.
        if self.pidfd is None:
            return True
        try:
            signal.pidfd_send_signal(self.pidfd, 0)  # signal 0 only checks that the process exists
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
        # Without a pidfd the pid could be another process's by the time its parents are read.
        return Peer(0, uid, gid)


# --------------------
# Read the harness marks of a process, and whether it is a harness itself.
#
# Only the marks and the home are kept or passed on: an environment contains keys and tokens. A process that
# may not be read counts as unmarked: its children inherited its marks and can be read, and a harness is also
# known by its name.


HARNESS_WORDS: Final = frozenset(SESSION_MARKS)
_NAMES: Final = frozenset(name.encode() for name in (*MARKS, SEAT_MARK))
_HOME: Final = frozenset({b"HOME"})
_INTERPRETER: Final = re.compile(r"(node|nodejs|bun|deno|python|sh|bash)[\d.]*")
_PACKAGES: Final = {"claude-code": "claude", "gemini-cli": "gemini", "opencode-ai": "opencode"}
"""Folders from which an interpreter runs a harness whose file has another name."""
_LIMIT_ARGUMENTS: Final = 8
_LIMIT_READ_BYTES: Final = 8 * 1024 * 1024
"""More than the system allows for arguments and environment together."""
_CHUNK_BYTES: Final = 64 * 1024
HOLDER_MODULE: Final = "palaver.holder.main"
"""The module that a holder runs, as its command line shows it."""


@dataclass(frozen=True, slots=True)
class HarnessEnvironment:
    """The signs of a harness on one process."""

    marks: Mapping[str, str]
    """The marks in the environment it was started with."""
    harness: str | None
    """The harness that it is itself, by its name."""
    is_known: bool = True
    """False if it ended before it could be read."""
    is_holder: bool = False
    """It is a holder: every process below it is an agent's."""

    @property
    def can_be_harness(self) -> bool:
        """Whether it has a mark, is a harness or holder, or has exited, so that it is unknown what it was."""
        return bool(self.marks) or self.harness is not None or self.is_holder or not self.is_known


_GONE: Final = HarnessEnvironment(MappingProxyType({}), None, is_known=False)


@dataclass(slots=True)
class Environments:
    """Reads the surroundings of processes and caches them, because only an exec changes them.

    Caches at most `limit` processes and then drops the oldest entry. Belongs to one thread.
    """

    limit: int = 4096
    _known: dict[tuple[int, int, int, str], HarnessEnvironment] = field(default_factory=dict, init=False)

    def look(self, process: Process) -> HarnessEnvironment:
        """Return the surroundings of a process; unknown if it has exited.

        The result is not cached if the process ended or ran another program meanwhile, or could do so
        unnoticed.
        """
        # The name too: a process can change it without an exec, and a harness is known by it.
        key = process.pid, process.start, process.image, process.name
        known = self._known.get(key)
        if known is not None:
            return known
        arguments = read_arguments(process.pid)
        found = HarnessEnvironment(
            MappingProxyType(read_marks(process.pid)),
            _harness_named(process.name, arguments),
            is_holder=_is_holder(arguments),
        )
        # Read again: arguments and marks come from two files, and an exec in between would mix two programs.
        again = read_process(process.pid)
        if again is None or again.start != process.start or again.is_zombie:
            return _GONE
        if process.image >= 0 and again.image == process.image:
            if len(self._known) >= self.limit:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found


def read_marks(pid: int) -> dict[str, str]:
    """Read the marks a process was started with.

    An empty value is ignored; the first of two entries counts.
    """
    return _read_variables(pid, _NAMES)


def read_home(pid: int) -> str:
    """Read the HOME of a process; empty if it may not be read."""
    return _read_variables(pid, _HOME).get("HOME", "") if pid > 0 else ""


def _read_variables(pid: int, names: Set[bytes]) -> dict[str, str]:
    if sys.platform == "darwin":  # pragma: no cover - macOS
        known = {name.decode() for name in names}
        return {
            name: value for name, value in process_darwin.read_environment(pid) if name in known and value
        }
    found: dict[str, str] = {}
    for entry in _read_all(b"/proc/%d/environ" % pid).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and name in names:
            found.setdefault(name.decode(), os.fsdecode(value))
    return found


def read_arguments(pid: int) -> list[str]:
    """Read the first arguments a process was started with; empty if they may not be read."""
    if sys.platform == "darwin":  # pragma: no cover - macOS
        return process_darwin.read_arguments(pid)[:_LIMIT_ARGUMENTS]
    # A limit of the split, because a command line can have megabytes and only its first words matter.
    parts = _read_all(b"/proc/%d/cmdline" % pid).split(b"\0", _LIMIT_ARGUMENTS)
    return [os.fsdecode(part) for part in parts[:_LIMIT_ARGUMENTS]]


def runs_holder(pid: int) -> bool:
    """Whether a process is a holder, by its command line."""
    return _is_holder(read_arguments(pid))


def _is_holder(arguments: Sequence[str]) -> bool:
    return ("-m", HOLDER_MODULE) in pairwise(arguments)


def _harness_named(name: str, arguments: Sequence[str]) -> str | None:
    """Return the harness that a command line runs: directly, or as the script of an interpreter."""
    program = PurePath(next(iter(arguments), "")).name
    # Both names: a process can change either of them, and the kernel cuts the short one to 15 bytes.
    words = [name, program]
    if _INTERPRETER.fullmatch(program):
        script = PurePath(next((part for part in arguments[1:] if part[:1] != "-"), ""))
        words += [script.stem, *(_PACKAGES.get(part, "") for part in script.parts)]
    return next((word for word in words if word in HARNESS_WORDS), None)


def _read_all(path: bytes) -> bytes:
    """Read a file of /proc up to the limit; empty if it is missing or may not be read."""
    parts: list[bytes] = []
    size = 0
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while size < _LIMIT_READ_BYTES and (part := os.read(file, _CHUNK_BYTES)):
                parts.append(part)
                size += len(part)
        finally:
            os.close(file)
    except OSError:
        return b""
    return b"".join(parts)


# --------------------
# Report the end of a seat's process. Ends no process itself.

_POLL_S: Final = 1.0
# `os` has this function on Linux only.
_PIDFD_OPEN: Final[Callable[[int], int] | None] = getattr(os, "pidfd_open", None)


class ProcessWatch:
    """Watches seats from one event loop: by pidfd, or by polling if there are no pidfds.

    A callback is called once, on the loop, after the process has ended; for a seat that has already ended, at
    the next turn of the loop. It is not called after the seat was removed or the watch closed.
    """

    def __init__(
        self, *, poll_s: float = _POLL_S, pidfd_open: Callable[[int], int] | None = _PIDFD_OPEN
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll_s = poll_s
        self._pidfd_open = pidfd_open
        self._stops: dict[Seat, Callable[[], None]] = {}

    def add(self, seat: Seat, callback: Callable[[], None]) -> None:
        """Watch a seat; a second callback for the same seat replaces the first."""
        self.remove(seat)
        pidfd = self._open(seat.pid)
        # Checked after opening: if the process is alive now, the pidfd refers to it.
        if not is_alive(seat):
            if pidfd is not None:
                os.close(pidfd)
            handle = self._loop.call_soon(self._ended, seat, callback)
            # So that `remove` also cancels a report that has not run yet.
            self._stops[seat] = handle.cancel
        elif pidfd is None:
            self._poll(seat, callback)
        else:
            self._loop.add_reader(pidfd, self._ended, seat, callback)
            self._stops[seat] = lambda: self._close(pidfd)

    def remove(self, seat: Seat) -> None:
        """Stop watching a seat; does nothing if it is not watched."""
        if stop := self._stops.pop(seat, None):
            stop()

    def close(self) -> None:
        """Stop watching all seats."""
        for seat in list(self._stops):
            self.remove(seat)

    def _open(self, pid: int) -> int | None:
        try:
            return None if self._pidfd_open is None else self._pidfd_open(pid)
        except OSError:  # it has ended, there are no file descriptors left, or a sandbox forbids it
            return None

    def _close(self, pidfd: int) -> None:
        # Before the close: afterwards the number may belong to another file, whose reader this would
        # remove.
        self._loop.remove_reader(pidfd)
        os.close(pidfd)

    def _poll(self, seat: Seat, callback: Callable[[], None]) -> None:
        if not is_alive(seat):
            self._ended(seat, callback)
            return
        self._stops[seat] = self._loop.call_later(self._poll_s, self._poll, seat, callback).cancel

    def _ended(self, seat: Seat, callback: Callable[[], None]) -> None:
        # Removed first: the pidfd of an ended process stays readable, so the loop would call this again, and
        # the callback may watch the seat again.
        self.remove(seat)
        callback()
