"""What the bus offers an agent in a terminal: each message into its file, typed, and answered.

One offer at a time. What became of an offer is remembered until the daemon has it, also across connections:
a lane is opened only once the message in hand has come to its end, and the outcomes go along with it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from palaver.agents.bus import Bus
from palaver.agents.gates import Gate
from palaver.agents.message_file import message_path, write_message
from palaver.agents.steps import Answer, Done, Offer
from palaver.agents.typist import Typist
from palaver.client import request as ask
from palaver.client.wire import Line
from palaver.errors import BadRequest, PalaverError
from palaver.model.forms import Line as TypedLine
from palaver.model.forms import format_terminal
from palaver.model.priority import parse_priority
from palaver.model.terminal import raw_from_text

_LIMIT_EVIDENCE_BYTES: Final = 16 * 1024
_LIMIT_REMEMBERED: Final = 200

_logger: Final = logging.getLogger("palaver.holder")


class Offered(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One message, as the bus offers it."""

    seq: int
    id: str
    ts: int
    sender: str
    text: str
    priority: str = "normal"
    raw: str = ""
    bare: bool = False


class Opened(msgspec.Struct, frozen=True):
    """The number of a lane."""

    lane: int


_offered: Final = msgspec.json.Decoder(list[Offered]).decode
_opened: Final = msgspec.json.Decoder(Opened).decode


@dataclass(slots=True)
class Handled:
    """A message that was offered here, and what became of it."""

    message: Offered
    file: str = ""
    state: str = "submitted"


@dataclass(frozen=True, slots=True)
class _InHand:
    """An offer that has no outcome yet."""

    lane: int
    offer: int
    messages: tuple[Offered, ...]


class Lane:
    """The terminal as a lane of the bus."""

    def __init__(self, home: str, bus: Bus, typist: Typist, on_change: Callable[[], None]) -> None:
        """`on_change` is told whenever an offer came to its end."""
        self._home = home
        self._bus = bus
        self._typist = typist
        self._on_change = on_change
        self._number = 0
        self._in_hand: _InHand | None = None
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._outcomes: list[ask.Outcome] = []
        self._level: tuple[Gate, bool] | None = None
        self._told: tuple[Gate, bool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.handled: dict[str, Handled] = {}
        """The last messages offered here, by id."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is in hand."""
        return self._in_hand is None

    @property
    def outcomes(self) -> tuple[ask.Outcome, ...]:
        """What the daemon has not heard of yet."""
        return tuple(self._outcomes)

    def remember(self, outcomes: tuple[ask.Outcome, ...]) -> None:
        """Take up what an earlier version of this process had not told yet."""
        self._outcomes.extend(outcomes)

    # With each connection

    async def open(self) -> None:
        """Open the lane on a new connection: first the outcomes of before, then what can come through now."""
        self._number = 0
        await self._at_rest.wait()
        told = self.outcomes
        answer = await self._bus.ask(ask.Lane(kind="terminal", remembers=True, outcomes=told))
        self._forget(told)
        self._number, self._told = _opened(answer).lane, None
        self._tell_level()

    def set_level(self, gate: Gate, *, is_paused: bool) -> None:
        """Say whether a message could be typed now. Told at every change, and with every new lane."""
        self._level = gate, is_paused
        self._tell_level()

    def _tell_level(self) -> None:
        if not self._number or self._level is None or self._level == self._told:
            return
        gate, is_paused = self._told = self._level
        self._bus.mention(
            ask.Gate(lane=self._number, open=gate.is_open, paused=is_paused, reason=gate.reason)
        )

    # Offers

    def take(self, line: Line) -> None:
        """Take an offer in hand. What cannot be read is refused, and nothing of it typed."""
        if self._in_hand is not None:
            reason = "another message is in hand"
            self._bus.mention(ask.Answer(lane=line.lane, offer=line.offer, answer="deferred", reason=reason))
            return
        try:
            messages = tuple(_offered(line.messages))
            (message,) = messages
            self._in_hand = _InHand(line.lane, line.offer, messages)
            self._at_rest.clear()
            self._typist.begin(self._prepare(message), self._end)
        except (msgspec.DecodeError, ValueError, BadRequest) as error:
            _logger.warning("an offer cannot be read: %s", error)
            self._refuse_unread(line)
        except OSError as error:
            self._end(Done(Answer.DEFERRED, f"its file cannot be written: {error.strerror}"), "")

    def _refuse_unread(self, line: Line) -> None:
        self._in_hand = None
        self._at_rest.set()
        reason = "the holder cannot read it"
        self._bus.mention(ask.Answer(lane=line.lane, offer=line.offer, answer="refused", reason=reason))

    def _prepare(self, message: Offered) -> Offer:
        """Write the file, and give what is typed."""
        priority = parse_priority(message.priority)
        handled = self._remember_handled(message)
        if message.raw:
            keys = raw_from_text(message.raw).decode("utf-8", "surrogateescape")
            return Offer(text=keys, priority=priority, is_raw=True)
        if message.bare:
            return Offer(text=message.text, priority=priority)
        assert self._bus.held is not None
        path = message_path(self._home, self._bus.held.name, message.id, message.ts)
        write_message(path, message.text)
        handled.file = str(path)
        line = TypedLine(
            seq=message.seq, sender=message.sender, recipient=self._bus.held.name, text=message.text
        )
        return Offer(text=format_terminal(line, str(path)), priority=priority)

    def _remember_handled(self, message: Offered) -> Handled:
        self.handled.pop(message.id, None)
        while len(self.handled) >= _LIMIT_REMEMBERED:
            del self.handled[next(iter(self.handled))]
        handled = self.handled[message.id] = Handled(message)
        return handled

    def _end(self, done: Done, screen: str) -> None:
        """Write down what became of the offer in hand, and tell."""
        assert self._in_hand is not None
        in_hand, self._in_hand = self._in_hand, None
        for message in in_hand.messages:
            if (handled := self.handled.get(message.id)) is not None:
                handled.state = done.answer
        self._on_change()  # The level goes first: the next offer follows the answer.
        is_raw = any(message.raw for message in in_hand.messages)
        outcome = ask.Outcome(
            messages=tuple(message.seq for message in in_hand.messages),
            answer=done.answer,
            grade=done.grade or "",
        )
        self._outcomes.append(outcome)
        evidence = clip(screen, _LIMIT_EVIDENCE_BYTES) if is_raw else ""
        self._spawn(self._answer(in_hand, outcome, done, evidence))
        self._at_rest.set()

    async def _answer(self, in_hand: _InHand, outcome: ask.Outcome, done: Done, evidence: str) -> None:
        if in_hand.lane != self._number:
            return  # another connection by now: it was told when its lane was opened, or will be
        request = ask.Answer(
            lane=in_hand.lane,
            offer=in_hand.offer,
            answer=done.answer,
            grade=outcome.grade,
            reason=done.reason if done.answer is not Answer.SEEN else "",
            evidence=evidence,
        )
        try:
            await self._bus.ask(request)
        except PalaverError as error:  # it is told again with the next lane
            _logger.info("an answer was not taken: %s: %s", error.code, error)
        else:
            self._forget((outcome,))

    # Saying

    async def settle(self) -> None:
        """Wait until all that was being said is said, or the connection lost."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _forget(self, told: tuple[ask.Outcome, ...]) -> None:
        self._outcomes = [one for one in self._outcomes if not any(one is known for known in told)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def clip(text: str, limit_bytes: int) -> str:
    """Give the end of a text that fits; a screen's newest lines are its last."""
    raw = text.encode("utf-8", "replace")
    return raw[-limit_bytes:].decode("utf-8", "ignore") if len(raw) > limit_bytes else text
