"""Processes and peers on macOS: psutil, and libproc for terminals. Read-only.

Values that cannot be read are reported as absent; with an unreadable terminal a caller is never the human.
"""

import ctypes
import socket
import struct
import sys
from typing import Final

assert sys.platform == "darwin"

import psutil  # noqa: E402 - the type checker stops at the assertion: psutil is a dependency of macOS only

_BSD_INFO: Final = 3  # PROC_PIDTBSDINFO
_BSD_INFO_FORM: Final = struct.Struct("=12I16s32s5Ii2Q")
"""proc_bsdinfo of <sys/proc_info.h>. The used fields, for group and terminal, are after the two names."""
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1
_LOCAL_PEERPID: Final = 2
_XUCRED: Final = struct.Struct("=IIh2x16I")
_NO_DEVICE: Final = 0xFFFFFFFF

_system = ctypes.CDLL(None, use_errno=True)


def read_fields(pid: int) -> tuple[int, int, int, int, int, int, int, str, str, int] | None:
    """Read one process in the field order of `Process`; None if it does not exist."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            start = round(process.create_time() * 1_000_000)
            state = "Z" if process.status() == psutil.STATUS_ZOMBIE else "S"
            parent, name = process.ppid(), process.name()
    except (psutil.Error, OSError):
        return None
    group, tty, foreground = _terminal(pid)
    # The last one is the image: macOS shows no address that an exec changes.
    return pid, parent, group, _session(pid), tty, foreground, start, name, state, -1


def _session(pid: int) -> int:
    return max(0, int(_system.getsid(pid)))


def _terminal(pid: int) -> tuple[int, int, int]:
    """Return process group, terminal and foreground group; (0, 0, -1) for a process of another user."""
    room = ctypes.create_string_buffer(_BSD_INFO_FORM.size)
    size = _system.proc_pidinfo(pid, _BSD_INFO, ctypes.c_uint64(0), room, len(room))
    if size != _BSD_INFO_FORM.size:
        return 0, 0, -1
    fields = _BSD_INFO_FORM.unpack(room.raw)
    group, device, foreground = fields[15], fields[17], fields[18]
    return (group, 0, -1) if device == _NO_DEVICE else (group, device, foreground)


def read_environment(pid: int) -> list[tuple[str, str]]:
    """Return the environment a process was started with; empty if it may not be read."""
    try:
        return list(psutil.Process(pid).environ().items())
    except (psutil.Error, OSError):
        return []


def read_arguments(pid: int) -> list[str]:
    """Return the arguments a process was started with; empty if they may not be read."""
    try:
        return list(psutil.Process(pid).cmdline())
    except (psutil.Error, OSError):
        return []


def boot_id() -> str:
    """Return the id of this boot; its time if an old system has no id."""
    room = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(room))
    failed = _system.sysctlbyname(b"kern.bootsessionuuid", room, ctypes.byref(size), None, ctypes.c_size_t(0))
    return f"{psutil.boot_time():.0f}" if failed else room.value.decode("ascii")


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid and gid of the process at the other end of a Unix socket."""
    pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    answer = _XUCRED.unpack(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    # The version comes first, then the user, the number of groups, and the groups; the first is the
    # effective one.
    return pid, answer[1], answer[3]
