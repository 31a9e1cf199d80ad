"""The holder of one job of an automatic turn: it starts the program, and ends everything that belongs to it.

    python -I -m palaver.holder.turn_process FD PROGRAM ARGUMENTS...

FD is the read end of a pipe from the runner. The first byte starts the program. The end of the pipe means
that the runner has exited: everything is killed at once, however the runner died. After SIGTERM the program
has some seconds to end. When the program ends, the processes that it left running are killed, and this
process exits with its status, or with 128 and the number of the signal that ended it.

The runner names this process to the daemon before the first byte, so the program is known from its first
instruction. It must load fast, so it imports nothing of the package.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Final, NoReturn

MODULE: Final = "palaver.holder.turn_process"
GO: Final = b"\n"

_GRACE_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_LOOK_S: Final = 60.0
"""Seconds. Signals and the pipe end a wait at once; this is only its limit."""
# The exit statuses of a shell for a command that it cannot find or run.
_NOT_FOUND: Final = 127
_CANNOT_RUN: Final = 126
_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def main(words: list[str]) -> int:
    """Wait for the first byte, run the program, and return its exit status as a shell has it."""
    life, command = int(words[0]), words[1:]
    os.set_inheritable(life, False)
    wake_read = _handle_signals()
    if not os.read(life, 1):
        return _CANNOT_RUN
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is not None:
        # Orphans of the program become children of this process, so `_kill_all` finds them.
        libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        if libc is not None:
            libc.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:  # It ended before the call: then no signal comes.
                os._exit(_CANNOT_RUN)
        _become(command)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)  # The pipes to the runner belong to the program alone.
    status = _wait(child, wake_read, life)
    _kill_all(child)
    return status if status >= 0 else 128 - status


_is_asked_to_end = False


def _handle_signals() -> int:
    """Let signals end a wait; return the descriptor that becomes readable then."""
    # A signal that comes just before `select` would not end it: its byte in the pipe does.
    wake_read, wake_write = os.pipe()
    for descriptor in (wake_read, wake_write):
        os.set_blocking(descriptor, False)
    # A full pipe ends the wait too, so it needs no warning.
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def on_signal(number: int, frame: object) -> None:
        global _is_asked_to_end  # noqa: PLW0603 - a signal handler of a program that does only this
        _is_asked_to_end = _is_asked_to_end or number != signal.SIGCHLD

    # SIGCHLD too: a signal without a handler writes no byte into the pipe.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, on_signal)
    return wake_read


def _become(command: list[str]) -> NoReturn:
    """Run in the child: become the program, in its own session, with no terminal."""
    try:
        # The pipe is that of the parent: a signal to this process must not end the parent's wait.
        signal.set_wakeup_fd(-1)
        # Python ignores SIGPIPE, and the program would inherit that.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.execvp(command[0], command)  # noqa: S606 - no shell is involved
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        os.write(2, f"{command[0]} cannot be run: {reason}\n".encode("utf-8", "surrogateescape"))
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


def _wait(child: int, wake_read: int, life: int) -> int:
    """Wait until the program has ended; return its status, negative for a signal."""
    deadline: float | None = None
    while True:
        # Everything that ended is collected: orphans too.
        with suppress(ChildProcessError):
            # Several processes may have ended with one SIGCHLD, because the system does not count them.
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return os.waitstatus_to_exitcode(ended[1])
        if _is_asked_to_end and deadline is None:
            deadline = time.monotonic() + _GRACE_S
            _signal_group(child, signal.SIGTERM)
        left_s = _LOOK_S if deadline is None else deadline - time.monotonic()
        if left_s <= 0:
            return _kill_child(child)
        # The runner writes no second byte, so `life` becomes readable only at its end.
        ready, _, _ = select.select([wake_read, life], [], [], left_s)
        if life in ready and not os.read(life, 1):
            return _kill_child(child)
        # Emptied, or the next `select` would return at once.
        with suppress(BlockingIOError):
            os.read(wake_read, 4096)


def _kill_child(child: int) -> int:
    _signal_group(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)  # It may not have its own session yet.
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_all(group: int) -> None:
    """Kill what the program left running: its group, and on Linux every process below this one."""
    _signal_group(group, signal.SIGKILL)
    # In rounds: the children of a killed process become ours only after its end. The last round finds only
    # processes that may not be killed.
    while killed := [pid for pid in _children() if _kill(pid)]:
        for pid in killed:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)  # Its own children are now children of this process.


def _kill(pid: int) -> bool:
    """Kill a process; return False if that is not allowed, as for one that has the rights of another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _children() -> list[int]:
    """Return the children of this process, which has one thread; empty on systems other than Linux."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123 - loads less
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
