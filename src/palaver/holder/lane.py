"""The terminal lane of an agent: writes each offered message to its file, types it, and reports the outcome.

One offer at a time. Outcomes are kept until the daemon has them, also across connections: opening a lane
reports them, together with the offer that is still in progress.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.client.wire import ReplyLine
from palaver.errors import BadRequest, PalaverError
from palaver.harness.base import Done, Gate, TextOutcome
from palaver.holder.connection import HolderConnection
from palaver.holder.tasks import Work
from palaver.home import write_message
from palaver.protocol.agent_text import (
    LIMIT_TERMINAL,
    format_message_file,
    format_reference,
    format_terminal,
)
from palaver.protocol.agent_text import MessageLine as TypedLine
from palaver.protocol.events import Outcome
from palaver.protocol.lines import LIMIT_EVIDENCE_BYTES, AnswerOp, GateOp, LaneOp
from palaver.protocol.message import Priority, parse_priority
from palaver.protocol.requests import raw_from_text
from palaver.terminal.keyboard import has_breaks
from palaver.terminal.typing import TypedText, Typist

_LIMIT_REMEMBERED: Final = 200
_KEYS_LOST: Final = "the keys were a secret and were not stored: send them again"

_logger: Final = logging.getLogger("palaver.holder")


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
        self._outcomes: list[Outcome] = []
        self._level: tuple[Gate, bool] | None = None
        self._told: tuple[Gate, bool] | None = None
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
        return tuple(self._outcomes)

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self._outcomes.extend(outcomes)

    # Connections

    async def open(self) -> None:
        """Open the lane on a new connection: report earlier outcomes first, then the level of the gate.

        A message in progress continues. The daemon gives it a new offer number, under which its outcome is
        reported.
        """
        # Closed until the daemon replies: the old number belongs to the lost connection.
        self._number = 0
        reported, in_hand = self.outcomes, self._in_hand
        carrying = () if in_hand is None else (in_hand.message.seq,)
        request = LaneOp(kind="terminal", remembers=True, outcomes=reported, carrying=carrying)
        opened = _opened(await self._bus.ask(request))
        self._forget(reported)
        self._number, self._connection, self._told = opened.lane, self._bus.connections, None
        if in_hand is not None:
            in_hand.lane, in_hand.offer = opened.lane, opened.offer
            if in_hand.end is not None:  # It ended while the lane was being opened.
                self._saying.spawn(self._answer(in_hand, in_hand.end))
        self._tell_level()

    def set_level(self, gate: Gate, *, is_paused: bool) -> None:
        """Set whether a message can be typed now. It is reported at every change and with every new lane."""
        self._level = gate, is_paused
        self._tell_level()

    def _tell_level(self) -> None:
        if not self._is_open or self._level is None or self._level == self._told:
            return
        gate, is_paused = self._told = self._level
        self._bus.mention(GateOp(lane=self._number, open=gate.is_open, paused=is_paused, reason=gate.reason))

    @property
    def _is_open(self) -> bool:
        """Whether the lane number belongs to the current connection."""
        return self._number != 0 and self._connection == self._bus.connections

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
            reason = "the holder cannot read it"
            self._bus.mention(AnswerOp(lane=line.lane, offer=line.offer, answer="refused", reason=reason))
            return
        in_hand = _InHand(line.lane, line.offer, message)
        self._trace(message, "received")
        if isinstance(offer, Done):
            self._settle(in_hand, offer, "")
        elif self._in_hand is None:
            self._in_hand = in_hand
            self._typist.begin(offer, self._end, lambda step, detail: self._trace(message, step, detail))
        elif offer.is_raw:
            self._settle(in_hand, *self._typist.press_beside(offer))
        else:
            self._settle(in_hand, Done(TextOutcome.DEFERRED, "another message is in progress"), "")

    def _trace(self, message: TerminalOffer, step: str, detail: str = "") -> None:
        self._bus.trace((message.seq,), step, "terminal", detail)

    def _prepare(self, message: TerminalOffer) -> TypedText | Done:
        """Write the file and return the text to type, or the result if it cannot be typed."""
        priority = parse_priority(message.priority)
        handled = self._remember_handled(message)
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
        try:
            path = write_message(self._home, name, message.id, message.ts, format_message_file(message.text))
        except OSError as error:
            return Done(TextOutcome.DEFERRED, f"its file cannot be written: {error.strerror}")
        handled.file = str(path)
        if message.bare:
            return TypedText(text=message.text, priority=priority, reference=format_reference(str(path)))
        line = TypedLine(seq=message.seq, sender=message.sender, recipient=name, text=message.text)
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
        self._outcomes.append(outcome)
        evidence = clip(_without_keys(screen, message), LIMIT_EVIDENCE_BYTES) if message.raw else ""
        in_hand.end = _End(done, outcome, evidence)
        self._saying.spawn(self._answer(in_hand, in_hand.end))

    async def _answer(self, in_hand: _InHand, end: _End) -> None:
        if not self._is_open or in_hand.lane != self._number or not in_hand.offer:
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
        self._forget((end.outcome,))
        self._trace(in_hand.message, "reported to the daemon")
        if done.answer is TextOutcome.DEFERRED:
            self._told = None  # A deferred offer is repeated when the level is reported, so report it again.
            self._tell_level()

    # Reports

    async def settle(self) -> None:
        """Wait until all outcomes are reported, or the connection is lost."""
        await self._saying.settle()

    def _forget(self, reported: tuple[Outcome, ...]) -> None:
        # By identity: a message that was offered twice can have two equal outcomes.
        self._outcomes = [one for one in self._outcomes if not any(one is known for known in reported)]


def _without_keys(screen: str, message: TerminalOffer) -> str:
    """Return the screen with the keys of a secret replaced, in case it shows them."""
    keys = raw_from_text(message.raw).decode("utf-8", "replace").strip() if message.hash else ""
    return screen.replace(keys, "[secret]") if keys else screen


def clip(text: str, limit_bytes: int) -> str:
    """Return the end of a text that fits into `limit_bytes`: the newest lines of a screen are last."""
    raw = text.encode("utf-8", "replace")
    return raw[-limit_bytes:].decode("utf-8", "ignore") if len(raw) > limit_bytes else text
