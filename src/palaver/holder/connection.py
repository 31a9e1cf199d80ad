"""A holder's connection to the daemon: holds one agent across daemon restarts. Does not interpret requests.

While no daemon is reachable, it retries at increasing intervals. It gives up only when the daemon says that
another process has the agent. Requests on a lost connection fail; the caller must repeat them on the next
one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain, count, repeat
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.wire import ReplyLine, Wire, open_wire
from palaver.clock import SystemClock
from palaver.errors import Disconnected, NotYou, PalaverError, Unavailable
from palaver.home import LIMIT_HOLDER_TRACE_BYTES, TraceFile, trace_path
from palaver.protocol.lines import AccompanyOp, HoldOp, Op, op_to_json

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts. The first are short, because a daemon that is being replaced is soon back."""
_LONGEST_PAUSE_S: Final = 5.0
"""Seconds. `pal stop` and `pal attach` wait ten seconds for a holder, so it must try more often than that."""
_HURRIED_PAUSE_S: Final = 0.1
"""Seconds. The longest pause once the agent has exited: only its exit is left to report."""

_logger: Final = logging.getLogger("palaver.holder")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that this process holds, as the daemon knows it."""

    name: str
    secret: str = ""
    seat: str = ""
    role: str = "worker"
    tag: str = ""
    harness: str = ""
    device: str = ""
    unsure: tuple[int, ...] = ()
    """The seqs of earlier messages whose outcome is unconfirmed."""


_held: Final = msgspec.json.Decoder(Held).decode

OnHeld = Callable[[Held], Awaitable[None]]


class HolderConnection:
    """At most one connection at a time. `on_held` is awaited after each new connection."""

    def __init__(
        self,
        home: str,
        hold: HoldOp | AccompanyOp,
        on_held: OnHeld,
        on_push: Callable[[ReplyLine], None],
        start: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`start` starts a daemon and returns whether it did; by default connecting starts one."""
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
        """The number of connections so far. Numbers of lanes and offers are valid on one connection only."""
        self.held: Held | None = None
        """The result of the latest hold request; None before the first."""
        self._trace: TraceFile | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the daemon has accepted the hold request on the current connection."""
        return self._is_known

    def trace(self, seqs: Sequence[int], step: str, lane: str, detail: str = "", *, name: str = "") -> None:
        """Record a delivery step for `pal trace`; `name` is the recipient, by default the held agent."""
        if self.held is None:
            return
        # Its file is named after the agent, whose name is not known before the first hold.
        if self._trace is None:
            path = trace_path(Path(self._home), self.held.name)
            self._trace = TraceFile(path, LIMIT_HOLDER_TRACE_BYTES, SystemClock().now_ms)
        self._trace.note(name or self.held.name, seqs, step, lane, detail)

    async def run(self) -> None:
        """Hold the agent until cancelled, and reconnect as needed.

        Raises any refusal until the agent was held once; after that only `NotYou`. `NotYou` is permanent: the
        secret of the agent never changes, so retrying cannot succeed.
        """
        pauses_s = chain(_PAUSES_S, repeat(_LONGEST_PAUSE_S))
        while True:
            try:
                await self._connect()
                assert self.held is not None
                await self._on_held(self.held)
                # Only now: if an accepted hold is always followed by a failure, the pauses must grow.
                pauses_s = chain(_PAUSES_S, repeat(_LONGEST_PAUSE_S))
                await self._is_lost.wait()
            except Unavailable:
                self.drop()  # Not only below: during the pause no request may go to this connection.
                await self._pause(next(pauses_s))
            except PalaverError as refusal:
                # A refusal of the first hold is the answer to the user. Later ones may end with a newer
                # daemon, and the agent runs anyway.
                if self.held is None or isinstance(refusal, NotYou):
                    raise
                _logger.warning("refused: %s: %s", refusal.code, refusal)
                self.drop()
                await self._pause(_LONGEST_PAUSE_S)
            finally:
                self.drop()

    def hurry(self) -> None:
        """Retry at short intervals from now on, because little time is left."""
        self._is_hurried = True
        self._hurry.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _HURRIED_PAUSE_S) if self._is_hurried else seconds):
                await self._hurry.wait()
        # One hurried call ends one pause; the short intervals remain because of `_is_hurried`.
        self._hurry.clear()

    async def _connect(self) -> None:
        # Before the connection exists: a loss during the hold request must not be overlooked.
        self._is_lost.clear()
        self._wire = await self._open_wire()
        self.connections += 1
        hold = self._hold
        if self.held is not None and isinstance(hold, HoldOp):  # A ticket is valid once; then the secret is.
            hold = msgspec.structs.replace(hold, name=self.held.name, secret=self.held.secret, ticket="")
        answer = _held(await self.ask(hold))
        secret = hold.secret if isinstance(hold, HoldOp) else ""
        self.held = msgspec.structs.replace(answer, secret=answer.secret or secret)
        self._is_known = True

    async def _open_wire(self) -> Wire:
        try:
            return await open_wire(self._home, self._hear, self._lose, can_start=self._start is None)
        except Disconnected:
            # If the agent has exited, there is too little time to start a daemon: leave it to others.
            if self._start is None or self._is_hurried or not await self._start():
                raise
        return await open_wire(self._home, self._hear, self._lose, can_start=False)

    def take_up(self, held: Held) -> None:
        """Continue with the agent that an earlier version of this process held."""
        self.held = held

    def resized(self, cols: int, rows: int) -> None:
        """Set the size of the terminal that the next connection reports."""
        assert isinstance(self._hold, HoldOp)  # Only a holder has a terminal.
        self._hold = msgspec.structs.replace(self._hold, cols=cols, rows=rows)

    def bind(self, session: str) -> None:
        """Set the harness session of the agent: report it now if connected, and on every later connection.

        Does nothing for a companion: its session is fixed.
        """
        if session == self._hold.session or isinstance(self._hold, AccompanyOp):
            return
        self._hold = msgspec.structs.replace(self._hold, session=session)
        if self._wire is not None and self.held is not None:
            held = self.held
            self.mention(msgspec.structs.replace(self._hold, name=held.name, secret=held.secret, ticket=""))

    def ask(self, request: Op) -> "asyncio.Future[msgspec.Raw]":
        """Send a request and return a future for its result.

        The future raises the refusal, or Disconnected if the connection is lost.
        """
        # A future and no coroutine: the request is sent in the order of the calls, also if the result is
        # awaited late or never.
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        if self._wire is None:
            answer.set_exception(Disconnected("there is no connection to the daemon"))
            return answer
        number = next(self._numbers)
        self._calls[number] = answer
        self._wire.write(op_to_json(number, request))
        return answer

    def mention(self, request: Op) -> None:
        """Send a request and ignore its result. It is lost if the connection is lost."""
        self.ask(request).add_done_callback(_pass_over)

    def drop(self) -> None:
        """Close the connection; `run` makes the next one. Offers without an outcome become unconfirmed."""
        wire, self._wire = self._wire, None
        self._is_known = False
        # A wire with an error has lost its transport already.
        if wire is not None and wire.error is None:
            wire.close()
        self._fail(Disconnected("the connection was closed"))
        self._is_lost.set()

    def _hear(self, line: ReplyLine) -> None:
        if line.push:
            self._on_push(line)
        # A cancelled caller has cancelled its future too, and setting a result there would raise an error.
        elif (answer := self._calls.pop(line.req, None)) is not None and not answer.done():
            if line.error:
                answer.set_exception(line.refusal)
            else:
                answer.set_result(line.ok)

    def _lose(self, wire: Wire) -> None:
        # A connection that `drop` closed reports its end late, maybe when the next one is open.
        if wire is self._wire:
            self._wire = None
            self._is_known = False
            self._fail(wire.error or Disconnected("the connection to the daemon was lost"))
            self._is_lost.set()

    def _fail(self, error: PalaverError) -> None:
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(error)


def _pass_over(answer: "asyncio.Future[msgspec.Raw]") -> None:
    if not answer.cancelled():
        answer.exception()  # Retrieve the exception, or asyncio logs that it was never retrieved.
