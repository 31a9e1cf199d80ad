"""Start a holder in its own session, with only those properties of the caller that its agent needs.

The caller waits until the holder reports that its agent runs, or the error. This module never attaches.
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
    """Everything a holder needs to start its agent."""

    home: str
    ticket: str
    program: Program
    cols: int
    rows: int
    native: str = ""
    """The address of the harness's native integration; empty if it has no such integration."""
    session: str = ""
    """The session that the harness resumes, if known."""
    among: tuple[str, ...] = ()
    """The sessions that the user can choose from, if `session` is not known."""
    prompt: str = ""
    """A regular expression for the line at which the program accepts a message."""
    is_awaited: bool = False
    """Whether the caller waits for the agent to exit and needs the exit status."""
    life_limit_s: float = 0.0
    """Seconds that the caller waits to see whether the program survives its start; 0 means no wait."""
    is_harness: bool = False
    """Whether `pal` started a harness in its standard way, so that its screen can be read."""
    is_watched: bool = False
    """Whether the caller attaches at once and must also see a program that exits immediately."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first report of a holder: the name of its agent, or the error."""

    name: str = ""
    error: str = ""
    message: str = ""
    details: dict[str, object] = {}
    ended: int | None = None
    """The exit status of a program that ended during its start."""
    reason: str = ""
    """How it ended, as text for the user."""
    output: str = ""
    """The last output of its terminal."""


def start_holder(
    start: Start, process: HolderProcess | None = None, meanwhile: Callable[[], None] = lambda: None
) -> Ready:
    """Start a holder and return its report; raise the refusal, or Disconnected if the holder is lost.

    `process` is a holder that is already loading. `meanwhile` is called while it loads.

    With `life_limit_s` the report comes when the program shows that it runs, when it has ended, or after that
    time.
    """
    return _start(start, process, meanwhile=meanwhile)[0]


def run_to_the_end(
    start: Start, on_ready: Callable[[str], None], process: HolderProcess | None = None
) -> int:
    """Start a holder and wait until its agent has ended; return the status that a shell would show.

    `on_ready` receives the agent's name once it runs. Raises as start_holder does.
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
    """In the holder: read its orders; None if the caller needs no holder after all, or was killed."""
    with open(descriptor, "rb") as file:
        try:
            return msgspec.json.decode(file.read(), type=Start)
        except msgspec.DecodeError:
            return None


class Starter:
    """In the holder: the process that started it and waits for a report. It may have exited already."""

    def __init__(self, descriptor: int | None, *, is_awaited: bool) -> None:
        """`is_awaited`: the caller also waits for the agent to exit."""
        self.descriptor = descriptor
        """The pipe to the caller; None after the last report."""
        self._is_awaited = is_awaited
        self._is_ready = False

    @property
    def awaits_ready(self) -> bool:
        """Whether the first report is still due."""
        return self.descriptor is not None and not self._is_ready

    def ready(self, ready: Ready) -> None:
        """Send the first report.

        It is also the last one if it is an error or the caller does not wait for the exit.
        """
        self._is_ready = True
        if self.descriptor is not None:
            is_last = not self._is_awaited or bool(ready.error)
            _say(self.descriptor, msgspec.json.encode(ready) + b"\n", is_last=is_last)
            self.descriptor = None if is_last else self.descriptor

    def end(self, status: int) -> None:
        """Report the exit status of the agent."""
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
    """Return the report of a refusal."""
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
    """Return a descriptor from which the content can be read. The file has no name."""
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
