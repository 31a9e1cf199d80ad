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
import signal
import sys
import time

from palaver.harness.marks import MARKS, SEAT_MARK

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable

# --------------------
# Start the daemon of a home: in its own session, with nothing inherited from the caller.
#
# It checks no lock and no marker: the caller has done that. The thin client imports this module on every
# command, so it imports little.

CAUGHT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a client handles, and that a daemon must not inherit as ignored."""

_READY_FD = 3
_LOOK_S = 0.1
"""Seconds between two looks at a daemon that is starting."""
_POLL_S = 0.02
"""Seconds between two tries to reach a daemon, or to take the start lock."""
_LINE_BYTES = 4095
_DAEMON_NAMES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


def spawn(home: str, python: str, look: Callable[[], object] = lambda: None) -> str:
    """Start a daemon and wait until it listens. Return the rest of an error sentence, empty on success.

    `look` is called several times a second during the wait, and may end it by an error.
    """
    notes = f"{home}/daemon.log"
    # Only lines after this size can be about this start.
    size = _size_of(notes)
    ready, report = os.pipe()
    try:
        child = _fork()
    except OSError as error:
        os.close(ready)
        os.close(report)
        return f": {error.strerror}"
    if child == 0:
        _detach(home, python, report)
    # Otherwise the read below would never see the end of a daemon that exits without a report.
    os.close(report)
    # The child ends as soon as it has forked the daemon, and must not stay as a zombie.
    try:  # noqa: SIM105 - contextlib is slow to import
        os.waitpid(child, 0)
    except ChildProcessError:
        pass  # the system itself removes the children of a process that ignores SIGCHLD
    try:
        text = _read_report(ready, look)
    finally:
        os.close(ready)
    if text == b"ok\n":
        return ""
    if text:
        return f": {text.decode(errors='replace').rstrip()}"
    if why := _last_line(notes, size):
        return f": {why} (see {notes})"
    return f" and printed no reason (was it killed?); see {notes}"


def _read_report(ready: int, look: Callable[[], object]) -> bytes:
    import select

    text = b""
    while text != b"ok\n":
        if not select.select([ready], [], [], _LOOK_S)[0]:
            look()
        elif piece := os.read(ready, 4096):
            text += piece
        else:
            break
    return text


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - pathlib is slow to import
    except OSError:
        return 0


def _last_line(path: str, beyond: int) -> str:
    """Return the last line that a file has gained beyond a size."""
    try:
        notes = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    tail = os.pread(notes, _LINE_BYTES, max(beyond, _size_of(path) - _LINE_BYTES))
    os.close(notes)
    lines = tail.decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line), "")


def _fork() -> int:
    import warnings

    # Newer Pythons warn about a fork in a process with threads. The child makes only system calls, then
    # execs.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _detach(home: str, python: str, report: int) -> None:
    """In the child: become the daemon in a grandchild, so that the caller need not wait for it.

    Never returns.
    """
    try:
        # A new session has no terminal: closing the window of the first caller does not end the daemon.
        os.setsid()
        if os.fork():
            os._exit(0)
        _shed(report, home)
        report = _READY_FD
        # With -I no module in the working directory or the user's site folder replaces one of the daemon's.
        program = [python, "-I", "-m", "palaver.daemon", "--home", home, "--ready-fd", str(_READY_FD)]
        os.execvpe(python, program, _daemon_environment(home))  # noqa: S606 - no shell is involved
    except OSError as error:
        # Before `_shed` the number of the daemon's pipe may be another open file of the caller.
        os.write(report, f"cannot run {python}: {error.strerror}".encode(errors="replace"))
    finally:
        # Not `sys.exit`: this is a copy of the caller's program, whose exit handlers must not run twice, nor
        # its unflushed output appear twice.
        os._exit(1)


def _shed(report: int, home: str) -> None:
    """Drop everything inherited from the caller, except the pipe on which the daemon reports that it listens.

    Standard error becomes the daemon's log, so that Python can report why it cannot run the program.
    """
    # Both are moved above the numbers that are overwritten below.
    report = fcntl.fcntl(report, fcntl.F_DUPFD, _READY_FD + 1)
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD, _READY_FD + 1)
    for fd in range(3):
        os.dup2(null, fd)
    os.dup2(_open_notes(home), 2)
    # `dup2` makes the copy inheritable, so it stays open in the daemon after the exec.
    os.dup2(report, _READY_FD)
    # Another process may wait for the end of an inherited pipe.
    os.closerange(_READY_FD + 1, os.sysconf("SC_OPEN_MAX"))
    # An ignored signal stays ignored after exec, and Python itself ignores the last two.
    for number in (*CAUGHT_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # A blocked signal stays blocked after exec, too.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    # A file system with the working directory of a running process cannot be unmounted.
    os.chdir("/")


def _open_notes(home: str) -> int:
    try:
        return os.open(f"{home}/daemon.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)  # the daemon itself reports the problem with its home


def _daemon_environment(home: str) -> dict[str, str]:
    """Return the environment of the daemon, without the variables of this one caller.

    A mark of a harness or an agent would make the daemon and each program that it starts look like an agent.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _DAEMON_NAMES or (name.startswith("PALAVER_") and name != SEAT_MARK)
    }
    return {**kept, "PALAVER_HOME": home}


Socket = _socket.socket

GONE_LIMIT_S = 10.0
"""How long a stopping daemon may keep its lock."""

DEAF_LIMIT_S = 5.0
"""How long a running daemon may take until it listens: after its start, or after its socket was removed."""

UPGRADE_LIMIT_S = 600.0
"""How long a client waits while a daemon upgrades the log of an older version."""

SLOW_S = 10.0
"""How long a daemon may start before the client reports that it waits."""

START_LIMIT_S = 120.0
"""How long a start may take without a report of progress: a blocked disk or a stopped process has no end."""

_ADDRESS_BYTES = 104 if sys.platform == "darwin" else 108
"""Size of the path in a socket address, with the null byte at its end."""


class StartError(Exception):
    """The daemon is not reachable and was not started; the text is a sentence for people."""


class NoHope(StartError):
    """A retry will not help: access is denied, or the bus was stopped on purpose."""


class ConnectDenied(NoHope):
    """This process may not connect to the socket of the daemon."""


class Patience:
    """The wait of one client for a starting daemon. It reports a slow start, and an upgrade of the log."""

    def __init__(self, home: str, report: Callable[[str], None] | None = None) -> None:
        self._home = home
        self._report = report
        self._begin_s = self._quiet_since_s = time.monotonic()
        self._shown = -1
        self._is_slow_reported = False

    def look(self) -> bool:
        """Return whether the daemon upgrades its log now. Raises StartError if the wait takes too long."""
        percent = upgraded_percent(self._home)
        if percent is None:
            self._look_at_silence()
            return False
        # The start goes on after an upgrade, with its own limit from then on.
        self._quiet_since_s = time.monotonic()
        minutes = int(UPGRADE_LIMIT_S // 60)
        if time.monotonic() - self._begin_s > UPGRADE_LIMIT_S:
            raise StartError(
                f"the bus is still upgrading its log after {minutes} minutes ({percent} % is done); nothing "
                f"is lost: try again later, or see {self._home}/daemon.log"
            )
        if percent // 10 > self._shown and self._report is not None:
            limit = f"; waiting up to {minutes} minutes" if self._shown < 0 else ""
            self._report(f"the bus is upgrading its log ({percent} %){limit}")
            self._shown = percent // 10
        return True

    def _look_at_silence(self) -> None:
        quiet_s = time.monotonic() - self._quiet_since_s
        minutes = int(START_LIMIT_S // 60)
        if quiet_s > START_LIMIT_S:
            raise StartError(
                f"the bus has not started after {minutes} minutes: try again later, or see "
                f"{self._home}/daemon.log"
            )
        if quiet_s > SLOW_S and not self._is_slow_reported and self._report is not None:
            self._report(f"the bus takes more than {int(SLOW_S)} s to start; waiting up to {minutes} minutes")
            self._is_slow_reported = True


def upgraded_percent(home: str) -> int | None:
    """Return how much of its log the running daemon has upgraded; None if it does not upgrade it now."""
    try:
        found = os.open(f"{home}/upgrading", os.O_RDONLY)
        try:
            pid, done, total = map(int, os.read(found, 100).split())
        finally:
            os.close(found)
    except (OSError, ValueError):
        return None
    if pid != daemon_pid(home) or not is_daemon_alive(home):  # It was killed during an upgrade.
        return None
    return min(100, 100 * done // total) if total > 0 else 0


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
        # ECONNREFUSED means that a daemon which crashed has left its socket file.
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
            return None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConnectDenied(
                f"this process may not connect to {home}/daemon.sock (a sandbox?): "
                "use Palaver's MCP tools instead (add 'pal mcp' as an MCP server)"
            ) from error
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise StartError(unusable_home(home, error)) from error
        raise StartError(f"{home}/daemon.sock: {error.strerror or error}") from error


def stopped_text(up: str) -> str:
    """Return the refusal to start a bus that was stopped; `up` is the command that starts it."""
    return f"the bus was stopped with 'pal down'; '{up}' starts it again"


def start(
    home: str,
    *,
    person: bool | None = None,
    spawned: Callable[[], None] | None = None,
    up: str = "pal up",
    report: Callable[[str], None] | None = None,
) -> Socket | None:
    """Start the daemon, or wait for the one that another client is starting, and connect to it.

    None means that it was lost again at once. The marker of `pal down` is respected as in `ensure_daemon`;
    the daemon removes it once it is up.
    `spawned` is called if this process starts the daemon. `up` is the command that a refusal advises.
    `report` gets sentences about a slow start, and about an upgrade of the log, which can take minutes.
    """
    marker = f"{home}/down"
    if os.path.lexists(marker) and not (is_person() if person is None else person):
        raise NoHope(stopped_text(up))
    try:
        _make_directories(home)
        lock = above_stdio(os.open(f"{home}/start.lock", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StartError(unusable_home(home, error)) from error
    patience = Patience(home, report)
    try:
        return _lock_start(home, lock, patience) or _start_alone(home, spawned, patience)
    except OSError as error:  # such as too many open files
        raise StartError(f"the daemon did not start: {error.strerror or error}") from error
    finally:
        os.close(lock)


def _lock_start(home: str, lock: int, patience: Patience) -> Socket | None:
    """Take the start lock; or connect to the daemon that another client has started meanwhile."""
    while True:
        try:
            # The system releases it when this process ends, so a killed client leaves no lock.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            patience.look()
            # Polled, because a blocking lock could not see that the other client's daemon listens already.
            time.sleep(_POLL_S)
            if wire := reach(home):
                return wire
        else:
            return None


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
        # In the background no person waits for this command, even if there is a terminal.
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
        # A shared lock: two clients that check at the same time do not take each other for the daemon.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def await_listening(home: str, patience: Patience | None = None) -> Socket | None:
    """Connect to the daemon; wait for one that runs but does not listen. Return None if the wait fails.

    Such a daemon is stopping, has just started, or is replacing a removed socket. One that upgrades its log
    is waited for much longer with patience, and not at all without.
    """
    limit_s = time.monotonic() + DEAF_LIMIT_S
    wire = reach(home)
    while wire is None and is_daemon_alive(home) and time.monotonic() < limit_s:
        if patience is None and upgraded_percent(home) is not None:
            break
        # An upgrade has its own limit in `look`; this one counts from the end of the upgrade.
        if patience is not None and patience.look():
            limit_s = time.monotonic() + DEAF_LIMIT_S
        time.sleep(_POLL_S)
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
        # Without /proc only a relative path is short enough. For this moment it applies to all threads.
        back = os.open(".", os.O_RDONLY)
        try:
            os.chdir(home)
            wire.connect("daemon.sock")
        finally:
            os.fchdir(back)
            os.close(back)


def _start_alone(home: str, spawned: Callable[[], None] | None, patience: Patience) -> Socket | None:
    """Start the daemon; the caller has the start lock, so no other process does."""
    # Another client may have started it between the first try and this lock.
    wire = await_listening(home, patience)
    if wire is None:
        if is_daemon_alive(home):
            raise StartError(
                f"the daemon (process {daemon_pid(home)}) runs, but does not listen on {home}/daemon.sock: "
                "'pal down' ends it, and 'pal up' starts another"
            )
        if spawned is not None:
            spawned()
        if why := spawn(home, find_python(), patience.look):
            raise StartError(f"the daemon did not start{why}")
        wire = reach(home)
    return wire
