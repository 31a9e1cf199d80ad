"""The source, the recipients and the concerned members of a room event. Pure."""

from typing import Final

from palaver.model.envelope import Event
from palaver.model.message import MESSAGE

JOINED: Final = "member_joined"
LEFT: Final = "member_left"
RELEASED: Final = "release"
SAID_FOR: Final = (LEFT, RELEASED)
"""Events that the bus writes for a member that has exited; `from` in the payload is that member."""

_COMINGS: Final = frozenset({JOINED, LEFT})


def from_agent(event: Event) -> str | None:
    """Return the source of an event: its sender, or the agent it names, as a claim names the last owner."""
    if "from" in event.payload:
        found = event.payload["from"]
        return found if isinstance(found, str) else None
    return event.sender


def writers(event: Event) -> tuple[str, ...]:
    """Return the authors of an event: its sender, and the member for which the bus has written it."""
    found = event.payload.get("from") if event.type in SAID_FOR else None
    # No agent name begins with a bracket.
    return (
        (event.sender, found) if isinstance(found, str) and event.sender.startswith("[") else (event.sender,)
    )


def to_agents(event: Event) -> tuple[str, ...]:
    """Return the agents an event is addressed to; none if that is the room."""
    if event.type != MESSAGE:
        return event.to
    if any(token.startswith("#") for token in event.to):
        return ()
    return tuple(token.removeprefix("@") for token in event.to)


def is_concerned(event: Event, name: str) -> bool:
    """Return whether an event concerns a member that listens in its room.

    Messages to it, room messages of others, joins and leaves of others, and other events from or to it.
    """
    sender, to = from_agent(event), to_agents(event)
    if event.type == MESSAGE:
        return name in to if to else sender != name
    if event.type in _COMINGS:
        return sender != name
    return sender == name or name in to
