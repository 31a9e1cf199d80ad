"""A holder's way to the bus: one agent, held across restarts of the daemon. Knows no meaning of requests.

While there is no daemon it tries again, less and less often, and gives up only when the daemon says that the
agent is another's. What was asked on a lost connection fails, and whoever asked says it anew on the next one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain, count, repeat
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.wire import Line, Wire, open_wire
from palaver.clock import SystemClock
from palaver.errors import Disconnected, NotYou, PalaverError, Unavailable
from palaver.home import LIMIT_HOLDER_TRACE_BYTES, TraceFile, trace_path
from palaver.model.lines.holder_ops import AccompanyOp, HoldOp
from palaver.model.lines.wire import Op, op_to_json

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_LONGEST_PAUSE_S: Final = 5.0
_HURRIED_PAUSE_S: Final = 0.1

_logger: Final = logging.getLogger("palaver.holder")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Whose terminal it is."""

    name: str
    secret: str = ""
    seat: str = ""
    role: str = "worker"
    tag: str = ""
    harness: str = ""
    device: str = ""
    unsure: tuple[int, ...] = ()
    """Messages of before of which nobody knows whether they were read."""


_held: Final = msgspec.json.Decoder(Held).decode

OnHeld = Callable[[Held], Awaitable[None]]


class Bus:
    """One connection at a time. `on_held` is awaited after each one was made."""

    def __init__(
        self,
        home: str,
        hold: HoldOp | AccompanyOp,
        on_held: OnHeld,
        on_push: Callable[[Line], None],
        start: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`start` starts a daemon where there is none, and says whether it did; without it we do it here."""
        self._home = home
        self._start = start
        self._hold = hold
        self._on_held = on_held
        self._on_push = on_push
        self._numbers = count(1)
        self._wire: Wire | None = None
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._is_known = False
        self._is_lost = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_hurried = False
        self.connections = 0
        """How many there have been: what was numbered on one of them means nothing on the next."""
        self.held: Held | None = None
        """What the first answer said; None until then."""
        self._trace: TraceFile | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the daemon knows of us now: it has said who we are on the connection that there is."""
        return self._is_known

    def trace(self, seqs: Sequence[int], step: str, lane: str, detail: str = "", *, name: str = "") -> None:
        """Note a step of messages for `pal trace`; `name` is their recipient, else the agent that is held."""
        if self.held is None:
            return
        if self._trace is None:
            path = trace_path(Path(self._home), self.held.name)
            self._trace = TraceFile(path, LIMIT_HOLDER_TRACE_BYTES, SystemClock().now_ms)
        self._trace.note(name or self.held.name, seqs, step, lane, detail)

    async def run(self) -> None:
        """Hold the agent until cancelled. Raises what the first attempt is refused with; later NotYou.

        Who is told that the agent is another's would be told so for ever: its secret does not change.
        """
        pauses_s = chain(_PAUSES_S, repeat(_LONGEST_PAUSE_S))
        while True:
            try:
                await self._connect()
                pauses_s = chain(_PAUSES_S, repeat(_LONGEST_PAUSE_S))
                assert self.held is not None
                await self._on_held(self.held)
                await self._is_lost.wait()
            except Unavailable:
                self.drop()
                await self._pause(next(pauses_s))
            except PalaverError as refusal:
                if self.held is None or isinstance(refusal, NotYou):
                    raise
                _logger.warning("refused: %s: %s", refusal.code, refusal)
                self.drop()
                await self._pause(_LONGEST_PAUSE_S)
            finally:
                self.drop()

    def hurry(self) -> None:
        """Try often from now on: there is little time left."""
        self._is_hurried = True
        self._hurry.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _HURRIED_PAUSE_S) if self._is_hurried else seconds):
                await self._hurry.wait()
        self._hurry.clear()

    async def _connect(self) -> None:
        self._is_lost.clear()
        self._wire = await self._open_wire()
        self.connections += 1
        hold = self._hold
        if self.held is not None and isinstance(hold, HoldOp):
            hold = msgspec.structs.replace(hold, name=self.held.name, secret=self.held.secret, ticket="")
        answer = _held(await self.ask(hold))
        secret = hold.secret if isinstance(hold, HoldOp) else ""
        self.held = msgspec.structs.replace(answer, secret=answer.secret or secret)
        self._is_known = True

    async def _open_wire(self) -> Wire:
        try:
            return await open_wire(self._home, self._hear, self._lose, can_start=self._start is None)
        except Disconnected:
            # Who has little time left, because the agent has ended, leaves starting to others.
            if self._start is None or self._is_hurried or not await self._start():
                raise
        return await open_wire(self._home, self._hear, self._lose, can_start=False)

    def take_up(self, held: Held) -> None:
        """Go on as who was held before, by an earlier version of this process."""
        self.held = held

    def resized(self, cols: int, rows: int) -> None:
        """Say with the next connection how large the terminal is."""
        assert isinstance(self._hold, HoldOp)  # nobody else has one
        self._hold = msgspec.structs.replace(self._hold, cols=cols, rows=rows)

    def bind(self, session: str) -> None:
        """Say which session of its harness the agent is in, now and with every connection to come."""
        if session == self._hold.session or isinstance(self._hold, AccompanyOp):
            return
        self._hold = msgspec.structs.replace(self._hold, session=session)
        if self._wire is not None and self.held is not None:
            held = self.held
            self.mention(msgspec.structs.replace(self._hold, name=held.name, secret=held.secret, ticket=""))

    def ask(self, request: Op) -> "asyncio.Future[msgspec.Raw]":
        """Send a request; the future gives its answer, its refusal, or Disconnected when it is lost."""
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        if self._wire is None:
            answer.set_exception(Disconnected("the daemon is away"))
            return answer
        number = next(self._numbers)
        self._calls[number] = answer
        self._wire.write(op_to_json(number, request))
        return answer

    def mention(self, request: Op) -> None:
        """Send a request whose answer matters to nobody; lost with the connection."""
        self.ask(request).add_done_callback(_pass_over)

    def drop(self) -> None:
        """End the connection; `run` makes the next one. Offers that were not answered are in doubt."""
        wire, self._wire = self._wire, None
        self._is_known = False
        if wire is not None and wire.error is None:
            wire.close()
        self._fail(Disconnected("the connection was closed"))
        self._is_lost.set()

    def _hear(self, line: Line) -> None:
        if line.push:
            self._on_push(line)
        elif (answer := self._calls.pop(line.req, None)) is not None and not answer.done():
            if line.error:
                answer.set_exception(line.refusal)
            else:
                answer.set_result(line.ok)

    def _lose(self, wire: Wire) -> None:
        if wire is self._wire:
            self._wire = None
            self._is_known = False
            self._fail(wire.error or Disconnected("the daemon has gone"))
            self._is_lost.set()

    def _fail(self, error: PalaverError) -> None:
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(error)


def _pass_over(answer: "asyncio.Future[msgspec.Raw]") -> None:
    if not answer.cancelled():
        answer.exception()  # asked for, so that nobody complains that nobody asked
