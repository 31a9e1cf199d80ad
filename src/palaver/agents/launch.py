"""Starting a holder: in a session of its own, with nothing of its caller but what its agent is to have.

The caller waits until the holder says that its agent runs, or why not. Attaches to nothing.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from palaver.agents.child import Program
from palaver.client.start import find_python
from palaver.errors import Disconnected, PalaverError, error_from_wire

MODULE: Final = "palaver.agents.holder"

_KEPT_NAMES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_START_FD: Final = 3
_READY_FD: Final = 4


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """All that a holder needs to know to begin."""

    home: str
    ticket: str
    program: Program
    cols: int
    rows: int
    native: str = ""
    """Where the harness's own way in will be, where it has one."""
    session: str = ""
    """The conversation that the harness goes on with, where that is known."""
    among: tuple[str, ...] = ()
    """Those that a person chooses from, where it is not."""
    prompt: str = ""
    """A regular expression for the line at which the program takes a message."""
    is_awaited: bool = False
    """Whoever starts it waits for its end, and is told the exit status."""
    life_limit_s: float = 0.0
    """How long the caller waits to see whether the program survives its start; 0: not at all."""
    is_harness: bool = False
    """It is a harness that `pal` started in the way made for it, so its screen can be read."""
    is_watched: bool = False
    """Whoever starts it attaches at once, and wants to see also what ends as soon as it began."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a holder says once: whose terminal it has, or what went wrong."""

    name: str = ""
    error: str = ""
    message: str = ""
    details: dict[str, object] = {}
    ended: int | None = None
    """The exit status of a program that ended while it was starting."""
    reason: str = ""
    """How it ended, as a person reads it."""
    output: str = ""
    """What its terminal showed then."""


def start_holder(start: Start, meanwhile: Callable[[], None] = lambda: None) -> Ready:
    """Start a holder and return its first word; raises the refusal, or Disconnected when it is lost.

    `meanwhile` is called while the holder loads.

    With `life_limit_s` that word comes when the program shows that it runs, when it has ended, or after that
    time.
    """
    return _start(start, meanwhile=meanwhile)[0]


def run_to_the_end(start: Start, on_ready: Callable[[str], None]) -> int:
    """Start a holder and wait until its agent has ended; give the status that a shell would show.

    `on_ready` gets the agent's name once it runs. Raises as start_holder does.
    """
    ready, rest = _start(start, on_ready)
    if not rest:
        raise Disconnected(
            f"the holder of {ready.name}'s terminal was lost; see {start.home}/agents/holder.log"
        )
    return int(rest)


def _start(
    start: Start,
    on_ready: Callable[[str], None] = lambda _name: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Ready, bytes]:
    """Start a holder; return its first word and what it said after that."""
    sent = file_with(msgspec.json.encode(start))
    ready, report = os.pipe()
    waits, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release)
        _detach(start.home, sent, report, waits)
    for descriptor in (report, sent, waits):
        os.close(descriptor)
    with open(ready, "rb") as file:  # noqa: PTH123 - a descriptor
        meanwhile()
        said = file.readline()
        os.close(release)
        os.waitpid(child, 0)
        word = _ready_from(said, start.home)
        on_ready(word.name)
        return word, file.read()


def read_start(descriptor: int) -> Start:
    """In the holder: read what it was started with."""
    with open(descriptor, "rb") as file:
        return msgspec.json.decode(file.read(), type=Start)


class Starter:
    """In the holder: whoever started it, and waits for a word. It may have gone already."""

    def __init__(self, descriptor: int | None, *, is_awaited: bool) -> None:
        """`is_awaited`: it waits for the end, too."""
        self.descriptor = descriptor
        """Where it listens; None when nothing more is to be said."""
        self._is_awaited = is_awaited
        self._is_ready = False

    @property
    def awaits_ready(self) -> bool:
        """Whether it has not had its first word yet."""
        return self.descriptor is not None and not self._is_ready

    def ready(self, ready: Ready) -> None:
        """Let it go on."""
        self._is_ready = True
        if self.descriptor is not None:
            is_last = not self._is_awaited or bool(ready.error)
            _say(self.descriptor, msgspec.json.encode(ready) + b"\n", is_last=is_last)
            self.descriptor = None if is_last else self.descriptor

    def end(self, status: int) -> None:
        """Tell it how the agent ended."""
        if self.descriptor is not None:
            _say(self.descriptor, b"%d" % status, is_last=True)
            self.descriptor = None


def _say(descriptor: int, word: bytes, *, is_last: bool) -> None:
    try:
        os.write(descriptor, word)
    except BrokenPipeError:
        pass
    finally:
        if is_last:
            os.close(descriptor)


def ready_error(error: PalaverError) -> Ready:
    """Say a refusal."""
    return Ready(error=error.code, message=str(error), details=dict(error.details))


def _ready_from(said: bytes, home: str) -> Ready:
    try:
        ready = msgspec.json.decode(said, type=Ready)
    except msgspec.DecodeError:
        raise Disconnected(f"the holder of the terminal was lost; see {home}/agents/holder.log") from None
    if ready.error:
        raise error_from_wire(ready.error, ready.message, ready.details)
    return ready


def file_with(content: bytes) -> int:
    """Give a descriptor from which the content can be read; its place has no name."""
    if sys.platform == "linux":
        file = os.memfd_create("palaver-start")
    else:  # pragma: no cover - macOS
        import tempfile

        with tempfile.TemporaryFile() as hidden:
            file = os.dup(hidden.fileno())
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _detach(home: str, sent: int, report: int, waits: int) -> NoReturn:
    """In the child: become the holder in a grandchild, so that nobody must wait for it.

    The child stays until the caller has the holder's first word: the ticket is good only below the process
    that asked for it.
    """
    try:
        os.setsid()
        if os.fork():
            os.close(report)
            os.read(waits, 1)  # nothing is written: it ends with the caller's end of the pipe
            os._exit(0)
        _shed(home, sent, report)
        words = [find_python(), "-I", "-m", MODULE]
        words += ["--start-fd", str(_START_FD), "--ready-fd", str(_READY_FD)]
        os.execvpe(words[0], words, _environment(home))  # noqa: S606 - a shell has no part in it
    except OSError as error:
        sentence = f"the holder of the terminal cannot be started: {error.strerror}"
        os.write(_READY_FD, msgspec.json.encode(Ready(error="unavailable", message=sentence)))
    finally:
        os._exit(1)


def _shed(home: str, sent: int, report: int) -> None:
    """Leave behind all that is the caller's, but for the two descriptors."""
    sent = fcntl.fcntl(sent, fcntl.F_DUPFD, _READY_FD + 1)
    report = fcntl.fcntl(report, fcntl.F_DUPFD, _READY_FD + 1)
    folder = Path(home) / "agents"
    os.umask(0o077)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD, _READY_FD + 1)
    log = os.open(folder / "holder.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    log = fcntl.fcntl(log, fcntl.F_DUPFD, _READY_FD + 1)
    for fd, source in ((0, null), (1, null), (2, log), (_START_FD, sent), (_READY_FD, report)):
        os.dup2(source, fd)
    os.closerange(_READY_FD + 1, os.sysconf("SC_OPEN_MAX"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.chdir("/")


def _environment(home: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_NAMES}
    if python := os.environ.get("PALAVER_PYTHON"):
        kept["PALAVER_PYTHON"] = python
    return {**kept, "PALAVER_HOME": home}
