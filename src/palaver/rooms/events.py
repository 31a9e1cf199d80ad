"""What happened in a room, as its tools show it, and which of it somebody asked for. Pure.

A target chooses by who is concerned: `self` is messages to me, room messages of others, joins and leaves of
others, and other events where I am from or to; an agent's name is what is addressed to it; `any` is all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.errors import AgentIdRequired, InvalidEventTypeFilter
from palaver.model.concern import JOINED, LEFT, from_agent, is_concerned, to_agents
from palaver.model.envelope import Event
from palaver.model.message import MESSAGE

SELF: Final = "self"
ANY: Final = "any"

NORMAL: Final = "normal"
INTERRUPT: Final = "interrupt"
HINTS: Final = (NORMAL, INTERRUPT)
"""What a sender can hint at; the receiver decides."""

MESSAGE_SENT: Final = "message_sent"

_STORED: Final = {MESSAGE_SENT: MESSAGE, "join": JOINED, "leave": LEFT}
"""Names of types that are accepted for the stored one."""
_OWN_FIELDS: Final = frozenset({"room", "from", "turn_id", "handoff", "reason"})
"""What of a payload is shown beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events of a room somebody asks for."""

    caller: str | None = None
    target: str = ANY
    types: frozenset[str] | None = None
    """Stored types; None lets all through."""
    sender: str | None = None


def event_filter(
    *,
    caller: str | None,
    target: str = SELF,
    event_type: str | Sequence[str] | None = None,
    sender: str | None = None,
) -> EventFilter:
    """Make a filter of what a caller wrote. Any word is a type; an empty list or word is none.

    Raises `AgentIdRequired` for `self` without a caller, `InvalidEventTypeFilter` for a filter without types.
    """
    if target == SELF and caller is None:
        raise AgentIdRequired("'self' is whoever asks, and you have no name: join first, or ask for 'any'")
    return EventFilter(
        caller=caller,
        target=target if target in (SELF, ANY) else _name(target),
        types=_types(event_type),
        sender=None if sender is None else _name(sender),
    )


def passes(wanted: EventFilter, event: Event) -> bool:
    """Tell whether an event of the room is one that was asked for."""
    if wanted.types is not None and event.type not in wanted.types:
        return False
    if wanted.sender is not None and from_agent(event) != wanted.sender:
        return False
    if wanted.target == ANY:
        return True
    if wanted.target == SELF:
        assert wanted.caller is not None  # a filter for oneself has a caller
        return is_concerned(event, wanted.caller)
    return wanted.target in to_agents(event)


def room_event(event: Event) -> dict[str, object]:
    """Give an event as the room tools show it. A message is printed as `message_sent`."""
    to = to_agents(event)
    return {
        "event_seq": event.seq,
        "event_id": event.id,
        "event_type": MESSAGE_SENT if event.type == MESSAGE else event.type,
        "from_agent_id": from_agent(event),
        "to_agent_id": to[0] if len(to) == 1 else list(to) or None,
        "turn_id": event.payload.get("turn_id"),
        "handoff": event.payload.get("handoff"),
        "reason": event.payload.get("reason"),
        "payload": _payload(event),
        "created_at": event.ts,
    }


def hint_of(payload: Mapping[str, object]) -> str:
    """Give the hint a message carries."""
    return INTERRUPT if payload.get("delivery_hint") == INTERRUPT else NORMAL


def _payload(event: Event) -> dict[str, object] | None:
    if event.type == MESSAGE:
        return {"body": event.payload.get("text", ""), "delivery_hint": hint_of(event.payload)}
    return {key: value for key, value in event.payload.items() if key not in _OWN_FIELDS} or None


def _types(written: str | Sequence[str] | None) -> frozenset[str] | None:
    if written is None:
        return None
    words = [written] if isinstance(written, str) else list(written)
    if not words or not all(isinstance(word, str) and word for word in words):
        raise InvalidEventTypeFilter("name one type of event, or several; leave the filter out for all")
    return frozenset(_STORED.get(word, word) for word in words)


def _name(written: str) -> str:
    """Give a name as the log has it: small letters, the device in capitals."""
    name, colon, device = written.removeprefix("@").partition(":")
    return name.lower() + colon + device.upper()
