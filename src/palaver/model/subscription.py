"""Subscriptions to events and watches on requests: their values, ids and the orders about them. Pure.

A subscription tells its owner of every event that passes its filter. A watch is made by a request, one for
each recipient, and tells the sender once when that one goes idle or stops without an answer.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from palaver.errors import BadRequest
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.life import BYE, LIFE, is_echo
from palaver.model.message import MESSAGE
from palaver.model.query import Filter, Query, matches

LIMIT_FILTER_WORDS: Final = 64
"""Words that all filters of a subscription may hold together."""
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
_WATCH_ID: Final = re.compile(r"w([1-9]\d{0,14})-(\S+)", re.ASCII)


class Subscription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody wants to be told of. The fold adds where and when it was made."""

    id: str
    owner: str
    filter: Filter
    once: bool = False
    preset: str = ""
    text: str = ""
    """Words of the owner's that go with every hit."""
    by: str = ""
    """Who asked for it, when that was not its owner."""
    seq: int = 0
    ts: int = 0
    spent: int = 0
    """The place of the hit that ended it, for one that tells once."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A request that one recipient has not answered, and who is told."""

    agent: str
    request: int
    sender: str
    ts: int


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Why a watch fires: what became of the agent, and the id of the event that says so."""

    state: str
    cause: str


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """Be told of events from now on, or let another be told."""

    filter: Filter
    owner: str = ""
    """Whose it is; empty for the caller's own."""
    once: bool = False
    preset: str = ""
    text: str = ""


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """End a subscription or a watch, by its id."""

    id: str


class FireSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """Tell a subscription's owner of one event. The same event again is written once."""

    id: str
    made: int
    """The place of the subscription: a short id may come again, its place does not."""
    event: int
    cause: str
    """The id of that event."""
    text: str
    agents: tuple[str, ...] = ()
    file: str = ""


class FireWatch(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the sender of a request that it is unanswered, if that is still so."""

    agent: str
    request: int


class Retire(msgspec.Struct, frozen=True, kw_only=True):
    """Write down that a subscription which tells once has told."""

    id: str


def subscription_id(ulid: str) -> str:
    """Give the short id that a subscription made under a ULID has: its end, in small letters."""
    return ulid[-_ID_LENGTH:].lower()


def format_watch_id(agent: str, request: int) -> str:
    """Write the id of a watch: `w42-nova`. The pair of `parse_watch_id`."""
    return f"w{request}-{agent}"


def parse_watch_id(text: str) -> tuple[str, int] | None:
    """Read agent and request back from the id of a watch; None when it is none."""
    found = _WATCH_ID.fullmatch(text)
    return None if found is None else (found[2], int(found[1]))


def preset_filter(preset: str, names: Sequence[str] = ()) -> Filter:
    """Give what a preset looks for: agents that go idle, stop or get blocked, or collisions."""
    if preset == STOPPED:
        return Filter(types=(BYE,), agents=tuple(names))
    if preset == COLLISION:
        return Filter(types=(STATUS,), agents=tuple(names))
    if preset not in PRESETS:
        raise BadRequest(f"the presets are {', '.join(PRESETS)}, not {preset!r}")
    return Filter(types=(STATUS,), agents=tuple(names), statuses=(AgentState(preset).value,))


def filter_words(wanted: Filter) -> list[str]:
    """Give every word of every filter."""
    return [word for name in Filter.__struct_fields__ for word in getattr(wanted, name)]


def query_of(wanted: Filter, after: int = 0) -> Query:
    """Give a filter as a question to the log, behind a place."""
    return Query(**msgspec.structs.asdict(wanted), after=after)


def is_system(event: Event) -> bool:
    """Tell whether the bus itself wrote an event. No name of anybody begins with a bracket."""
    return event.sender.startswith("[")


def is_news(event: Event) -> bool:
    """Tell whether anybody at all is told of an event: not of what the bus writes, nor of what is held."""
    return not is_system(event) and not _is_held(event)


def is_for(wanted: Filter, owner: str, event: Event) -> bool:
    """Tell whether an event that passes a filter is for its owner.

    Its own events are only when the filter names it; what repeats a hello or bye is only when the filter
    names that type.
    """
    return (not is_echo(event) or LIFE in wanted.types) and (
        event.sender != owner or _is_named(wanted, owner)
    )


def is_hit(subscription: Subscription, event: Event) -> bool:
    """Tell whether a subscription's owner is told of an event.

    It must be news, younger than the subscription, for its owner, and pass the filter. A collision is more
    than one event, and is not found here.
    """
    return (
        subscription.preset != COLLISION
        and is_news(event)
        and is_for(subscription.filter, subscription.owner, event)
        and matches(query_of(subscription.filter, subscription.seq), event)
    )


def is_collision_hit(subscription: Subscription, edits: Sequence[Event]) -> bool:
    """Tell whether a subscription's owner is told that these edits of one file collide, the newest first.

    An owner who is one of them is told too: that is what it wants to know.
    """
    wanted = query_of(subscription.filter)
    return (
        subscription.preset == COLLISION
        and edits[0].seq > subscription.seq
        and any(matches(wanted, edit) for edit in edits)
    )


def _is_held(event: Event) -> bool:
    # A hit would say what a brake keeps from its recipients, and go on what it stops.
    return event.type == MESSAGE and event.payload.get("held", "") != ""


def _is_named(wanted: Filter, name: str) -> bool:
    return any(word.lower().removeprefix("@") == name.lower() for word in (*wanted.agents, *wanted.senders))


decode_subscription: Final = msgspec.json.Decoder(Subscription).decode
decode_watch: Final = msgspec.json.Decoder(Watch).decode
decode_due: Final = msgspec.json.Decoder(Due).decode
