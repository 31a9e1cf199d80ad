"""Starting the program of an agent: in a session and terminal of its own, with an environment that is clean.

It waits between fork and exec until its seat on the bus is known, so that it is somebody from its first
instruction. What it runs is never looked at.
"""

import ctypes
import os
import signal
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from typing import Final, NoReturn

import msgspec

from palaver.harness.marks import MARKS, SEAT_MARK

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
"""What harnesses give to the processes of one session, and what must not reach another one."""

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
"""What belongs to the window of whoever starts it: the agent has a terminal of its own."""

_DEFAULT_TERM: Final = "xterm-256color"
_GO: Final = b"\n"
_READ_BYTES: Final = 4096
_CANNOT_RUN: Final = 126
_SET_PARENT_DEATH_SIGNAL: Final = 1
_NOT_FOUND: Final = 127


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and with what of its caller. Bytes as the system has them."""

    argv: tuple[bytes, ...]
    cwd: bytes
    environment: tuple[bytes, ...]
    umask: int = 0o022
    last_signal: int = int(signal.SIGTERM)
    """What it gets when its holder is killed: some programs live on behind a terminal that is hung up."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A child between fork and exec."""

    pid: int
    go: int
    """Written to, it starts; closed without a word, it ends."""
    failure: int
    """Its end says that the program runs; else four bytes come first, the error number."""


def clean_environment(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Give the caller's environment without what belongs to another agent, session or window."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(PREFIX) and name not in SESSION_VARIABLES | WINDOW_VARIABLES
    }
    if kept.get("TERM", "dumb") == "dumb":
        kept["TERM"] = _DEFAULT_TERM  # it gets a terminal now, whatever its caller had
    return {**kept, HOME: home}


def prepare(program: Program, slave: int) -> Waiting:
    """Fork the child; it has the terminal and waits. Call it before any thread runs."""
    go_read, go = os.pipe()
    failure, failure_write = os.pipe()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    pid = os.fork()
    if pid == 0:
        if libc is not None:
            libc.prctl(_SET_PARENT_DEATH_SIGNAL, program.last_signal, 0, 0, 0)
        _become(program, slave, go_read, failure_write, (go, failure))
    os.close(go_read)
    os.close(failure_write)
    return Waiting(pid, go, failure)


def let_go(waiting: Waiting, seat: str) -> None:
    """Tell the child who it is, and to start. What becomes of it is said at `failure`."""
    try:
        os.write(waiting.go, seat.encode() + _GO)
    except BrokenPipeError:
        pass  # it was ended meanwhile, and its status says how
    finally:
        os.close(waiting.go)


def failure_from_bytes(report: bytes) -> OSError | None:
    """Read what came at `failure` up to its end; None: the program runs."""
    if len(report) != 4:
        return None
    number = int.from_bytes(report, "big")
    return OSError(number, os.strerror(number))


async def read_failure(waiting: Waiting) -> OSError | None:
    """Wait until the child runs its program, or say why it cannot; holds nobody up."""
    import asyncio  # the client needs all of this but that, and loading it takes long

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


def _become(program: Program, slave: int, go: int, failure: int, others: tuple[int, int]) -> NoReturn:
    """In the child. Makes nothing but system calls, and never returns."""
    status = _CANNOT_RUN
    try:
        for fd in others:
            os.close(fd)
        os.setsid()
        ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
        _default_signals()
        os.umask(program.umask)
        seat = _wait_for_seat(go)
        if seat is None:
            os._exit(status)
        environment = dict(entry.split(b"=", 1) for entry in program.environment if b"=" in entry[1:])
        environment[SEAT_MARK.encode()] = seat
        os.chdir(program.cwd)
        os.execvpe(program.argv[0], program.argv, environment)  # noqa: S606 - a shell has no part in it
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            status = _NOT_FOUND
        os.write(failure, (error.errno or 0).to_bytes(4, "big"))
    finally:
        os._exit(status)


def _wait_for_seat(go: int) -> bytes | None:
    """Read up to the word to start; None when the holder is gone."""
    said = b""
    while not said.endswith(_GO):
        piece = os.read(go, _READ_BYTES)
        if not piece:
            return None
        said += piece
    return said.removesuffix(_GO)


def _default_signals() -> None:
    """Leave behind what Python and the holder set: the program decides for itself."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # two of them nobody may touch, and some are the C library's
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
