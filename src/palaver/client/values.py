"""The values of the SDK: agents, receipts, messages and events, as programs see them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.protocol.envelope import Draft, Event, decode_event, made_envelope
from palaver.protocol.message import MESSAGE
from palaver.protocol.paths import (
    DeadLetter,
    PathSubscription,
    RoutedMessage,
    RouteResult,
    SubscriptionResult,
)
from palaver.protocol.views import WaitReason

# --------------------
# An agent on the bus, as other agents see it.


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The public data of an agent. Times are Unix milliseconds."""

    name: str
    base: str
    tag: str | None = None
    role: str = "worker"
    harness: str | None = None
    state: str = "idle"
    detail: str | None = None
    since: int = 0
    """When that state began."""
    joined: int = 0
    device: str = ""
    is_present: bool = msgspec.field(name="present", default=False)
    unread: int = 0


# --------------------
# Results for a sender: at once, the recipients of its message; later, its delivery states.


class ExitedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient that has left: the message waits until it comes back."""

    agent: str
    state: str
    since: int
    """When it left, in Unix milliseconds."""
    resumable: bool = False
    """Whether you can start it again with `pal resume`."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message, with its seq and its recipients."""

    seq: int = 0
    """0 for a dry run, which stores nothing."""
    id: str = ""
    to: tuple[str, ...] = ()
    delivered_to: tuple[str, ...] = ()
    empty_groups: tuple[str, ...] = ()
    """Groups that are empty now."""
    dead: tuple[str, ...] = ()
    """Paths without a subscriber."""
    exited: tuple[ExitedAgent, ...] = ()
    """Recipients that have left."""
    answers: int = 0
    """The seq of the request that it answers, if it was sent without `reply_to`; else 0."""
    is_repeat: bool = msgspec.field(name="repeat", default=False)
    """The id was stored before, by an earlier call or an earlier try: this is that result."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt of a message: its state for one recipient, and the evidence for it."""

    name: str
    state: str
    """queued, submitted, seen or answered; or held, refused, expired, dead."""
    session: str = ""
    """The session of the recipient that has this copy; empty for the agent itself."""
    ts: int = 0
    lane: str = ""
    grade: str = ""
    reason: str = ""
    is_unconfirmed: bool = msgspec.field(name="unconfirmed", default=False)
    answer: int = 0
    """The seq of the reply, once there is one."""
    is_implied: bool = msgspec.field(name="implied", default=False)
    """The reply did not name the message: it was the only open request."""
    by: str = ""
    wait: WaitReason | None = None
    """Why it is not seen yet; None if its state is final."""


# --------------------
# A received message as a value. It knows only its connection.


class _EnvelopeFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a pushed message from which its envelope is made."""

    type: str = MESSAGE
    to: tuple[str, ...] = ()
    delivered_to: tuple[str, ...] = ()
    sent_ts: int | None = None
    payload: object = None
    """The content of an envelope that is not a text. A text has its content in the other fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to you. It stays unread until `ack`; `fields` contains all of its data."""

    seq: int
    id: str
    ts: int
    sender: str
    text: str
    intent: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    fields: Mapping[str, object] = field(repr=False)
    acknowledge: Callable[[int], Awaitable[None]] = field(repr=False, compare=False)
    answer: Callable[..., Awaitable[Receipt]] = field(repr=False, compare=False)

    @property
    def envelope(self) -> Draft:
        """The message as an envelope, as its sender wrote it. A text is an envelope of the type `message`."""
        found = msgspec.convert(self.fields, _EnvelopeFields)
        content = self.fields if found.type == MESSAGE else found.payload
        return made_envelope(
            type=found.type,
            id=self.id,
            sender=self.sender,
            to=found.to,
            delivered_to=found.delivered_to,
            ts=self.ts,
            sent_ts=found.sent_ts,
            payload=content if isinstance(content, Mapping) else {},
        )

    async def ack(self) -> None:
        """Mark the message as seen. Durable on return; idempotent."""
        await self.acknowledge(self.seq)

    async def reply(self, text: str, *, intent: str = "", priority: str = "") -> Receipt:
        """Reply to the sender only, in the same thread."""
        return await self.answer((), text, reply_to=str(self.seq), intent=intent, priority=priority)


# --------------------
# Decode the daemon's results and pushes into values. Pure; unknown fields are ignored.


class JoinReply(msgspec.Struct, frozen=True, kw_only=True):
    """The joined name with its role, and the id of this machine."""

    name: str = ""
    device: str = ""
    role: str = "worker"


class ReceivedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A pushed message: the fields that every reader needs."""

    seq: int
    id: str
    ts: int
    sender: str = msgspec.field(name="from")
    text: str
    intent: str | None = None
    thread: str | None = None
    reply_to: str | None = None


class _Listed(msgspec.Struct, frozen=True):
    agents: list[AgentInfo]


class _Ledger(msgspec.Struct, frozen=True):
    receipts: list[Delivery]


class _Found(msgspec.Struct, frozen=True):
    events: list[msgspec.Raw]
    last: int


class _Numbered(msgspec.Struct, frozen=True):
    seq: int


class _RoutedMessages(msgspec.Struct, frozen=True):
    messages: list[RoutedMessage]


class _DeadLetters(msgspec.Struct, frozen=True):
    messages: list[DeadLetter]


class _Subscriptions(msgspec.Struct, frozen=True):
    subscriptions: list[PathSubscription]


joined_from_json: Final = msgspec.json.Decoder(JoinReply).decode
receipt_from_json: Final = msgspec.json.Decoder(Receipt).decode
mail_from_json: Final = msgspec.json.Decoder(ReceivedMessage).decode
route_result_from_json: Final = msgspec.json.Decoder(RouteResult).decode
subscribed_from_json: Final = msgspec.json.Decoder(SubscriptionResult).decode
fields_from_json: Final = msgspec.json.Decoder(dict[str, object]).decode
_listed: Final = msgspec.json.Decoder(_Listed).decode
_ledger: Final = msgspec.json.Decoder(_Ledger).decode
_numbered: Final = msgspec.json.Decoder(_Numbered).decode
_found: Final = msgspec.json.Decoder(_Found).decode
_routed: Final = msgspec.json.Decoder(_RoutedMessages).decode
_dead: Final = msgspec.json.Decoder(_DeadLetters).decode
_subscriptions: Final = msgspec.json.Decoder(_Subscriptions).decode


def agents_from_json(answer: msgspec.Raw) -> list[AgentInfo]:
    """Read the list of agents."""
    return _listed(answer).agents


def ledger_from_json(answer: msgspec.Raw) -> list[Delivery]:
    """Read the receipts of a message."""
    return _ledger(answer).receipts


def event_from_json(line: msgspec.Raw) -> Event | None:
    """Read one event; return None if it is unreadable, so that one bad event never stops a reader."""
    try:
        return decode_event(line)
    except BadRequest:
        return None


def seq_from_json(line: msgspec.Raw) -> int:
    """Read the seq of an event that is otherwise unreadable; return 0 if it has no seq."""
    try:
        return _numbered(line).seq
    except msgspec.DecodeError:
        return 0


def events_from_json(answer: msgspec.Raw) -> tuple[list[Event], int]:
    """Read a page of the log: its events, and the number of unreadable ones."""
    lines = _found(answer).events
    events = [event for event in map(event_from_json, lines) if event is not None]
    return events, len(lines) - len(events)


def last_from_json(answer: msgspec.Raw) -> int:
    """Read the last seq of the log at the time of the query."""
    return _found(answer).last


def routed_from_json(answer: msgspec.Raw) -> list[RoutedMessage]:
    """Read the messages of a mailbox."""
    return _routed(answer).messages


def dead_letters_from_json(answer: msgspec.Raw) -> list[DeadLetter]:
    """Read the dead letters."""
    return _dead(answer).messages


def subscriptions_from_json(answer: msgspec.Raw) -> list[PathSubscription]:
    """Read the path subscriptions of an agent or session."""
    return _subscriptions(answer).subscriptions
