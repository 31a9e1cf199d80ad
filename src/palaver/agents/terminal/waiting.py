"""Find out from the system whether a process waits for input from its terminal. Changes nothing.

It waits if one of its threads is in a system call that input from the terminal would end: a read, or a
select, poll or epoll that includes it. Otherwise it sleeps, computes or waits for something else, and would
read the text only at its next prompt.
"""

import os
import platform
import struct
import sys
from typing import Final

_READ: Final = frozenset({"read", "readv", "pread64"})
_NUMBERS: Final = {
    "x86_64": {
        0: "read",
        19: "readv",
        17: "pread64",
        23: "select",
        270: "select",
        7: "poll",
        271: "poll",
        232: "epoll",
        281: "epoll",
        441: "epoll",
    },
    "aarch64": {63: "read", 65: "readv", 67: "pread64", 72: "select", 73: "poll", 22: "epoll", 441: "epoll"},
}
"""System calls in which a process waits for input, by number."""

_CALLS: Final = _NUMBERS.get(platform.machine(), {}) if sys.platform == "linux" else {}
_LIMIT_BYTES: Final = 65536
_LIMIT_DESCRIPTORS: Final = 1024
_POLL: Final = struct.Struct("ihh")
_POLL_IN: Final = 0x1
_OWN_TERMINAL: Final = "/dev/tty"


def is_waiting(pid: int, terminal: str, *, is_own: bool = True) -> bool | None:
    """Return whether a thread of a process waits for input from this terminal; None if unknown.

    `is_own`: the terminal is the controlling terminal of the process, so `/dev/tty` refers to it too.
    """
    if not _CALLS:
        return None
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - asked before every key
    except OSError:
        return False
    is_told = True
    names = (terminal, _OWN_TERMINAL) if is_own else (terminal,)
    for thread in threads:
        call = _read(f"/proc/{pid}/task/{thread}/syscall")
        if call is None:
            is_told = False
        elif _waits_in(pid, call.split(), names):
            return True
    return False if is_told else None


def _waits_in(pid: int, words: list[bytes], names: tuple[str, ...]) -> bool:
    """Return whether a system call of a thread waits for the terminal. `running` is not a system call."""
    if len(words) < 7:
        return False
    kind = _CALLS.get(int(words[0]), "")
    first, second = int(words[1], 16), int(words[2], 16)
    if kind in _READ:
        return _is_terminal(pid, first, names)
    if kind == "select":
        return any(_is_terminal(pid, fd, names) for fd in _selected(pid, second, first))
    if kind == "poll":
        return any(_is_terminal(pid, fd, names) for fd in _polled(pid, first, second))
    if kind == "epoll":
        return any(_is_terminal(pid, fd, names) for fd in _watched(pid, first))
    return False


def _selected(pid: int, address: int, count: int) -> list[int]:
    """Return the descriptors that a select waits to read from."""
    count = min(count, _LIMIT_DESCRIPTORS)
    bits = _read_memory(pid, address, -(-count // 64) * 8) if address else b""
    mask = int.from_bytes(bits, sys.byteorder)
    return [fd for fd in range(count) if mask >> fd & 1]


def _polled(pid: int, address: int, count: int) -> list[int]:
    size = min(count, _LIMIT_DESCRIPTORS) * _POLL.size
    array = _read_memory(pid, address, size) if address else b""
    whole = array[: len(array) // _POLL.size * _POLL.size]
    return [fd for fd, events, _ in _POLL.iter_unpack(whole) if events & _POLL_IN]


def _watched(pid: int, epoll: int) -> list[int]:
    """Return the descriptors of an epoll that wait for input. The system lists `tfd: 0 events: 19 ...`."""
    found: list[int] = []
    for line in (_read(f"/proc/{pid}/fdinfo/{epoll}") or b"").splitlines():
        words = line.split()
        if len(words) > 3 and words[0] == b"tfd:" and int(words[3], 16) & _POLL_IN:
            found.append(int(words[1]))
    return found


def _is_terminal(pid: int, fd: int, names: tuple[str, ...]) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}") in names  # noqa: PTH115 - asked before every key
    except OSError:
        return False


def _read_memory(pid: int, address: int, size: int) -> bytes:
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:  # noqa: PTH123 - asked before every key
            memory.seek(address)
            return memory.read(size)
    except (OSError, OverflowError, ValueError):
        return b""


def _read(path: str) -> bytes | None:
    """Return the content of a file in /proc: empty if it does not exist, None if access is denied."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None
    except OSError:
        return b""
    try:
        return os.read(file, _LIMIT_BYTES)
    except PermissionError:
        return None
    except OSError:
        return b""
    finally:
        os.close(file)
