"""Start the daemon of a home: in its own session, with nothing inherited from the caller.

It checks no lock and no marker: the caller has done that. The thin client imports this module on every
command, so it imports little.
"""

import fcntl
import os
import signal

from palaver.harness.marks import SEAT_MARK

CAUGHT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a client handles, and that a daemon must not inherit as ignored."""

_READY_FD = 3
_LINE_BYTES = 4095
_DAEMON_NAMES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


def spawn(home: str, python: str) -> str:
    """Start a daemon and wait until it listens. Return the rest of an error sentence, empty on success."""
    notes = f"{home}/daemon.log"
    size = _size_of(notes)
    ready, report = os.pipe()
    try:
        child = _fork()
    except OSError as error:
        return f": {error.strerror}"
    if child == 0:
        _detach(home, python, report)
    os.close(report)
    os.waitpid(child, 0)
    text = b""
    while text != b"ok\n" and (piece := os.read(ready, 4096)):
        text += piece
    os.close(ready)
    if text == b"ok\n":
        return ""
    if text:
        return f": {text.decode(errors='replace').rstrip()}"
    if why := _last_line(notes, size):
        return f": {why} (see {notes})"
    return f", and said nothing: was it killed? See {notes}"


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
        os.setsid()
        if os.fork():
            os._exit(0)
        _shed(report, home)
        program = [python, "-I", "-m", "palaver.daemon", "--home", home, "--ready-fd", str(_READY_FD)]
        os.execvpe(python, program, _daemon_environment(home))  # noqa: S606 - no shell is involved
    except OSError as error:
        os.write(_READY_FD, f"cannot run {python}: {error.strerror}".encode(errors="replace"))
    finally:
        os._exit(1)


def _shed(report: int, home: str) -> None:
    """Drop everything inherited from the caller, except the pipe on which the daemon reports that it listens.

    Standard error becomes the daemon's log, so that Python can report why it cannot run the program.
    """
    report = fcntl.fcntl(report, fcntl.F_DUPFD, _READY_FD + 1)
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD, _READY_FD + 1)
    for fd in range(3):
        os.dup2(null, fd)
    os.dup2(_open_notes(home), 2)
    os.dup2(report, _READY_FD)
    # Another process may wait for the end of an inherited pipe.
    os.closerange(_READY_FD + 1, os.sysconf("SC_OPEN_MAX"))
    for number in (*CAUGHT_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    os.chdir("/")


def _open_notes(home: str) -> int:
    try:
        return os.open(f"{home}/daemon.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)  # the daemon itself reports the problem with its home


def _daemon_environment(home: str) -> dict[str, str]:
    """Return the environment of the daemon, without the variables of this one caller."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _DAEMON_NAMES or (name.startswith("PALAVER_") and name != SEAT_MARK)
    }
    return {**kept, "PALAVER_HOME": home}
