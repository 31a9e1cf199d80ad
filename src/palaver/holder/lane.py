"""The lanes of a holder: its terminal, and the native lane of a harness.

Both take one offer at a time, and keep its outcome until the daemon has it, also across connections.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.client.wire import ReplyLine
from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.harness.base import Done, Gate, TextOutcome
from palaver.holder.connection import HolderConnection
from palaver.holder.tasks import Work
from palaver.home import write_message
from palaver.protocol.agent_text import (
    LIMIT_TERMINAL,
    MessageLine,
    format_injection,
    format_message_file,
    format_reference,
    format_terminal,
)
from palaver.protocol.events import Grade, Outcome
from palaver.protocol.lines import LIMIT_EVIDENCE_BYTES, AnswerOp, GateOp, LaneOp
from palaver.protocol.message import Priority, parse_priority
from palaver.protocol.paths import count_others
from palaver.protocol.requests import raw_from_text
from palaver.terminal.keyboard import has_breaks
from palaver.terminal.typing import TypedText, Typist

_logger: Final = logging.getLogger("palaver.holder")


# --------------------
# What both lanes report: the outcomes of offers, and whether a message can go now.


class LaneReports:
    """The outcomes that the daemon does not have yet, and the level of the gate."""

    def __init__(self, bus: HolderConnection) -> None:
        self._bus = bus
        self._outcomes: list[Outcome] = []
        self._level: tuple[Gate, bool] | None = None
        self._reported: tuple[Gate, bool] | None = None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet."""
        return tuple(self._outcomes)

    def add(self, *outcomes: Outcome) -> None:
        """Keep outcomes until they are reported."""
        self._outcomes.extend(outcomes)

    def forget(self, reported: tuple[Outcome, ...]) -> None:
        """Drop outcomes that the daemon has."""
        # By identity: a message that was offered twice can have two equal outcomes.
        self._outcomes = [one for one in self._outcomes if not any(one is known for known in reported)]

    def set_level(self, gate: Gate, *, is_paused: bool) -> None:
        """Set whether a message can go now. `tell_level` reports it."""
        self._level = gate, is_paused

    def tell_level(self, lane: int, *, again: bool = False) -> None:
        """Report the level on a lane if it has changed, or `again` in any case. Lane 0 means no open lane."""
        if again:
            self._reported = None
        # The screen is checked many times a second: only changes are worth a line.
        if not lane or self._level is None or self._level == self._reported:
            return
        # A report that is lost with its connection is repeated with the next lane.
        gate, is_paused = self._reported = self._level
        self._bus.mention(GateOp(lane=lane, open=gate.is_open, paused=is_paused, reason=gate.reason))


# --------------------
# The terminal lane: writes each offered message to its file, types it, and reports the outcome.
#
# One offer at a time. Opening the lane reports kept outcomes, together with the offer still in progress.

_LIMIT_REMEMBERED: Final = 200
"""Messages that `pal show` finds here without a daemon."""
_KEYS_LOST: Final = "the keys were a secret and were not stored: send them again"


class TerminalOffer(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One offered message, as the daemon sends it."""

    seq: int
    id: str
    ts: int
    sender: str
    text: str
    priority: str = "normal"
    raw: str = ""
    bare: bool = False
    intent: str | None = None
    expects_reply: bool = False
    hash: str = ""
    """The hash of secret raw keys. The keys themselves are sent only with the offer and never stored."""


class Opened(msgspec.Struct, frozen=True):
    """The number of a lane, and the number of a new offer for the message that was still in progress."""

    lane: int
    offer: int = 0


_offered: Final = msgspec.json.Decoder(list[TerminalOffer]).decode
_opened: Final = msgspec.json.Decoder(Opened).decode


@dataclass(slots=True)
class Handled:
    """A message that was offered here, and its state. Its text is in its file."""

    id: str
    seq: int
    sender: str
    priority: str
    file: str = ""
    beginning: str = ""
    """The beginning of the text, for a message without a file."""
    state: str = "submitted"


@dataclass(slots=True)
class _InHand:
    """An offer in progress, with its end once it has one. Its numbers are those of the newest connection."""

    lane: int
    offer: int
    message: TerminalOffer
    end: "_End | None" = None


@dataclass(frozen=True, slots=True)
class _End:
    """The result of an offer, its outcome for the daemon, and the evidence."""

    done: Done
    outcome: Outcome
    evidence: str


class TerminalLane:
    """The terminal as a lane of the bus."""

    def __init__(
        self, home: str, bus: HolderConnection, typist: Typist, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called whenever an offer ends."""
        self._home = home
        self._bus = bus
        self._typist = typist
        self._on_change = on_change
        self._number = 0
        self._connection = 0
        self._in_hand: _InHand | None = None
        self._reports = LaneReports(bus)
        self._saying = Work()
        self.handled: dict[str, Handled] = {}
        """The last messages offered here, by id; when full, the oldest is dropped."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress."""
        return self._in_hand is None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet."""
        return self._reports.outcomes

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self._reports.add(*outcomes)

    # Connections

    async def open(self, left: tuple[Outcome, ...] = ()) -> None:
        """Open the lane on a new connection: report earlier outcomes first, then the level of the gate.

        `left` are outcomes of a closed native lane. A message in progress continues. The daemon gives it a
        new offer number, under which its outcome is reported.
        """
        # Closed until the daemon replies: the old number belongs to the lost connection.
        self._number = 0
        # A copy: more outcomes may be added during the wait, and only these may be forgotten after it.
        reported, in_hand = self.outcomes, self._in_hand
        # Without it the daemon would take the message for one that never arrived, and offer it a second time.
        carrying = () if in_hand is None else (in_hand.message.seq,)
        outcomes = (*reported, *left)
        request = LaneOp(kind="terminal", remembers=True, outcomes=outcomes, carrying=carrying)
        opened = _opened(await self._bus.ask(request))
        self._reports.forget(reported)
        self._number, self._connection = opened.lane, self._bus.connections
        if in_hand is not None:
            in_hand.lane, in_hand.offer = opened.lane, opened.offer
            if in_hand.end is not None:  # It ended while the lane was being opened.
                self._saying.spawn(self._answer(in_hand, in_hand.end))
        self._reports.tell_level(self._open_number, again=True)

    def set_level(self, gate: Gate, *, is_paused: bool) -> None:
        """Set whether a message can be typed now. It is reported at every change and with every new lane."""
        self._reports.set_level(gate, is_paused=is_paused)
        self._reports.tell_level(self._open_number)

    @property
    def _open_number(self) -> int:
        """The number of the lane if it belongs to the current connection, else 0."""
        return self._number if self._connection == self._bus.connections else 0

    # Offers

    def take(self, line: ReplyLine) -> None:
        """Start an offer. An offer that cannot be read is refused, and nothing is typed.

        Raw keys are pressed even while a message is in progress: they may answer the dialog it waits for. Any
        other second offer is deferred.
        """
        try:
            (message,) = _offered(line.messages)
            offer = self._prepare(message)
        except (msgspec.DecodeError, ValueError, BadRequest) as error:
            _logger.warning("an offer cannot be read: %s", error)
            # Refused and not deferred: the same bytes would be unreadable again.
            reason = "the holder cannot read it"
            self._bus.mention(AnswerOp(lane=line.lane, offer=line.offer, answer="refused", reason=reason))
            return
        in_hand = _InHand(line.lane, line.offer, message)
        self._trace(message, "received")
        if isinstance(offer, Done):
            self._settle(in_hand, offer, "")
        elif self._in_hand is None:
            self._in_hand = in_hand  # First: `begin` may call `_end` before it returns.
            self._typist.begin(offer, self._end, lambda step, detail: self._trace(message, step, detail))
        elif offer.is_raw:
            self._settle(in_hand, *self._typist.press_now(offer))
        else:
            self._settle(in_hand, Done(TextOutcome.DEFERRED, "another message is in progress"), "")

    def _trace(self, message: TerminalOffer, step: str, detail: str = "") -> None:
        self._bus.trace((message.seq,), step, "terminal", detail)

    def _prepare(self, message: TerminalOffer) -> TypedText | Done:
        """Write the file and return the text to type, or the result if it cannot be typed."""
        priority = parse_priority(message.priority)
        handled = self._remember_handled(message)
        # Secret keys are never stored: the daemon that had them in memory has ended since.
        if message.hash and not message.raw:
            return Done(TextOutcome.REFUSED, _KEYS_LOST)
        if message.raw:
            keys = raw_from_text(message.raw).decode("utf-8", "surrogateescape")
            return TypedText(text=keys, priority=priority, is_raw=True, is_secret=bool(message.hash))
        if message.bare:
            handled.beginning = message.text[:LIMIT_TERMINAL]
            if not has_breaks(message.text):
                return TypedText(text=message.text, priority=priority)
        assert self._bus.held is not None
        name = self._bus.held.name
        # Before anything is typed: the typed text may be only the name of this file.
        try:
            path = write_message(self._home, name, message.id, message.ts, format_message_file(message.text))
        except OSError as error:
            return Done(TextOutcome.DEFERRED, f"its file cannot be written: {error.strerror}")
        handled.file = str(path)
        if message.bare:
            return TypedText(text=message.text, priority=priority, reference=format_reference(str(path)))
        line = MessageLine(seq=message.seq, sender=message.sender, recipient=name, text=message.text)
        text, reference = (
            format_terminal(
                line,
                str(path),
                is_urgent=priority is Priority.INTERRUPT,
                expects_reply=message.expects_reply or message.intent == "request",
                is_reference=is_reference,
            )
            for is_reference in (False, True)
        )
        return TypedText(text=text, priority=priority, reference=reference)

    def _remember_handled(self, message: TerminalOffer) -> Handled:
        # Removed first, so that a repeated message becomes the newest and is not dropped as the oldest.
        self.handled.pop(message.id, None)
        while len(self.handled) >= _LIMIT_REMEMBERED:
            del self.handled[next(iter(self.handled))]
        handled = Handled(id=message.id, seq=message.seq, sender=message.sender, priority=message.priority)
        self.handled[message.id] = handled
        return handled

    def find(self, message_id: str) -> Handled | None:
        """Return a message by its id or its seq: `7`, `#7`."""
        number = message_id.removeprefix("#")
        return self.handled.get(message_id) or next(
            (one for one in self.handled.values() if str(one.seq) == number), None
        )

    def _end(self, done: Done, screen: str) -> None:
        """Finish the offer in progress."""
        assert self._in_hand is not None
        # Free before the outcome is reported: the daemon then offers the next message at once.
        in_hand, self._in_hand = self._in_hand, None
        self._settle(in_hand, done, screen)

    def _settle(self, in_hand: _InHand, done: Done, screen: str) -> None:
        """Record the outcome of an offer and report it."""
        message = in_hand.message
        self._trace(message, f"ended {done.answer}", done.reason or done.grade or "")
        if (handled := self.handled.get(message.id)) is not None:
            handled.state = done.answer
        self._on_change()  # Report the level before the outcome: the outcome triggers the next offer.
        outcome = Outcome(messages=(message.seq,), answer=done.answer, grade=done.grade or "")
        self._reports.add(outcome)
        evidence = clip(_without_keys(screen, message), LIMIT_EVIDENCE_BYTES) if message.raw else ""
        in_hand.end = _End(done, outcome, evidence)
        self._saying.spawn(self._answer(in_hand, in_hand.end))

    async def _answer(self, in_hand: _InHand, end: _End) -> None:
        if not in_hand.lane or in_hand.lane != self._open_number or not in_hand.offer:
            return  # The connection has changed: opening the new lane reports this outcome.
        done = end.done
        request = AnswerOp(
            lane=in_hand.lane,
            offer=in_hand.offer,
            answer=done.answer,
            grade=end.outcome.grade,
            reason=done.reason if done.answer is not TextOutcome.SEEN else "",
            evidence=end.evidence,
        )
        try:
            await self._bus.ask(request)
        except PalaverError as error:  # It is reported again when the next lane is opened.
            _logger.info("a report was not accepted: %s: %s", error.code, error)
            return
        self._reports.forget((end.outcome,))
        self._trace(in_hand.message, "reported to the daemon")
        if done.answer is TextOutcome.DEFERRED:
            # A deferred offer is repeated when the level is reported, so report it again.
            self._reports.tell_level(self._open_number, again=True)

    # Reports

    async def settle(self) -> None:
        """Wait until all outcomes are reported, or the connection is lost."""
        await self._saying.settle()


def _without_keys(screen: str, message: TerminalOffer) -> str:
    """Return the screen with the keys of a secret replaced, in case it shows them."""
    keys = raw_from_text(message.raw).decode("utf-8", "replace").strip() if message.hash else ""
    return screen.replace(keys, "[secret]") if keys else screen


def clip(text: str, limit_bytes: int) -> str:
    """Return the end of a text that fits into `limit_bytes`: the newest lines of a screen are last."""
    raw = text.encode("utf-8", "replace")
    return raw[-limit_bytes:].decode("utf-8", "ignore") if len(raw) > limit_bytes else text


# --------------------
# The native lane of one agent. It knows nothing about other agents.
#
# The messages of an offer are sent as one text, with a key that proves its arrival. Putting the text into the
# harness is left to the `carry` function.

_LIMIT_UNCONFIRMED: Final = 100
"""Texts whose late proof is still recognised; a proof that comes later than that is ignored."""

Carry = Callable[[str, str], Awaitable[Done]]
"""Takes a text and its key to the harness, and returns the result."""


class NativeOffer(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One offered message, as the daemon sends it."""

    seq: int
    id: str
    sender: str
    text: str
    delivered_to: tuple[str, ...] = ()
    session: str = ""
    intent: str | None = None
    thread: str | None = None
    bare: bool = False


_natively_offered: Final = msgspec.json.Decoder(tuple[NativeOffer, ...]).decode


class NativeLane:
    """Takes offers and reports outcomes. `carry` is called for one offer at a time."""

    def __init__(
        self, bus: HolderConnection, carry: Carry, on_change: Callable[[], None], *, name: str = ""
    ) -> None:
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
        self._reports = LaneReports(bus)
        self._unconfirmed: dict[str, tuple[int, ...]] = {}
        """The seqs of messages sent without proof of arrival, by key; when full, the oldest are dropped."""
        self._carrying = Work()
        self._saying = Work()
        self._is_closed = False
        self._early: list[tuple[ReplyLine, Callable[[ReplyLine], None]]] | None = None
        """Offers that arrived while the lane was being opened; None otherwise."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress."""
        return self._in_hand is None

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet."""
        return self._reports.outcomes

    @property
    def left(self) -> tuple[Outcome, ...]:
        """The outcomes that this lane cannot report any more, because it is closed.

        Without the unconfirmed ones: the daemon draws that conclusion from the end of the lane. Without the
        refused ones: a refusal counts for the lane that reports it.
        """
        answers = (TextOutcome.SEEN, TextOutcome.DEFERRED)
        return tuple(one for one in self.outcomes if one.answer in answers) if self._is_closed else ()

    def forget(self, reported: tuple[Outcome, ...]) -> None:
        """Drop outcomes that were reported on another lane."""
        self._reports.forget(reported)

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self._reports.add(*outcomes)
        # An outcome proves that the older version had an open lane. Without one this is unknown, and a lane
        # that claims to know all offers would make the daemon send messages again that arrived.
        self._was_open = bool(outcomes)

    def has(self, lane: int) -> bool:
        """Return whether an offer with this lane number is for this lane."""
        return self._number == lane != 0

    # Connections

    def lose(self) -> None:
        """Forget the lane number: it was valid on the lost connection only."""
        self._number = 0

    async def open(self) -> None:
        """Open the lane on this connection, once no offer is in progress; report earlier outcomes with it.

        Repeats are harmless: an open lane stays as it is.
        """
        # An opening says that this is all the lane knows: the daemon queues other messages again, or makes
        # them unconfirmed. So an offer in progress must end first.
        async with self._opening:
            await self._at_rest.wait()
            # Asked after the waits: another call may have opened the lane, or the connection may be lost.
            if not self._number and not self._is_closed and self._bus.is_connected:
                await self._open()

    async def try_open(self) -> None:
        """Open the lane as `open` does; if the connection is lost meanwhile, the next one opens it."""
        try:
            await self.open()
        except PalaverError as error:
            _logger.info("a native lane waits for the daemon: %s", error)

    async def _open(self) -> None:
        reported = self.outcomes
        early: list[tuple[ReplyLine, Callable[[ReplyLine], None]]] = []
        self._early = early
        try:
            answer = await self._bus.ask(
                LaneOp(kind="native", name=self._name, remembers=self._was_open, outcomes=reported)
            )
        except Unavailable:
            raise  # The next lanes report that these offers never arrived.
        except PalaverError:
            # The connection continues, and its other lanes may have got offers meanwhile.
            for line, otherwise in early:
                otherwise(line)
            raise
        finally:
            self._early = None
        self._reports.forget(reported)
        self._number, self._was_open = _opened(answer).lane, True
        self._reports.tell_level(self._number, again=True)
        # Only now the number of the lane is known, which tells whose offers these are.
        for line, otherwise in early:
            self.claim(line, otherwise)

    def set_level(self, gate: Gate, *, is_paused: bool) -> None:
        """Set whether a message can be delivered now.

        It is reported at every change and with every new lane.
        """
        self._reports.set_level(gate, is_paused=is_paused)
        self._reports.tell_level(self._number)

    def end(self) -> None:
        """End the lane after the agent has exited.

        An offer in progress stays unconfirmed, without a report.
        """
        self._number, self._is_closed = 0, True
        # Not `_saying`: the reports of earlier offers must still reach the daemon.
        self._carrying.cancel()

    def close(self) -> None:
        """Close the lane because the harness cannot be reached; report an offer in progress as unconfirmed.

        An open lane ends only with its connection, so the connection is dropped too.
        """
        if self._is_closed:
            return
        # First, so that the offer that is cancelled below does not report its outcome a second time.
        self._is_closed = True
        in_hand = self._in_hand
        self._carrying.cancel()
        if self._number:
            if in_hand is not None and in_hand[0] == self._number:
                lane, offer = in_hand
                self._bus.mention(AnswerOp(lane=lane, offer=offer, answer=TextOutcome.UNCONFIRMED))
            self._number = 0
            self._bus.drop()  # The next connection has no such lane.

    # Offers

    def claim(self, line: ReplyLine, otherwise: Callable[[ReplyLine], None]) -> None:
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

    def take(self, line: ReplyLine) -> None:
        """Start an offer. An offer that cannot be read is refused, and nothing is carried."""
        try:
            messages = _natively_offered(line.messages)
        except msgspec.DecodeError as error:
            _logger.warning("an offer cannot be read: %s", error)
            reason = "the holder cannot read it"
            self._bus.mention(AnswerOp(lane=line.lane, offer=line.offer, answer="refused", reason=reason))
            return
        if self._in_hand is not None:  # The daemon has stopped waiting for the first offer.
            # Deferred and not unconfirmed: this text was certainly not sent.
            reason = "another message is in progress"
            self._bus.mention(AnswerOp(lane=line.lane, offer=line.offer, answer="deferred", reason=reason))
            return
        self._in_hand = line.lane, line.offer
        self._trace(messages, "received")
        self._at_rest.clear()
        self._carrying.spawn(self._bring(line.lane, line.offer, messages))

    async def _bring(self, lane: int, offer: int, messages: tuple[NativeOffer, ...]) -> None:
        assert self._bus.held is not None
        # Unless `carry` returns, it is unknown whether the harness has the text: it may be cancelled or fail
        # halfway.
        done, key = Done(TextOutcome.UNCONFIRMED), f"pal-{messages[0].id}-{offer}"
        try:
            text = fenced(messages, self._name or self._bus.held.name)
            done = await self._carry(text, key)
        finally:
            self._in_hand = None
            if done.answer is TextOutcome.UNCONFIRMED:
                self._add_unconfirmed(key, tuple(message.seq for message in messages))
            self._end(lane, offer, messages, done)
            self._at_rest.set()  # Last: `open` then reports all outcomes, and this must be one of them.

    def _trace(self, messages: tuple[NativeOffer, ...], step: str, detail: str = "") -> None:
        self._bus.trace([message.seq for message in messages], step, "native", detail, name=self._name)

    def _end(self, lane: int, offer: int, messages: tuple[NativeOffer, ...], done: Done) -> None:
        self._trace(messages, f"ended {done.answer}", done.reason or done.grade or "")
        self._on_change()  # Report the level before the outcome: the outcome triggers the next offer.
        outcome = Outcome(
            messages=tuple(message.seq for message in messages), answer=done.answer, grade=done.grade or ""
        )
        self._reports.add(outcome)
        if lane == self._number and not self._is_closed:
            self._saying.spawn(self._answer(lane, offer, outcome, done.reason))

    def _add_unconfirmed(self, key: str, messages: tuple[int, ...]) -> None:
        self._unconfirmed[key] = messages
        while len(self._unconfirmed) > _LIMIT_UNCONFIRMED:
            del self._unconfirmed[next(iter(self._unconfirmed))]

    def prove(self, key: str) -> None:
        """Report that an unconfirmed message has reached the model after all.

        Late outcomes are reported when a lane is opened, so reconnect if no offer is in progress.
        """
        messages = self._unconfirmed.pop(key, None)
        if messages is None or self._is_closed:
            return
        self._reports.add(Outcome(messages=messages, answer=TextOutcome.SEEN, grade=Grade.CONTEXT))
        # During an offer a new connection would make that one unconfirmed; `_answer` reconnects after it.
        if self._in_hand is None:
            self._bus.drop()

    async def _answer(self, lane: int, offer: int, outcome: Outcome, reason: str) -> None:
        request = AnswerOp(lane=lane, offer=offer, answer=outcome.answer, grade=outcome.grade, reason=reason)
        try:
            await self._bus.ask(request)
        except PalaverError as error:  # It is reported again when the next lane is opened.
            _logger.info("a report was not accepted: %s: %s", error.code, error)
        else:
            self._reports.forget((outcome,))
            if self._reports.outcomes and self._in_hand is None and not self._is_closed:
                # Reconnect: outcomes that were proven meanwhile are reported with the next lane.
                self._bus.drop()

    async def settle(self) -> None:
        """Wait until all outcomes are reported, or the connection is lost."""
        await self._carrying.settle()
        await self._saying.settle()  # The end of an offer above starts its report.


def fenced(messages: tuple[NativeOffer, ...], recipient: str) -> str:
    """Format messages for an agent; text from the user's input bar is added without a fence."""
    lines = [
        MessageLine(
            seq=message.seq,
            sender=message.sender,
            recipient=recipient,
            session=message.session,
            others=count_others(message.delivered_to),
            intent=message.intent,
            thread=message.thread,
            text=message.text,
        )
        for message in messages
        if not message.bare
    ]
    parts = [format_injection(lines) if lines else "", *(one.text for one in messages if one.bare)]
    return "\n\n".join(filter(None, parts))
