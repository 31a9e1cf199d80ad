"""Room events as the room tools show them, and filters for them. Pure.

A target selects events by the agents they concern. `self` selects messages to the caller, room messages,
joins and leaves of others, and other events from or to the caller. A name selects events addressed to that
agent; `any` selects all.
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
"""The delivery hints of a sender; the receiver decides."""

MESSAGE_SENT: Final = "message_sent"

_STORED: Final = {MESSAGE_SENT: MESSAGE, "join": JOINED, "leave": LEFT}
"""Accepted names of event types, with the stored names."""
_OWN_FIELDS: Final = frozenset({"room", "from", "turn_id", "handoff", "reason"})
"""Payload fields that are shown outside the payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The events of a room that a caller wants."""

    caller: str | None = None
    target: str = ANY
    types: frozenset[str] | None = None
    """Stored types; None selects all types."""
    sender: str | None = None


def event_filter(
    *,
    caller: str | None,
    target: str = SELF,
    event_type: str | Sequence[str] | None = None,
    sender: str | None = None,
) -> EventFilter:
    """Make a filter from the arguments of a caller. Any text is a valid type, except the empty one.

    Raises `AgentIdRequired` for `self` without a caller, `InvalidEventTypeFilter` for a filter without types.
    """
    if target == SELF and caller is None:
        raise AgentIdRequired("'self' needs a caller with a name; join first, or use 'any'")
    return EventFilter(
        caller=caller,
        target=target if target in (SELF, ANY) else _name(target),
        types=_types(event_type),
        sender=None if sender is None else _name(sender),
    )


def passes(wanted: EventFilter, event: Event) -> bool:
    """Return whether a room event matches a filter."""
    if wanted.types is not None and event.type not in wanted.types:
        return False
    if wanted.sender is not None and from_agent(event) != wanted.sender:
        return False
    if wanted.target == ANY:
        return True
    if wanted.target == SELF:
        assert wanted.caller is not None  # a filter for `self` has a caller
        return is_concerned(event, wanted.caller)
    return wanted.target in to_agents(event)


def room_event(event: Event) -> dict[str, object]:
    """Return an event as the room tools show it. A message has the type `message_sent`."""
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
    """Return the delivery hint of a message."""
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
        raise InvalidEventTypeFilter("name one or more event types, or leave out the filter for all")
    return frozenset(_STORED.get(word, word) for word in words)


def _name(written: str) -> str:
    """Return a name as stored: lower case, with the device in upper case."""
    name, colon, device = written.removeprefix("@").partition(":")
    return name.lower() + colon + device.upper()
