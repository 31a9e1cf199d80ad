"""Reach the daemon of a home, and start it if it does not listen.

It starts nothing for a caller without access (a sandbox), and after `pal down` only for a person. It does not
know the protocol of the connection. The thin client imports this module on every command, so it imports
little: `_socket` and `os` instead of `socket` and `pathlib`, which take longer than all the rest.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import sys
import time

from palaver.client.spawn import spawn
from palaver.harness.marks import MARKS, SEAT_MARK

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable

Socket = _socket.socket

GONE_LIMIT_S = 10.0
"""How long a stopping daemon may keep its lock."""

DEAF_LIMIT_S = 5.0
"""How long a running daemon may take until it listens: after its start, or after its socket was removed."""

_ADDRESS_BYTES = 104 if sys.platform == "darwin" else 108


class StartError(Exception):
    """The daemon is not reachable and was not started; the text is a sentence for people."""


class NoHope(StartError):
    """A retry will not help: access is denied, or the bus was stopped on purpose."""


def ensure_daemon(home: str, *, person: bool | None = None) -> None:
    """Return once a daemon listens in the home (an absolute path); start it if none does.

    Blocks until the daemon is ready. Of many concurrent callers exactly one starts it. After `pal down` only
    a person may start it; with `person=None` this is detected. Raises StartError on any obstacle.
    """
    wire = reach(home) or start(home, person=person)
    if wire is None:
        raise StartError(f"the daemon did not start; see {home}/daemon.log")
    wire.close()


def find_python() -> str:
    """Return the interpreter that runs Palaver's own programs."""
    return os.environ.get("PALAVER_PYTHON") or sys.executable or "python3"


def reach(home: str) -> Socket | None:
    """Connect to the daemon; return None if none listens. Any other problem is a StartError."""
    try:
        return _connect(home)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise NoHope(
                f"this process may not connect to {home}/daemon.sock (a sandbox?): "
                "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)"
            ) from error
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise StartError(unusable_home(home, error)) from error
        raise StartError(f"{home}/daemon.sock: {error.strerror or error}") from error


def start(
    home: str, *, person: bool | None = None, spawned: Callable[[], None] | None = None
) -> Socket | None:
    """Start the daemon, or wait for the one that another client is starting, and connect to it.

    None means that it was lost again at once. The marker of `pal down` is respected as in `ensure_daemon`;
    the daemon removes it once it is up.
    `spawned` is called if this process starts the daemon.
    """
    marker = f"{home}/down"
    if os.path.lexists(marker) and not (is_person() if person is None else person):
        raise NoHope("the bus was stopped with 'pal down'; 'pal up' starts it again")
    try:
        _make_directories(home)
        lock = above_stdio(os.open(f"{home}/start.lock", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StartError(unusable_home(home, error)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _start_alone(home, spawned)
    finally:
        os.close(lock)


def unusable_home(home: str, error: OSError) -> str:
    """Return a sentence that says why a home cannot be used, and what to do about it."""
    is_denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    return (
        f"{home} cannot be the home of the bus ({error.strerror}): "
        "name a directory that can be written, with --home or PALAVER_HOME"
        + ("; or, if this is a sandbox, run 'pal up' outside of it" if is_denied else "")
    )


def is_person() -> bool:
    """Whether the caller is a person: no harness mark, and in the foreground of a terminal."""
    if SEAT_MARK in os.environ or any(name in os.environ for name in MARKS):
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def is_daemon_alive(home: str) -> bool:
    """Whether a daemon has its lock: also before it listens and after it has stopped listening."""
    try:
        lock = os.open(f"{home}/daemon.lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def await_listening(home: str) -> Socket | None:
    """Connect to the daemon; wait for one that runs but does not listen. Return None if the wait fails.

    Such a daemon is stopping, has just started, or is replacing a removed socket.
    """
    limit_s = time.monotonic() + DEAF_LIMIT_S
    wire = reach(home)
    while wire is None and is_daemon_alive(home) and time.monotonic() < limit_s:
        time.sleep(0.02)
        wire = reach(home)
    return wire


def daemon_pid(home: str) -> int:
    """Return the process id of the daemon that has the lock of a home; 0 if the lock file does not contain
    it.
    """
    try:
        lock = os.open(f"{home}/daemon.lock", os.O_RDONLY)
        try:
            return int(os.read(lock, 20))
        finally:
            os.close(lock)
    except (OSError, ValueError):
        return 0


def above_stdio(fd: int) -> int:
    """Move a descriptor off 0, 1 and 2, which the caller may have closed: output would go there."""
    if fd > 2:
        return fd
    higher = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return higher


def _make_directories(path: str, *, has_parent: bool = False) -> None:
    """Create a directory and its parents, each closed to other users."""
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102 - pathlib is slow to import
    except FileExistsError:
        return
    except FileNotFoundError:
        if has_parent:  # nothing can be created here, as in /proc
            raise
        _make_directories(path.rstrip("/").rpartition("/")[0] or "/")
        _make_directories(path, has_parent=True)


def _connect(home: str) -> Socket:
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    wire = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, above_stdio(made.detach()))
    path = os.fsencode(f"{home}/daemon.sock")
    try:
        if sys.platform == "darwin":
            wire.setsockopt(_socket.SOL_SOCKET, 0x1022, 1)  # SO_NOSIGPIPE, which Python does not name
        if len(path) < _ADDRESS_BYTES:
            wire.connect(path)
        else:
            _connect_far(wire, home)
    except BaseException:
        wire.close()
        raise
    return wire


def _connect_far(wire: Socket, home: str) -> None:
    """Connect through the opened directory: the path is too long for a socket address."""
    if sys.platform == "linux":
        directory = os.open(home, os.O_PATH | os.O_DIRECTORY)
        try:
            wire.connect(f"/proc/self/fd/{directory}/daemon.sock")
        finally:
            os.close(directory)
    else:
        back = os.open(".", os.O_RDONLY)
        try:
            os.chdir(home)
            wire.connect("daemon.sock")
        finally:
            os.fchdir(back)
            os.close(back)


def _start_alone(home: str, spawned: Callable[[], None] | None) -> Socket | None:
    """Start the daemon; the caller has the start lock, so no other process does."""
    wire = await_listening(home)
    if wire is None:
        if is_daemon_alive(home):
            raise StartError(
                f"the daemon (process {daemon_pid(home)}) runs, but does not listen on {home}/daemon.sock: "
                "'pal down' ends it, and 'pal up' starts another"
            )
        if spawned is not None:
            spawned()
        if why := spawn(home, find_python()):
            raise StartError(f"the daemon did not start{why}")
        wire = reach(home)
    return wire
