"""Start the program of an agent in its own session and terminal, with a clean environment.

The child waits between fork and exec until its seat is known, so the daemon can identify it from its first
instruction. This module does not interpret the command.
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
_CANNOT_RUN: Final = 126
_SET_PARENT_DEATH_SIGNAL: Final = 1
_NOT_FOUND: Final = 127


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


def _become(program: Program, slave: int, go: int, failure: int, others: tuple[int, int]) -> NoReturn:
    """Run in the child: make only system calls, and never return."""
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
        os.execvpe(program.argv[0], program.argv, environment)  # noqa: S606 - no shell is involved
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            status = _NOT_FOUND
        os.write(failure, (error.errno or 0).to_bytes(4, "big"))
    finally:
        os._exit(status)


def _wait_for_seat(go: int) -> bytes | None:
    """Read the seat that starts the program; None if the holder has exited."""
    said = b""
    while not said.endswith(_GO):
        piece = os.read(go, _READ_BYTES)
        if not piece:
            return None
        said += piece
    return said.removesuffix(_GO)


def _default_signals() -> None:
    """Reset the signal handlers and the mask that Python and the holder set."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL and SIGSTOP cannot be set, and the C library reserves some.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
