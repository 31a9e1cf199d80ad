"""Whom an event of a room comes from, is addressed to, and concerns. Pure."""

from typing import Final

from palaver.model.envelope import Event
from palaver.model.message import MESSAGE

JOINED: Final = "member_joined"
LEFT: Final = "member_left"
RELEASED: Final = "release"
SAID_FOR: Final = (LEFT, RELEASED)
"""What the bus writes in the place of a member that is gone; `from` in the payload is that member."""

_COMINGS: Final = frozenset({JOINED, LEFT})


def from_agent(event: Event) -> str | None:
    """Give the one an event comes from: its sender, or whom it names itself, as a claim the last holder."""
    if "from" in event.payload:
        found = event.payload["from"]
        return found if isinstance(found, str) else None
    return event.sender


def writers(event: Event) -> tuple[str, ...]:
    """Give those whose event it is: its sender, and the member in whose place the bus has written it."""
    found = event.payload.get("from") if event.type in SAID_FOR else None
    # No name of anybody begins with a bracket.
    return (
        (event.sender, found) if isinstance(found, str) and event.sender.startswith("[") else (event.sender,)
    )


def to_agents(event: Event) -> tuple[str, ...]:
    """Give those an event is addressed to; nobody when that is the room."""
    if event.type != MESSAGE:
        return event.to
    if any(token.startswith("#") for token in event.to):
        return ()
    return tuple(token.removeprefix("@") for token in event.to)


def is_concerned(event: Event, name: str) -> bool:
    """Tell whether an event is for somebody who listens in its room.

    Messages to them, room messages of others, joins and leaves of others, and other events where they are
    from or to.
    """
    sender, to = from_agent(event), to_agents(event)
    if event.type == MESSAGE:
        return name in to if to else sender != name
    if event.type in _COMINGS:
        return sender != name
    return sender == name or name in to
