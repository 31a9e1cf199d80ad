"""Start a holder in its own session, with only those properties of the caller that its agent needs.

The caller waits until the holder reports that its agent runs, or the error. This module never attaches.
"""

import ctypes
import fcntl
import os
import signal
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from palaver.client.start import StartError, ensure_daemon, find_python
from palaver.errors import Disconnected, PalaverError, error_from_wire
from palaver.harness.marks import MARKS, SEAT_MARK
from palaver.holder.spawn import MODULE, HolderProcess

# --------------------
# Start the program of an agent in its own session and terminal, with a clean environment.
#
# The child waits between fork and exec until its seat is known, so the daemon can identify it from its first
# instruction. Nothing here interprets the command.

PREFIX: Final = "PALAVER_"
HOME: Final = "PALAVER_HOME"

SESSION_VARIABLES: Final = frozenset(
    {
        *MARKS,
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_REMOTE_SESSION_ID",
        "CLAUDE_ENV_FILE",
        "CLAUDE_PROJECT_DIR",
        "CLAUDE_PLUGIN_ROOT",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_CI",
        "GEMINI_CLI_IDE_SERVER_PORT",
        "GEMINI_CLI_IDE_WORKSPACE_PATH",
        "GEMINI_CLI_NO_RELAUNCH",
        "CODEX_MANAGED_BY_NPM",
        "CODEX_MANAGED_BY_BUN",
        "CODEX_MANAGED_PACKAGE_ROOT",
        "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
        "AI_AGENT",
        "OPENCODE_SERVER",
        "OPENCODE_RUN_ID",
        "OPENCODE_PROCESS_ROLE",
    }
)
"""Variables that harnesses set for the processes of one session; they must not reach another session."""

WINDOW_VARIABLES: Final = frozenset(
    {
        *("COLUMNS", "LINES", "TMUX", "TMUX_PANE", "STY", "WINDOW", "WINDOWID"),
        *("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "TERMINAL_EMULATOR"),
        *(
            "ZELLIJ",
            "ZELLIJ_SESSION_NAME",
            "ZELLIJ_PANE_ID",
            "KITTY_WINDOW_ID",
            "KITTY_PID",
            "KITTY_LISTEN_ON",
        ),
        *("WEZTERM_PANE", "WEZTERM_UNIX_SOCKET", "ALACRITTY_WINDOW_ID", "ALACRITTY_SOCKET", "WT_SESSION"),
        *("ITERM_SESSION_ID", "ITERM_PROFILE", "LC_TERMINAL", "LC_TERMINAL_VERSION", "VTE_VERSION"),
        *("GHOSTTY_RESOURCES_DIR", "GHOSTTY_BIN_DIR", "KONSOLE_VERSION", "VSCODE_INJECTION"),
    }
)
"""Variables of the caller's window; they must not reach the agent, which has its own terminal."""

_DEFAULT_TERM: Final = "xterm-256color"
_GO: Final = b"\n"
_READ_BYTES: Final = 4096
_SET_PARENT_DEATH_SIGNAL: Final = 1
NOT_FOUND: Final = 127
CANNOT_RUN: Final = 126
"""Exit statuses, as a shell has them."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The program to run, with the directory, environment and umask for it. Raw bytes, not decoded."""

    argv: tuple[bytes, ...]
    cwd: bytes
    environment: tuple[bytes, ...]
    umask: int = 0o022
    last_signal: int = int(signal.SIGTERM)
    """The signal sent if the holder is killed: some programs survive the hangup of their terminal."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A child between fork and exec."""

    pid: int
    go: int
    """The write end of a pipe: the seat starts the program; closing it without data ends the child."""
    failure: int
    """The read end of a pipe: on failure 4 bytes of errno, otherwise only end of file."""


def clean_environment(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Return the caller's environment without the variables of another agent, session or window."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(PREFIX) and name not in SESSION_VARIABLES | WINDOW_VARIABLES
    }
    if kept.get("TERM", "dumb") == "dumb":
        kept["TERM"] = _DEFAULT_TERM  # The agent always has a terminal; the caller may not.
    return {**kept, HOME: home}


def prepare(program: Program, slave: int) -> Waiting:
    """Fork a child that has the terminal and waits. Call this before any thread starts."""
    go_read, go = os.pipe()
    failure, failure_write = os.pipe()
    # Loaded before the fork: the child makes only system calls.
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    pid = os.fork()
    if pid == 0:
        # A holder that ends before this call sends no signal, but its pipe closes: the child then ends too.
        if libc is not None:
            libc.prctl(_SET_PARENT_DEATH_SIGNAL, program.last_signal, 0, 0, 0)
        _become(program, slave, go_read, failure_write, (go, failure))
    os.close(go_read)
    os.close(failure_write)
    return Waiting(pid, go, failure)


def let_go(waiting: Waiting, seat: str) -> None:
    """Send the child its seat, which starts the program. The result can be read from `failure`."""
    try:
        os.write(waiting.go, seat.encode() + _GO)
    except BrokenPipeError:
        pass  # The child has ended already; its exit status says why.
    finally:
        os.close(waiting.go)


def failure_from_bytes(report: bytes) -> OSError | None:
    """Decode everything read from `failure`; None means that the program runs."""
    if len(report) != 4:
        return None
    number = int.from_bytes(report, "big")
    return OSError(number, os.strerror(number))


async def read_failure(waiting: Waiting) -> OSError | None:
    """Wait until the child runs its program, and return the error if it cannot. Does not block the loop."""
    import asyncio  # The client uses this module without asyncio, which is slow to import.

    loop = asyncio.get_running_loop()
    os.set_blocking(waiting.failure, False)
    is_ready = asyncio.Event()
    loop.add_reader(waiting.failure, is_ready.set)
    report = b""
    try:
        while True:
            await is_ready.wait()
            is_ready.clear()
            with suppress(BlockingIOError):
                piece = os.read(waiting.failure, _READ_BYTES)
                if not piece:
                    return failure_from_bytes(report)
                report += piece
    finally:
        loop.remove_reader(waiting.failure)
        os.close(waiting.failure)


def environment_of(program: Program) -> dict[bytes, bytes]:
    """Return the environment by names."""
    return {
        name: value for name, _, value in (entry.partition(b"=") for entry in program.environment) if name
    }


def _become(program: Program, slave: int, go: int, failure: int, others: tuple[int, int]) -> NoReturn:
    """Run in the child: make only system calls, and never return."""
    status = CANNOT_RUN
    try:
        # These are the holder's ends. With its own copy of `go` the child would never see that the holder
        # ended.
        for fd in others:
            os.close(fd)
        os.setsid()
        # Only the leader of a session without a terminal can take one, so after `setsid`.
        ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            # `dup2` makes the copies inheritable. `slave` itself is not, so the exec closes it.
            os.dup2(slave, fd)
        _default_signals()
        os.umask(program.umask)
        seat = _wait_for_seat(go)
        if seat is None:
            os._exit(status)
        environment = environment_of(program)
        environment[SEAT_MARK.encode()] = seat
        os.chdir(program.cwd)
        # Success closes `failure`, which is not inheritable: the holder then reads its end.
        os.execvpe(program.argv[0], program.argv, environment)  # noqa: S606 - no shell is involved
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            status = NOT_FOUND
        os.write(failure, (error.errno or 0).to_bytes(4, "big"))
    finally:
        os._exit(status)


def _wait_for_seat(go: int) -> bytes | None:
    """Read the seat that starts the program; None if the holder has exited."""
    received = b""
    while not received.endswith(_GO):
        piece = os.read(go, _READ_BYTES)
        if not piece:
            return None
        received += piece
    return received.removesuffix(_GO)


def _default_signals() -> None:
    """Reset the signal handlers and the mask that Python and the holder set."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL and SIGSTOP cannot be set, and the C library reserves some.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# --------------------
# Start a holder in its own process, and report to the caller how it went.


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


class HolderReady(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
) -> HolderReady:
    """Start a holder and return its report; raise the refusal, or Disconnected if the holder is lost.

    `process` is a holder that is already loading. `meanwhile` is called while it loads.

    With `life_limit_s` the report comes when the program shows that it runs, when it has ended, or after that
    time.
    """
    return _start(start, process, meanwhile=meanwhile)[0]


def start_holders(starts: Sequence[Start], first: HolderProcess) -> Iterator[HolderReady | PalaverError]:
    """Start several holders at the same time; yield the report of each, or its refusal, in their order.

    `first` is a holder that is already loading.
    """
    processes = [first, *(HolderProcess(start.home) for start in starts[1:])]
    # All orders before the first report, or each agent would wait for the start of the one before.
    for start, process in zip(starts, processes, strict=True):
        process.order(msgspec.json.encode(start))
    for start, process in zip(starts, processes, strict=True):
        with open(process.ready, "rb") as file:  # noqa: PTH123 - a descriptor
            line = file.readline()
        process.release()
        try:
            yield _ready_from(line, start.home)
        except PalaverError as error:
            yield error


def run_to_the_end(
    start: Start, on_ready: Callable[[str], None], process: HolderProcess | None = None
) -> int:
    """Start a holder and wait until its agent has ended; return the status that a shell would show.

    `on_ready` receives the agent's name once it runs. Raises as start_holder does.
    """
    ready, rest = _start(start, process, on_ready)
    # The holder always writes a status before it closes the pipe, unless it was killed.
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
) -> tuple[HolderReady, bytes]:
    """Start a holder; return its report and the bytes that follow it."""
    process = process or HolderProcess(start.home)
    process.order(msgspec.json.encode(start))
    with open(process.ready, "rb") as file:  # noqa: PTH123 - a descriptor
        meanwhile()
        line = file.readline()
        process.release()
        word = _ready_from(line, start.home)
        on_ready(word.name)
        # The holder closes the pipe after its last report: at once, or when the agent has ended.
        return word, file.read()


def check_command() -> list[str]:
    """Return the command that succeeds if the newer version of the holder can be loaded."""
    return [find_python(), "-I", "-m", MODULE, "--check"]


def read_start(descriptor: int) -> Start | None:
    """In the holder: read its orders; None if the caller needs no holder after all, or was killed."""
    with open(descriptor, "rb") as file:
        try:
            # Up to the end: orders of a caller that was killed are cut, and then not valid JSON.
            return msgspec.json.decode(file.read(), type=Start)
        except msgspec.DecodeError:
            return None


class Starter:
    """In the holder: the process that started it and waits for a report. It may have exited already."""

    def __init__(self, descriptor: int | None, *, is_awaited: bool, is_ready: bool = False) -> None:
        """`is_awaited`: the caller also waits for the agent to exit. `is_ready`: the first report is sent."""
        self.descriptor = descriptor
        """The pipe to the caller; None after the last report."""
        self._is_awaited = is_awaited
        self._is_ready = is_ready

    @property
    def awaits_ready(self) -> bool:
        """Whether the first report is still due."""
        return self.descriptor is not None and not self._is_ready

    def ready(self, ready: HolderReady) -> None:
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
        pass  # The caller has exited; its agent runs all the same.
    finally:
        if is_last:
            os.close(descriptor)


def ready_error(error: PalaverError) -> HolderReady:
    """Return the report of a refusal."""
    return HolderReady(error=error.code, message=str(error), details=dict(error.details))


def _ready_from(line: bytes, home: str) -> HolderReady:
    try:
        ready = msgspec.json.decode(line, type=HolderReady)
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
            file = os.dup(hidden.fileno())  # It stays open when `hidden` is closed.
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


# --------------------
# Start the daemon on behalf of holders: in a separate process, one at a time, and only if it is wanted.
#
#     python -I -m palaver.holder.launch HOME
#
# A holder collects all of its ended descendants in one place, so it must not wait for a child anywhere else.
# Holders reconnect automatically, so this must not start a daemon in a home that was removed or stopped.

DAEMON_START_MODULE: Final = "palaver.holder.launch"

Run = Callable[[list[str]], Awaitable[int]]
"""Runs a command and returns its exit status."""


async def start_daemon(home: str, run: Run) -> bool:
    """Start the daemon of a home. Return False if that fails, is not wanted, or is already under way."""
    if not _is_wanted(home):
        return False
    try:
        # Not inherited: in the started daemon the lock would last as long as the daemon.
        lock = os.open(Path(home) / "agents" / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        # All holders lose the daemon at the same moment. One start is enough, and the others try to connect
        # again.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return await run([find_python(), "-I", "-m", DAEMON_START_MODULE, home]) == 0
    except OSError:
        return False
    finally:
        os.close(lock)


def _is_wanted(home: str) -> bool:
    return os.path.isdir(home) and not os.path.lexists(f"{home}/down")  # noqa: PTH112 - the home as it was given


def main() -> int:
    """Start the daemon of the home given as the argument."""
    try:
        ensure_daemon(sys.argv[1], person=False)
    except StartError as error:
        sys.stderr.write(f"{error}\n")  # stderr is the log file of holders.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
