"""Questions about the bus at a seq of the past: passed on to processes that fold the log up to there.

A process, because folding a long log takes minutes of processor time and a lot of memory. It keeps its state
between two questions, so that a step forward or back takes no time. `daemon/past.py` is the program that it
runs; the lines between both are defined here.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from palaver.clock import CallLater, Timer
from palaver.errors import BadRequest, ShuttingDown, TooSlow, Unavailable, error_from_wire
from palaver.protocol.views import AnyAsk
from palaver.state.fold import LIMIT_UNDO

LIMIT_PROCESSES: Final = 2
LIMIT_WAITING: Final = 64
"""Questions that may wait for one process; the next one is refused with TooSlow."""
IDLE_S: Final = 300.0
"""Seconds after its last question until a process ends: its state uses memory."""
SILENT_S: Final = 120.0
"""Seconds without progress until a process is killed. It may wait long for a processor: see its priority."""

_LIMIT_LINE_BYTES: Final = 64 * 1024 * 1024
"""An answer is one line, and asyncio allows only 64 KiB by default."""
_START_STEPS: Final = 5_000
"""The start of a process takes about as long as folding this many events."""
_TRIES: Final = 2

_logger: Final = logging.getLogger("palaver")


# --------------------
# The lines between the daemon and the process.


class PastLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line to the process: a question, or that the answer to one is no longer wanted."""

    id: int
    ask: AnyAsk | None = None


class PastReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line from the process: an answer or an error for one question, or its progress."""

    id: int = 0
    """0 for progress."""
    answer: msgspec.Raw = msgspec.Raw(b"null")
    code: str = ""
    """The code of an error; then `text` is its sentence."""
    text: str = ""
    details: Mapping[str, object] = msgspec.field(default_factory=dict)
    seq: int = 0
    """The seq that the fold has reached."""
    kept: tuple[int, ...] = ()
    """Other seqs whose states are kept: a fold can begin there."""
    trace: str = ""
    """Where an unexpected error happened, for the daemon's log."""


class PastProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a question has come: the log is folded up to `seq`, and has to be up to `at`."""

    at: int
    seq: int


encode_past: Final = msgspec.json.Encoder().encode
decode_past_line: Final = msgspec.json.Decoder(PastLine).decode
_decode_reply: Final = msgspec.json.Decoder(PastReply).decode

Report = Callable[[PastProgress], None]


class ProcessEndedError(Exception):
    """The process has ended before its answer."""


# --------------------
# One process.


@dataclass(frozen=True, slots=True)
class _OpenQuestion:
    """A question without an answer."""

    at: int
    reply: asyncio.Future[bytes]
    report: Report | None


class PastProcess:
    """A process with the state of the bus at a seq. It answers its questions one after the other."""

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        call_later: CallLater,
        ended: Callable[["PastProcess"], None],
    ) -> None:
        """`ended` is called once it takes no more questions."""
        self.at = 0
        """The seq of its newest question."""
        self.seq = 0
        """The seq that its fold has reached."""
        self.kept: tuple[int, ...] = ()
        """Other seqs whose states it has."""
        self._command = command
        self._call_later = call_later
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, _OpenQuestion] = {}
        self._unsent: list[bytes] = []
        self._last_id = 0
        self._is_over = False
        self._timer: Timer = call_later(SILENT_S, self._on_silence)

    @property
    def pid(self) -> int:
        """The id of the process; 0 before its start."""
        return 0 if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """The number of questions without an answer."""
        return len(self._waiting)

    def steps_to(self, at: int) -> int:
        """Return about how many events it has to fold before it can answer a question about a seq."""
        steps_left = max(0, self.at - self.seq) if self._waiting else 0
        return steps_left + steps_between(self.at, at, self.kept)

    async def answer(self, ask: AnyAsk, report: Report | None = None) -> bytes:
        """Return the answer as JSON. Raises the error of the process, or ProcessEndedError."""
        if len(self._waiting) >= LIMIT_WAITING:
            raise TooSlow("too many questions about the past are waiting; try again")
        self._last_id += 1
        # Set before the answer: the choice of a process for the next question counts on it.
        number, self.at = self._last_id, ask.at
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            # The present timer may be the one that ends an idle process.
            self._set_timer(SILENT_S, self._on_silence)
        self._waiting[number] = _OpenQuestion(ask.at, reply, report)
        self._send(PastLine(id=number, ask=ask))
        try:
            return await reply
        finally:
            if self._waiting.pop(number, None) is not None:  # The caller no longer waits.
                self._send(PastLine(id=number))
                self._rest_if_done()

    async def run(self) -> None:
        """Start the process, and pass on its replies until it ends."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
                limit=_LIMIT_LINE_BYTES,
            )
            # `end` may have been called while the process was started, and had nothing to kill then.
            if not self._is_over:
                await self._listen(self._process)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            _logger.error("the process that shows the past failed: %s", error)
        finally:
            self.end()
            if self._process is not None:
                assert self._process.stdin is not None
                self._process.stdin.close()
                await self._process.wait()

    def end(self, trouble: Exception | None = None) -> None:
        """Kill the process. Open questions fail with this error, or ProcessEndedError."""
        # Also at a repeat: the first call may have come before the process existed.
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
        if self._is_over:
            return
        self._is_over = True
        self._timer.cancel()
        # Emptied first, so that `answer` does not report each question to the process as given up.
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.reply.done():
                one.reply.set_exception(trouble or ProcessEndedError())
        self._ended(self)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        # No await since the process exists: `_send` now writes directly, and later lines must not overtake
        # these.
        for line in self._unsent:
            process.stdin.write(line)
        self._unsent.clear()
        while line := await process.stdout.readline():
            self._hear(_decode_reply(line))

    def _hear(self, reply: PastReply) -> None:
        self.seq, self.kept = reply.seq, reply.kept
        # Each line is a sign of life. Without a question the timer is the one that ends an idle process.
        if self._waiting:
            self._set_timer(SILENT_S, self._on_silence)
        if reply.trace:
            _logger.error("the process that shows the past failed: %s", reply.trace)
        if not reply.id:
            for one in self._waiting.values():
                if one.report is not None:
                    one.report(PastProgress(at=one.at, seq=reply.seq))
            return
        found = self._waiting.pop(reply.id, None)
        if found is None or found.reply.done():  # The caller no longer waits.
            return
        if reply.code:
            found.reply.set_exception(error_from_wire(reply.code, reply.text, reply.details))
        else:
            found.reply.set_result(bytes(reply.answer))
        self._rest_if_done()

    def _rest_if_done(self) -> None:
        if not self._waiting and not self._is_over:
            self._set_timer(IDLE_S, self.end)

    def _on_silence(self) -> None:
        _logger.error("the process that shows the past did not answer for %d s and was stopped", SILENT_S)
        self.end(TooSlow("the past could not be computed in time; try again"))

    def _set_timer(self, seconds: float, ring: Callable[[], None]) -> None:
        self._timer.cancel()
        self._timer = self._call_later(seconds, ring)

    def _send(self, line: PastLine) -> None:
        # Not drained: the questions are small, and `LIMIT_WAITING` bounds their number.
        encoded = encode_past(line) + b"\n"
        if self._process is None or self._process.stdin is None:
            self._unsent.append(encoded)
        elif not self._is_over:
            self._process.stdin.write(encoded)


def steps_between(seq: int, at: int, kept: tuple[int, ...] = ()) -> int:
    """Return about how many events a process at a seq has to fold for another seq.

    A long way back begins at a kept state or at the first event. The events that are folded again for the way
    forward count too: the state that is lost may be needed again.
    """
    if seq - LIMIT_UNDO <= at <= seq:
        return seq - at
    newest = max((one for one in kept if one <= at), default=0)
    if at > seq:
        return at - max(seq, newest)
    return at - newest + seq - max((one for one in kept if one <= seq), default=0)


# --------------------
# All processes of a daemon.


class PastViews:
    """Answers questions about the past with a few processes, which end when they are not needed."""

    def __init__(
        self,
        home: Path,
        *,
        last: Callable[[], int],
        tasks: asyncio.TaskGroup,
        call_later: CallLater,
        program: tuple[str, ...] = (sys.executable, "-I", "-m", "palaver.daemon.past"),
    ) -> None:
        """`last` returns the newest seq of the log. The home is the last argument of the program."""
        self._command = (*program, str(home))
        self._last = last
        self._tasks = tasks
        self._call_later = call_later
        self._processes: list[PastProcess] = []
        self._is_closed = False

    @property
    def processes(self) -> tuple[PastProcess, ...]:
        """The running processes."""
        return tuple(self._processes)

    async def answer(self, question: AnyAsk, report: Report | None = None) -> bytes:
        """Return the answer to a question about a seq of the past, as JSON.

        A first question about a long log takes a while; `report` is called with its progress, about once a
        second. If the process is killed meanwhile, another one begins again, once. Raises BadRequest for a
        seq that is not in the past.
        """
        self._check(question)
        for _ in range(_TRIES):
            if self._is_closed:
                break
            # A killed process has lost nothing but its state, so the question goes to another one.
            with suppress(ProcessEndedError):
                return await self._process_for(question.at).answer(question, report)
        if self._is_closed:
            raise ShuttingDown("the bus is stopping; ask again when it is up")
        raise Unavailable("the process that shows the past was stopped; ask again")

    def close(self) -> None:
        """Kill all processes; open questions and later ones fail."""
        self._is_closed = True
        # A tuple, because each end removes a process from the list.
        for process in self.processes:
            process.end()

    def _check(self, question: AnyAsk) -> None:
        if question.at <= 0:
            raise BadRequest("a question about the past needs a seq above 0")
        if question.at > (last := self._last()):
            raise BadRequest(f"#{question.at} is not in the past: the log ends at #{last}")

    def _process_for(self, at: int) -> PastProcess:
        """Return the process that answers a question about a seq first; start one if that is faster."""
        nearest = min(self._processes, key=lambda process: process.steps_to(at), default=None)
        is_full = len(self._processes) >= LIMIT_PROCESSES
        # A new process has to start and to fold from the first event.
        if nearest is not None and (is_full or nearest.steps_to(at) <= at + _START_STEPS):
            return nearest
        process = PastProcess(self._command, call_later=self._call_later, ended=self._processes.remove)
        self._processes.append(process)
        self._tasks.create_task(process.run())
        return process
