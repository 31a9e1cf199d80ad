"""Starting a holder: in a session of its own, with nothing of its caller but what its agent is to have.

The caller waits until the holder says that its agent runs, or why not. Attaches to nothing.
"""

import os
import sys
from collections.abc import Callable

import msgspec

from palaver.agents.child import Program
from palaver.agents.spawn import MODULE, HolderProcess
from palaver.client.start import find_python
from palaver.errors import Disconnected, PalaverError, error_from_wire


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


def start_holder(
    start: Start, process: HolderProcess | None = None, meanwhile: Callable[[], None] = lambda: None
) -> Ready:
    """Start a holder and return its report; raises the refusal, or Disconnected when the holder is lost.

    `process` is a holder that loads already. `meanwhile` is called while it loads.

    With `life_limit_s` the report comes when the program shows that it runs, when it has ended, or after that
    time.
    """
    return _start(start, process, meanwhile=meanwhile)[0]


def run_to_the_end(
    start: Start, on_ready: Callable[[str], None], process: HolderProcess | None = None
) -> int:
    """Start a holder and wait until its agent has ended; return the status that a shell would show.

    `on_ready` gets the agent's name once it runs. Raises as start_holder does.
    """
    ready, rest = _start(start, process, on_ready)
    if not rest:
        raise Disconnected(
            f"the holder of {ready.name}'s terminal was lost; see {start.home}/agents/holder.log"
        )
    return int(rest)


def _start(
    start: Start,
    process: HolderProcess | None,
    on_ready: Callable[[str], None] = lambda _name: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Ready, bytes]:
    """Start a holder; return its report and the bytes that follow it."""
    process = process or HolderProcess(start.home)
    process.order(msgspec.json.encode(start))
    with open(process.ready, "rb") as file:  # noqa: PTH123 - a descriptor
        meanwhile()
        said = file.readline()
        process.release()
        word = _ready_from(said, start.home)
        on_ready(word.name)
        return word, file.read()


def check_command() -> list[str]:
    """Return the command that succeeds if the newer version of the holder can be loaded."""
    return [find_python(), "-I", "-m", MODULE, "--check"]


def read_start(descriptor: int) -> Start | None:
    """In the holder: read its orders; None if its caller needs no holder after all, or was killed."""
    with open(descriptor, "rb") as file:
        try:
            return msgspec.json.decode(file.read(), type=Start)
        except msgspec.DecodeError:
            return None


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
