"""Subscriptions to events and watches on requests: their values, ids and requests. Pure.

A subscription notifies its owner of every event that passes its filter. A request creates a watch per
recipient, which notifies the sender once if the recipient goes idle or stops without an answer.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import BYE, LIFE, AgentState, Filter, LifeChanged, MessageSent, SubscriptionAdded
from palaver.protocol.query import Query, matches

LIMIT_FILTER_WORDS: Final = 64
"""Words that all filters of a subscription may contain together."""
LIMIT_SAY_BYTES: Final = 4096

IDLE: Final = "idle"
BLOCKED: Final = "blocked"
STOPPED: Final = "stopped"
COLLISION: Final = "collision"
PRESETS: Final = (IDLE, STOPPED, BLOCKED, COLLISION)

STATUS: Final = "status"
DELIVERY: Final = "delivery"
SUB_ADDED: Final = "sub.added"
SUB_REMOVED: Final = "sub.removed"

_ID_LENGTH: Final = 6
# Fifteen digits, as in the keys of rows: a longer number cannot be a seq.
_WATCH_ID: Final = re.compile(r"w([1-9]\d{0,14})-(\S+)", re.ASCII)


class Subscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored subscription. The fold adds its seq and time."""

    id: str
    owner: str
    filter: Filter
    once: bool = False
    preset: str = ""
    text: str = ""
    """A text of the owner that is added to every notice."""
    send: str = ""
    """A message that is sent in the owner's name at every hit, to the agents that it mentions."""
    by: str = ""
    """The caller that created it, if that was not its owner."""
    seq: int = 0
    ts: int = 0
    spent: int = 0
    """The seq of the hit that ended it, for a `once` subscription."""


def subscription_from(event: Event) -> Subscription | None:
    """Return the subscription that an event adds; None if it has no filter.

    Raises ValueError or TypeError if it cannot be read.
    """
    added = body_as(event, SubscriptionAdded)
    if event.odd_fields:
        raise ValueError(", ".join(sorted(event.odd_fields)))
    if added.filter is None:
        return None
    if added.id is None or added.owner is None:
        raise ValueError("id, owner")
    return Subscription(
        id=added.id,
        owner=added.owner,
        filter=added.filter,
        once=added.once,
        preset=added.preset,
        text=added.text,
        send=added.send,
        by=added.by,
        seq=event.seq,
        ts=event.ts,
    )


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A request that one recipient has not answered, and the sender to notify."""

    agent: str
    request: int
    sender: str
    ts: int


class WatchDue(msgspec.Struct, frozen=True, kw_only=True):
    """Why a watch fires: the agent's state, and the id of the event that reports it."""

    state: str
    cause: str


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """Subscribe to events from now on, for the caller or another owner."""

    filter: Filter
    owner: str = ""
    """The owner; empty for the caller."""
    once: bool = False
    preset: str = ""
    text: str = ""
    send: str = ""


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """End a subscription or a watch, by its id."""

    id: str


class FireSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """Notify a subscription's owner of one event. The same event again is written once."""

    id: str
    made: int
    """The seq of the subscription: a short id may be reused, its seq may not."""
    event: int
    cause: str
    """The id of that event."""
    text: str
    agents: tuple[str, ...] = ()
    file: str = ""


class FireWatch(msgspec.Struct, frozen=True, kw_only=True):
    """Notify the sender of a request that it is unanswered, if that is still true."""

    agent: str
    request: int
    is_waiting: bool = False
    """The agent waits for messages again after it has read the request: that counts as idle."""


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """Record that a `once` subscription has fired."""

    id: str


def subscription_id(ulid: str) -> str:
    """Return the short id of a subscription with a ULID: its end, in lower case.

    Two ULIDs can have the same end: the broker draws another one if the short id is in use.
    """
    return ulid[-_ID_LENGTH:].lower()


def format_watch_id(agent: str, request: int) -> str:
    """Format the id of a watch: `w42-nova`. The pair of `parse_watch_id`."""
    return f"w{request}-{agent}"


def parse_watch_id(text: str) -> tuple[str, int] | None:
    """Return agent and request of the id of a watch; None for another id."""
    found = _WATCH_ID.fullmatch(text)
    return None if found is None else (found[2], int(found[1]))


def preset_filter(preset: str, names: Sequence[str] = ()) -> Filter:
    """Return the filter of a preset: agents that go idle, stop or get blocked, or collisions."""
    if preset == STOPPED:
        return Filter(types=(BYE,), agents=tuple(names))
    if preset == COLLISION:
        return Filter(types=(STATUS,), agents=tuple(names))
    if preset not in PRESETS:
        raise BadRequest(f"no such preset: {preset!r}; the presets are {', '.join(PRESETS)}")
    return Filter(types=(STATUS,), agents=tuple(names), statuses=(AgentState(preset).value,))


def filter_words(wanted: Filter) -> list[str]:
    """Return every word of every filter."""
    return [word for name in Filter.__struct_fields__ for word in getattr(wanted, name)]


def filter_values(wanted: Filter) -> list[frozenset[object]]:
    """Return the values of each filter without their order, to compare filters: any value of a filter
    matches."""
    return [frozenset(getattr(wanted, name)) for name in Filter.__struct_fields__]


def query_of(wanted: Filter, after: int = 0) -> Query:
    """Return the query of a filter, after a seq."""
    return Query(**msgspec.structs.asdict(wanted), after=after)


def is_system(event: Event) -> bool:
    """Return whether the bus itself wrote an event. No agent name begins with a bracket."""
    return event.sender.startswith("[")


def is_news(event: Event) -> bool:
    """Return whether an event is reported to any owner: not events of the bus, and not held messages.

    A text that the bus sends for a subscription is not news either: two subscriptions could answer each
    other endlessly.
    """
    return not is_system(event) and not (event.by or "").startswith("[") and not _is_held(event)


def is_for(wanted: Filter, owner: str, event: Event) -> bool:
    """Return whether an event that passes a filter is for its owner.

    The owner's own events are reported only if the filter names the owner; echoes of hello and bye only if
    the filter names their type.
    """
    life = event.body
    is_echo = isinstance(life, LifeChanged) and life.is_echo
    return (not is_echo or LIFE in wanted.types) and (event.sender != owner or _is_named(wanted, owner))


def is_hit(subscription: Subscription, event: Event) -> bool:
    """Return whether a subscription's owner is notified of an event.

    It must be news, newer than the subscription, for its owner, and pass the filter. A collision consists of
    several events, and is not detected here.
    """
    return (
        subscription.preset != COLLISION
        and is_news(event)
        and is_for(subscription.filter, subscription.owner, event)
        and matches(query_of(subscription.filter, subscription.seq), event)
    )


def is_collision_hit(subscription: Subscription, edits: Sequence[Event]) -> bool:
    """Return whether a subscription's owner is notified that these edits of one file collide, newest first.

    An owner that made one of them is notified too: it needs to know.
    """
    wanted = query_of(subscription.filter)
    return (
        subscription.preset == COLLISION
        # The newest edit decides: the earlier ones may be from before the subscription.
        and edits[0].seq > subscription.seq
        and any(matches(wanted, edit) for edit in edits)
    )


def _is_held(event: Event) -> bool:
    # A hit would reveal a message that a brake holds back from its recipients.
    return isinstance(event.body, MessageSent) and bool(event.body.held)


def _is_named(wanted: Filter, name: str) -> bool:
    names = (*wanted.agents, *wanted.senders, *wanted.participants)
    return any(word.lower().removeprefix("@") == name.lower() for word in names)


decode_subscription: Final = msgspec.json.Decoder(Subscription).decode
decode_watch: Final = msgspec.json.Decoder(Watch).decode
decode_due: Final = msgspec.json.Decoder(WatchDue).decode
