"""Start and supervise a Codex app-server: it ends together with the terminal UI that uses it.

When asked to end, an app-server first waits for its turns, and a turn that waits for the user never ends. So
a supervisor process runs between the terminal UI and the server: it briefly outlives the UI, ends the server
and removes its directory, whichever process was killed first.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from palaver.agents.codex.place import PREFIX
from palaver.home import connect_socket

START_LIMIT_S: Final = 20.0
LOG: Final = "server.log"

_PAUSE_S: Final = 0.01
_STALE_S: Final = 60.0
_END_LIMIT_S: Final = 3.0
_LOOK_S: Final = 2.0
_CANNOT_RUN: Final = 126
_SET_PARENT_DEATH_SIGNAL: Final = 1
_HEARD: Final = (signal.SIGTERM, signal.SIGCHLD)


def start_server(words: list[str], path: Path) -> bool:
    """Start a server and wait until it listens; return False if it does not start. Raises OSError.

    Call this in the process that becomes the terminal UI, before any thread starts.
    """
    make_place(path)
    log = os.open(path.with_name(LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    screen = os.getpid()
    watch = os.fork()
    if watch == 0:
        try:
            _watch_over(words, log, screen, path)
        finally:
            os._exit(_CANNOT_RUN)
    os.close(log)
    limit = time.monotonic() + START_LIMIT_S
    while not listens(path):
        ended, _ = os.waitpid(watch, os.WNOHANG)
        if ended:
            return False
        if time.monotonic() > limit:
            os.kill(watch, signal.SIGTERM)
            os.waitpid(watch, 0)
            return False
        time.sleep(_PAUSE_S)
    return True


def make_place(path: Path) -> None:
    """Create the server's directory, and remove those of servers that no longer run."""
    folder = path.parent
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    for other in folder.parent.iterdir():
        with suppress(OSError):
            is_old = time.time() - other.stat().st_mtime > _STALE_S
            if is_old and other.name.startswith(PREFIX) and not listens(other / path.name):
                shutil.rmtree(other, ignore_errors=True)


def listens(path: Path) -> bool:
    """Return whether a process accepts connections on a socket."""
    try:
        connect_socket(path, can_wait=False).close()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def _watch_over(words: list[str], log: int, screen: int, path: Path) -> None:
    """Run the server until it or the terminal UI ends. It has its own group, so keys do not signal it."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM), 0, 0, 0)
    ear, mouth = os.pipe()
    for descriptor in (ear, mouth):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    has_end = False

    def hear(number: int, frame: object) -> None:
        nonlocal has_end
        has_end = has_end or number == signal.SIGTERM

    for number in _HEARD:
        signal.signal(number, hear)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    server = os.fork()
    if server == 0:
        _become_server(words, log)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)  # Do not keep the terminal open.
    while not has_end and os.getppid() == screen:
        if os.waitpid(server, os.WNOHANG)[0]:
            _forget(path)
            return
        select.select([ear], [], [], _LOOK_S if sys.platform != "linux" else 60.0)
        with suppress(BlockingIOError):
            os.read(ear, 4096)
    _end(server)
    _forget(path)
    shutil.rmtree(path.parent, ignore_errors=True)


def _forget(path: Path) -> None:
    """Remove the leftovers of a killed server: it listens elsewhere, and `path` is a link to that socket."""
    with suppress(OSError):
        target = path.readlink()
        if target.parent.name == f"codex-daemon-{os.getuid()}":
            target.with_name(f"{target.name}.lock").unlink(missing_ok=True)
            target.unlink(missing_ok=True)


def _end(server: int) -> None:
    """End the whole process group, first with repeated SIGTERM, then with SIGKILL.

    A second SIGTERM makes the server stop waiting for its turns.
    """
    limit = time.monotonic() + _END_LIMIT_S
    number = signal.SIGTERM
    while True:
        with suppress(ProcessLookupError):
            os.killpg(server, number)
        pause = time.monotonic() + _END_LIMIT_S / 6
        while time.monotonic() < pause:
            with suppress(ChildProcessError):
                if os.waitpid(server, os.WNOHANG)[0] and not _is_group(server):
                    return
            if not _is_group(server):
                return
            time.sleep(_PAUSE_S)
        if number is signal.SIGKILL:
            return
        if time.monotonic() > limit:
            number = signal.SIGKILL


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _become_server(words: list[str], log: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (*_HEARD, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        os.execvp(words[0], words)  # noqa: S606 - no shell is involved
    except OSError as error:
        os.write(log, f"{words[0]} cannot be run: {error.strerror}\n".encode())
    finally:
        os._exit(_CANNOT_RUN)
