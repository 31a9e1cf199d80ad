"""`pal hook`, `pal monitor` and `pal rewake` in Python; native/hook.h and native/monitor.h are the same in C.

A harness waits for a hook: it is silent and ends with 0 whatever happens, writes an answer out whole or not
at all, and starts nothing. The first that waits for a hung daemon to its limit leaves a mark, and while that
is fresh the others try for a moment only; the daemon removes it with the next hook that it serves. A monitor
outlives the daemon, waits for the next one, and ends with its harness; `rewake` is one that says something
once, and what it says is put to the model when it ends with status 2.
"""

from __future__ import annotations

import os
import select
import signal
import time

from palaver.cli.thin_wire import FrameReader, MalformedFrameError, frame
from palaver.client import start

TYPE_CHECKING = False  # typing itself would take longer to import than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

GREETING = b"PALH"
_INPUT_LIMIT_BYTES = 8 * 1024 * 1024  # the results of tools come along
_LIMIT_S = 1.0
_LONG_LIMIT_S = 2.0  # at the start of a session, when a name may have to be given
_TRY_S = 0.05  # while the daemon is known to be slow
_SLOW_S = 30.0  # and so long it is
_PERSON_LIMIT_S = 3700  # when a person is asked, and only if the daemon says so
_PIECE_BYTES = 65536
_WAIT_FIRST_S = 0.05
_WAIT_MOST_S = 0.5


class Limit:
    """How long a hook may take, and the mark in the home that says that the daemon is slow."""

    def __init__(self, words: list[bytes]) -> None:
        """Let nothing from here on take longer than this; `words` are the arguments from the verb on."""
        self._mark = ""  # once it is the daemon that is waited for
        self._left_s = (_LONG_LIMIT_S if words[2:3] == [b"SessionStart"] else _LIMIT_S) - _TRY_S
        self._has_tried = False
        signal.signal(signal.SIGALRM, lambda *_: self._ring())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})  # whoever started us may keep it back
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, _TRY_S)

    def begin_asking(self, home: str) -> None:
        """Begin to wait for the daemon. Whoever was long in saying its input has used up the first moment."""
        self._mark = f"{home}/slow"
        if self._has_tried and self._is_known_slow():
            self._left_s = 0
            signal.setitimer(signal.ITIMER_REAL, _TRY_S)

    def wait_for_person(self, limit_s: int) -> None:
        """Wait so long; whoever runs into it has waited for a person. There is always a limit."""
        self._mark = ""
        signal.setitimer(signal.ITIMER_REAL, max(1, min(limit_s, _PERSON_LIMIT_S)))
        self._has_tried = True

    def end(self) -> None:
        """Let what comes take its time."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self) -> None:
        if not self._left_s or (self._mark and not self._has_tried and self._is_known_slow()):
            os._exit(0)
        if not self._has_tried:
            self._has_tried = True
            signal.setitimer(signal.ITIMER_REAL, self._left_s)
            return
        if self._mark:
            self._leave_mark()
        os._exit(0)

    def _is_known_slow(self) -> bool:
        try:
            return 0 <= time.time() - os.stat(self._mark).st_mtime < _SLOW_S  # noqa: PTH116 - pathlib is slow
        except OSError:
            return False

    def _leave_mark(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            os.close(os.open(self._mark, flags, 0o600))
        except OSError:
            return


def run_hook(home: str, fields: list[tuple[bytes, bytes]], limit: Limit) -> NoReturn:
    """Ask the daemon that is there, and write out what it says."""
    try:
        content = _read_input()
        limit.begin_asking(home)
        answer = _ask(home, [*fields, (b"b", content)], limit)
        while answer:
            answer = answer[os.write(1, answer) :]
    except (OSError, MalformedFrameError):
        pass  # a hook must never disturb its harness
    finally:
        os._exit(0)


def _read_input() -> bytes:
    """Read what the harness says to its end, also when it is too much: its writer finds no closed pipe."""
    content = bytearray()
    if os.isatty(0):
        return b""
    is_too_long = False
    while piece := _read_piece():
        content += piece
        if len(content) > _INPUT_LIMIT_BYTES:
            is_too_long = True
            content.clear()
    if is_too_long:
        os._exit(0)
    return bytes(content)


def _read_piece() -> bytes:
    """Wait for more, also where whoever shares the input does not wait."""
    while True:
        try:
            return os.read(0, _PIECE_BYTES)
        except BlockingIOError:
            select.select([0], [], [])


def _ask(home: str, fields: list[tuple[bytes, bytes]], limit: Limit) -> bytes:
    """Give the daemon's answer, and tell it that it arrived: from then on no deadline holds."""
    try:
        wire = start.reach(home)
    except start.StartError:
        return b""
    if wire is None:
        return b""
    wire.sendall(GREETING + frame(b"R", b"".join(frame(tag, value) for tag, value in fields)))
    frames = FrameReader()
    kind, answer = b"W", b""
    while kind == b"W":
        if len(answer) == 4:
            limit.wait_for_person(int.from_bytes(answer, "big"))
        while (taken := frames.take()) is None:
            data = wire.recv(_PIECE_BYTES)
            if not data:
                return b""
            frames.feed(data)
        kind, answer = taken
    if kind != b"H" or not answer:
        return b""
    limit.end()
    wire.sendall(frame(b"A"))
    return answer


def rewake_fields() -> list[tuple[bytes, bytes]]:
    """Take the input of the hook along. A session that prints one answer and ends would wait for us."""
    content = _read_input()
    if os.environ.get("CLAUDE_CODE_ENTRYPOINT", "sdk").startswith("sdk"):
        os._exit(0)
    return [(b"b", content)]


def run_monitor(home: str, serve: Callable[[start.Socket, int | None], bool]) -> NoReturn:
    """Serve one daemon after the other; `serve` tells whether it said anything.

    It is given what can be read once the harness has ended, where the system has that.
    """
    parent, wait_s = os.getppid(), _WAIT_FIRST_S
    harness = _watch_process(parent)
    while os.getppid() == parent:
        try:
            wire = start.reach(home)
        except start.StartError:
            wire = None
        if wire is not None and serve(wire, harness):
            wait_s = _WAIT_FIRST_S
        if is_output_lost(None, harness, wait_s):
            break
        wait_s = min(2 * wait_s, _WAIT_MOST_S)
    os._exit(0)


def _watch_process(pid: int) -> int | None:
    try:
        return start.above_stdio(os.pidfd_open(pid))
    except (OSError, AttributeError):
        return None


def is_output_lost(wire: int | None, harness: int | None, limit_s: float | None = None) -> bool:
    """Wait until the daemon says something; true when the harness has gone, or nobody can read our output."""
    waiting = select.poll()
    if wire is not None:
        waiting.register(wire, select.POLLIN)
    if harness is not None:
        waiting.register(harness, select.POLLIN)
    waiting.register(1, 0)
    lost = select.POLLERR | select.POLLHUP | select.POLLNVAL
    found = waiting.poll(None if limit_s is None else limit_s * 1000)
    return any(fd == harness or (fd == 1 and event & lost) for fd, event in found)
