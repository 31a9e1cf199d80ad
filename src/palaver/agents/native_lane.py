"""A native integration as a lane of the bus.

The messages of an offer are sent as one text, with a key that proves its arrival. One offer at a time.
Outcomes are kept until the daemon has them, also across connections. Putting the text into the harness is
left to the `carry` function.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from palaver.agents.bus import Bus
from palaver.agents.terminal.gates import Gate
from palaver.agents.typing.steps import Answer, Done
from palaver.agents.work import Work
from palaver.client.wire import Line
from palaver.errors import PalaverError
from palaver.model.delivery import Grade
from palaver.model.forms import Line as FencedLine
from palaver.model.forms import format_injection
from palaver.model.last_report import Outcome
from palaver.model.lines.holder_ops import AnswerOp, GateOp, LaneOp

_LIMIT_DOUBTFUL: Final = 100

_logger: Final = logging.getLogger("palaver.holder")

Carry = Callable[[str, str], Awaitable[Done]]
"""Takes a text and its key to the harness, and returns the result."""


class Offered(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One offered message, as the daemon sends it."""

    seq: int
    id: str
    sender: str
    text: str
    delivered_to: tuple[str, ...] = ()
    intent: str | None = None
    thread: str | None = None
    bare: bool = False


class _Opened(msgspec.Struct, frozen=True):
    lane: int


_offered: Final = msgspec.json.Decoder(tuple[Offered, ...]).decode
_opened: Final = msgspec.json.Decoder(_Opened).decode


class NativeLane:
    """Takes offers and reports outcomes. `carry` is called for one offer at a time."""

    def __init__(self, bus: Bus, carry: Carry, on_change: Callable[[], None], *, name: str = "") -> None:
        """`on_change` is called whenever an offer ends.

        `name` is the lane's agent, by default the held agent.
        """
        self._bus = bus
        self._name = name
        self._carry = carry
        self._on_change = on_change
        self._number = 0
        self._in_hand: tuple[int, int] | None = None
        """The lane and the number of the offer in progress."""
        self._was_open = False
        """Whether the lane was open before.

        Then it knows all offers since: an unknown one never arrived here.
        """
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._opening = asyncio.Lock()
        self._outcomes: list[Outcome] = []
        self._doubtful: dict[str, tuple[int, ...]] = {}
        """The seqs of messages sent without proof of arrival, by key; when full, the oldest are dropped."""
        self._level: tuple[Gate, bool] | None = None
        self._told: tuple[Gate, bool] | None = None
        self._saying = Work()
        self._is_closed = False
        self._early: list[tuple[Line, Callable[[Line], None]]] | None = None
        """Offers that arrived while the lane was being opened; None otherwise."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress."""
        return self._in_hand is None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet."""
        return tuple(self._outcomes)

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self._outcomes.extend(outcomes)
        self._was_open = bool(outcomes)

    def has(self, lane: int) -> bool:
        """Return whether an offer with this lane number is for this lane."""
        return self._number == lane != 0

    # Connections

    def lose(self) -> None:
        """Forget the lane number: it was valid on the lost connection only."""
        self._number = 0

    async def open(self) -> None:
        """Open the lane on this connection, once no offer is in progress.

        Earlier outcomes are reported with it.

        An open lane stays as it is.
        """
        async with self._opening:
            await self._at_rest.wait()
            if not self._number and not self._is_closed and self._bus.is_connected:
                await self._open()

    async def try_open(self) -> None:
        """Open the lane as `open` does; if the connection is lost meanwhile, the next one opens it."""
        try:
            await self.open()
        except PalaverError as error:
            _logger.info("a native lane waits for the daemon: %s", error)

    async def _open(self) -> None:
        told = self.outcomes
        early: list[tuple[Line, Callable[[Line], None]]] = []
        self._early = early
        try:
            answer = await self._bus.ask(
                LaneOp(kind="native", name=self._name, remembers=self._was_open, outcomes=told)
            )
        finally:
            self._early = None
        self._forget(told)
        self._number, self._told, self._was_open = _opened(answer).lane, None, True
        self._tell_level()
        for line, otherwise in early:
            self.claim(line, otherwise)

    def set_level(self, gate: Gate, *, is_paused: bool) -> None:
        """Set whether a message can be delivered now.

        It is reported at every change and with every new lane.
        """
        self._level = gate, is_paused
        self._tell_level()

    def _tell_level(self) -> None:
        if not self._number or self._level is None or self._level == self._told:
            return
        gate, is_paused = self._told = self._level
        self._bus.mention(GateOp(lane=self._number, open=gate.is_open, paused=is_paused, reason=gate.reason))

    def end(self) -> None:
        """End the lane after the agent has exited.

        An offer in progress stays unconfirmed, without a report.
        """
        self._number, self._is_closed = 0, True
        self._saying.cancel()

    def close(self) -> None:
        """Close the lane because the harness cannot be reached.

        Report an offer in progress as unconfirmed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        in_hand = self._in_hand
        self._saying.cancel()
        if self._number:
            if in_hand is not None and in_hand[0] == self._number:
                lane, offer = in_hand
                self._bus.mention(AnswerOp(lane=lane, offer=offer, answer=Answer.UNCONFIRMED))
            self._number = 0
            self._bus.drop()  # A lane lasts as long as its connection; the next one has no such lane.

    # Offers

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer for this lane, and pass any other to `otherwise`.

        The first offer can arrive together with the lane number, so offers wait while the lane is being
        opened.
        """
        if self._early is not None:
            self._early.append((line, otherwise))
        elif self.has(line.lane):
            self.take(line)
        else:
            otherwise(line)

    def take(self, line: Line) -> None:
        """Start an offer. An offer that cannot be read is refused, and nothing is carried."""
        try:
            messages = _offered(line.messages)
        except msgspec.DecodeError as error:
            _logger.warning("an offer cannot be read: %s", error)
            reason = "the holder cannot read it"
            self._bus.mention(AnswerOp(lane=line.lane, offer=line.offer, answer="refused", reason=reason))
            return
        if self._in_hand is not None:  # The daemon has stopped waiting for the first offer.
            reason = "another message is in hand"
            self._bus.mention(AnswerOp(lane=line.lane, offer=line.offer, answer="deferred", reason=reason))
            return
        self._in_hand = line.lane, line.offer
        self._trace(messages, "received")
        self._at_rest.clear()
        self._saying.spawn(self._bring(line.lane, line.offer, messages))

    async def _bring(self, lane: int, offer: int, messages: tuple[Offered, ...]) -> None:
        assert self._bus.held is not None
        done, key = Done(Answer.UNCONFIRMED), f"pal-{messages[0].id}-{offer}"
        try:
            text = fenced(messages, self._name or self._bus.held.name)
            done = await self._carry(text, key)
        finally:
            self._in_hand = None
            if done.answer is Answer.UNCONFIRMED:
                self._doubt(key, tuple(message.seq for message in messages))
            self._end(lane, offer, messages, done)
            self._at_rest.set()

    def _trace(self, messages: tuple[Offered, ...], step: str, detail: str = "") -> None:
        self._bus.trace([message.seq for message in messages], step, "native", detail, name=self._name)

    def _end(self, lane: int, offer: int, messages: tuple[Offered, ...], done: Done) -> None:
        self._trace(messages, f"ended {done.answer}", done.reason or done.grade or "")
        self._on_change()  # Report the level before the outcome: the outcome triggers the next offer.
        outcome = Outcome(
            messages=tuple(message.seq for message in messages), answer=done.answer, grade=done.grade or ""
        )
        self._outcomes.append(outcome)
        if lane == self._number and not self._is_closed:
            self._saying.spawn(self._answer(lane, offer, outcome, done.reason))

    def _doubt(self, key: str, messages: tuple[int, ...]) -> None:
        self._doubtful[key] = messages
        while len(self._doubtful) > _LIMIT_DOUBTFUL:
            del self._doubtful[next(iter(self._doubtful))]

    def prove(self, key: str) -> None:
        """Report that an unconfirmed message has reached the model after all.

        Late outcomes are reported when a lane is opened, so reconnect if no offer is in progress.
        """
        messages = self._doubtful.pop(key, None)
        if messages is None or self._is_closed:
            return
        self._outcomes.append(Outcome(messages=messages, answer=Answer.SEEN, grade=Grade.CONTEXT))
        if self._in_hand is None:
            self._bus.drop()

    async def _answer(self, lane: int, offer: int, outcome: Outcome, reason: str) -> None:
        request = AnswerOp(lane=lane, offer=offer, answer=outcome.answer, grade=outcome.grade, reason=reason)
        try:
            await self._bus.ask(request)
        except PalaverError as error:  # It is reported again when the next lane is opened.
            _logger.info("an answer was not taken: %s: %s", error.code, error)
        else:
            self._forget((outcome,))
            if self._outcomes and self._in_hand is None and not self._is_closed:
                # Reconnect: outcomes that were proven meanwhile are reported with the next lane.
                self._bus.drop()

    async def settle(self) -> None:
        """Wait until all outcomes are reported, or the connection is lost."""
        await self._saying.settle()

    def _forget(self, told: tuple[Outcome, ...]) -> None:
        self._outcomes = [one for one in self._outcomes if not any(one is known for known in told)]


def fenced(messages: tuple[Offered, ...], recipient: str) -> str:
    """Format messages for an agent; text from the user's input bar is added without a fence."""
    lines = [
        FencedLine(
            seq=message.seq,
            sender=message.sender,
            recipient=recipient,
            others=max(0, len(message.delivered_to) - 1),
            intent=message.intent,
            thread=message.thread,
            text=message.text,
        )
        for message in messages
        if not message.bare
    ]
    parts = [format_injection(lines) if lines else "", *(one.text for one in messages if one.bare)]
    return "\n\n".join(filter(None, parts))
