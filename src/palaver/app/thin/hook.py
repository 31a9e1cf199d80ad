"""`pal hook`, `pal monitor` and `pal rewake` in Python; native/hook.c and native/monitor.c are the same in C.

A harness waits for a hook. So a hook is silent, always ends with 0, writes its reply whole or not at all, and
starts nothing. The first hook that waits for a hung daemon to its limit leaves a mark. While the mark is
fresh, other hooks try only briefly; the daemon removes it with the next hook that it serves. A monitor
outlives the daemon, waits for the next one, and ends with its harness. `rewake` is a monitor that writes
once; its output is given to the model when it ends with status 2.

If the daemon dies before a hook has its answer, the hook repeats its request to the next daemon, within its
limit. A file in `hooks/`, named after the request key, tells a later daemon the outcome: `.lost` if the
answer was not and will not be written, `.said` if it was written and has messages in it (frame `M`).
"""

from __future__ import annotations

import os
import select
import signal
import time

from palaver.app.thin.call import MalformedFrameError, ThinFrameReader, frame, write_all
from palaver.client import start

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

GREETING = b"PALH"
_INPUT_LIMIT_BYTES = 8 * 1024 * 1024  # tool results are included
_LIMIT_S = 1.0
_LONG_LIMIT_S = 2.0  # at the start of a session, when a name may have to be assigned
_TRY_S = 0.05  # while the daemon is known to be slow
_SLOW_S = 30.0  # how long a mark counts as fresh
_PERSON_LIMIT_S = 3700  # while a person is asked, and only if the daemon says so
_RING_AGAIN_S = 0.1  # a signal just before a blocking call does not interrupt that call: the next one does
_EARLY_S = 0.001  # the clock of the timer may differ from the one that we read
_PIECE_BYTES = 65536
_AGAIN_S = 0.02  # between two looks for the next daemon
_WAIT_FIRST_S = 0.05
_WAIT_MOST_S = 0.5


class HookTimeLimit:
    """The time limit of a hook, and the mark in the home that the daemon is slow."""

    def __init__(self, words: list[bytes]) -> None:
        """Start the time limit; `words` are the arguments from the verb on."""
        self._mark = ""  # set once the hook waits for the daemon
        self._left_s = (_LONG_LIMIT_S if words[2:3] == [b"SessionStart"] else _LIMIT_S) - _TRY_S
        self._has_tried = False
        self._has_answer = False  # that the answer is here, or is about to: it is written whatever the time
        self._is_late = False  # the limit came meanwhile
        self.has_messages = False  # in the answer
        self.outcome = ""  # the path of the file for the outcome, once a daemon may have made an answer
        signal.signal(signal.SIGALRM, lambda *_: self._ring())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})  # the parent process may have blocked it
        # A closed pipe is an `OSError` then, which ends the hook silently with status 0.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # A short try first: while the daemon is known to be slow, the harness waits no longer than this.
        self._ring_after(_TRY_S)

    def begin_asking(self, home: str) -> None:
        """Start waiting for the daemon. A slow input has already used up the first short try."""
        self._mark = f"{home}/slow"
        if self._has_tried and self._is_known_slow():
            self._left_s = 0
            self._ring_after(_TRY_S)

    def wait_for_person(self, limit_s: int) -> None:
        """Wait for a person up to `limit_s`; a timeout then leaves no mark. There is always a limit."""
        # A slow person does not make the daemon slow, and such an answer has no message whose fate matters.
        self._mark = self.outcome = ""
        self._ring_after(max(1, min(limit_s, _PERSON_LIMIT_S)))
        self._has_tried = True

    def await_daemon(self, *, is_there: bool, home: str) -> None:
        """Note whether a daemon is connected: one that is not there is not slow."""
        self._mark = f"{home}/slow" if is_there else ""

    def tell(self, wire: start.Socket) -> bool:
        """Tell the daemon that its answer is here; from then on there is no limit. False if it is lost."""
        self._has_answer = True
        try:
            wire.sendall(frame(b"A"))
        except OSError:
            self._has_answer = False
            if self._is_late:
                self.give_up()
            return False
        return True

    def give_up(self) -> NoReturn:
        """End without an answer."""
        if self.outcome:
            _touch(f"{self.outcome}.lost")
        os._exit(0)

    def _ring_after(self, seconds: float) -> None:
        self._due_s = time.monotonic() + seconds - _EARLY_S
        signal.setitimer(signal.ITIMER_REAL, seconds, _RING_AGAIN_S)

    def _ring(self) -> None:
        if time.monotonic() < self._due_s:
            return  # a repeat that came with its signal, before the timer was set again
        if self._has_answer:
            self._is_late = True
            return
        if not self._left_s or (self._mark and not self._has_tried and self._is_known_slow()):
            self.give_up()
        if not self._has_tried:
            self._has_tried = True
            self._ring_after(self._left_s)
            return
        if self._mark:
            _touch(self._mark)
        self.give_up()

    def _is_known_slow(self) -> bool:
        try:
            return 0 <= time.time() - os.stat(self._mark).st_mtime < _SLOW_S  # noqa: PTH116 - pathlib is slow
        except OSError:
            return False


def _touch(path: str) -> None:
    # O_TRUNC sets the time of an existing file; O_NOFOLLOW keeps it from emptying the file that a link names.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError:
        return


def run_hook(home: str, fields: list[tuple[bytes, bytes]], limit: HookTimeLimit) -> NoReturn:
    """Send the hook to a running daemon, and write out its reply."""
    try:
        content = _read_input()
        limit.begin_asking(home)
        answer = _ask(home, [*fields, (b"b", content)], limit)
        if not write_all(1, memoryview(answer)) and limit.has_messages:
            _touch(f"{home}/hooks/{fields[0][1].hex()}.said")
    except (OSError, MalformedFrameError):
        pass  # a hook must never disturb its harness
    finally:
        os._exit(0)


def _read_input() -> bytes:
    """Read the harness's input to its end, even if it is too long, so that its writer sees no closed pipe."""
    content = bytearray()
    # At a terminal no harness ends the input, and the read would wait for the user.
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
    """Wait for more input, even if another process made it non-blocking."""
    while True:
        try:
            return os.read(0, _PIECE_BYTES)
        except BlockingIOError:
            select.select([0], [], [])


def _ask(home: str, fields: list[tuple[bytes, bytes]], limit: HookTimeLimit) -> bytes:
    """Return the answer, once the daemon knows that it arrived. If a daemon is lost, ask the next one."""
    try:
        wire = start.reach(home)
    except start.StartError:
        return b""
    if wire is None:
        return b""
    key = fields[0][1]
    limit.outcome = f"{home}/hooks/{key.hex()}"
    while (answer := _ask_once(wire, fields, limit)) is None:
        if not limit.outcome:  # a person is asked: no message is in the answer
            return b""
        wire.close()
        limit.await_daemon(is_there=False, home=home)
        wire = _reach_next(home)
        limit.await_daemon(is_there=True, home=home)
        # The field tells the next daemon that an answer may have been made already.
        fields = [(tag, value) for tag, value in fields if tag != b"r"] + [(b"r", b"again")]
    return answer


def _ask_once(wire: start.Socket, fields: list[tuple[bytes, bytes]], limit: HookTimeLimit) -> bytes | None:
    """Return the answer of one daemon; None if that is lost before it knows that the answer arrived."""
    frames = ThinFrameReader()
    kind, answer = b"W", b""
    try:
        wire.sendall(GREETING + frame(b"R", b"".join(frame(tag, value) for tag, value in fields)))
        while kind == b"W":
            if len(answer) == 4:
                limit.wait_for_person(int.from_bytes(answer, "big"))
            while (taken := frames.take()) is None:
                data = wire.recv(_PIECE_BYTES)
                if not data:
                    return None
                frames.feed(data)
            kind, answer = taken
    except OSError:
        return None
    except MalformedFrameError:
        limit.give_up()
    if kind not in (b"H", b"M"):
        limit.give_up()
    limit.has_messages = kind == b"M"
    return b"" if not answer else answer if limit.tell(wire) else None


def _reach_next(home: str) -> start.Socket:
    """Connect to the next daemon as soon as one listens; the limit ends the wait."""
    while True:
        time.sleep(_AGAIN_S)
        try:
            wire = start.reach(home)
        except start.StartError:
            continue
        if wire is not None:
            return wire


def rewake_fields() -> list[tuple[bytes, bytes]]:
    """Return the hook's input as a field.

    Ends at once in a session that prints one reply: it would wait for us.
    """
    content = _read_input()
    if os.environ.get("CLAUDE_CODE_ENTRYPOINT", "sdk").startswith("sdk"):
        os._exit(0)
    return [(b"b", content)]


def run_monitor(home: str, serve: Callable[[start.Socket, int | None], bool]) -> NoReturn:
    """Serve one daemon after another; `serve` returns whether it sent anything.

    It receives a descriptor that is readable once the harness has ended, if the system has one.
    """
    parent, wait_s = os.getppid(), _WAIT_FIRST_S
    harness = _watch_process(parent)
    # The harness is the parent. Once it has ended, the system gives this process another one.
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
    # Only Linux has it. Elsewhere the parent's pid alone shows that the harness has ended.
    except (OSError, AttributeError):
        return None


def is_output_lost(wire: int | None, harness: int | None, limit_s: float | None = None) -> bool:
    """Wait until the daemon sends something; true if the harness has ended, or our output has no reader."""
    waiting = select.poll()
    if wire is not None:
        waiting.register(wire, select.POLLIN)
    if harness is not None:
        waiting.register(harness, select.POLLIN)
    # No event is requested: errors and hangups are always reported, and room for output must not end the
    # wait.
    waiting.register(1, 0)
    lost = select.POLLERR | select.POLLHUP | select.POLLNVAL
    found = waiting.poll(None if limit_s is None else limit_s * 1000)
    return any(fd == harness or (fd == 1 and event & lost) for fd, event in found)
