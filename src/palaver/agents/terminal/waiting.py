"""Whether a process waits for what is typed into its terminal, as the system tells it. Looks only.

It waits when one of its threads is in a call that the terminal's input would end: a read of it, or a select,
poll or epoll that names it. A process that sleeps, computes or waits for something else does not, and what is
typed then is taken by whatever it asks next.
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
"""The calls in which a process waits for input, by their number."""

_CALLS: Final = _NUMBERS.get(platform.machine(), {}) if sys.platform == "linux" else {}
_LIMIT_BYTES: Final = 65536
_LIMIT_DESCRIPTORS: Final = 1024
_POLL: Final = struct.Struct("ihh")
_POLL_IN: Final = 0x1
_OWN_TERMINAL: Final = "/dev/tty"


def is_waiting(pid: int, terminal: str, *, is_own: bool = True) -> bool | None:
    """Whether some thread of a process waits for input of this terminal; None: the system does not say.

    `is_own`: the terminal is the controlling terminal of the process, so `/dev/tty` means it too.
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
    """Whether a thread's call, with its arguments, waits for the terminal. `running` is no call."""
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
    """The descriptors that a select waits to read from."""
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
    """The descriptors that an epoll has, as the system lists them: `tfd: 0 events: 19 ...`."""
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
    """Give what a file of the system says; nothing when it is gone, None when we may not look."""
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
