"""The notice to a person about a message that a brake holds. Pure: an event in, a text out."""

from collections.abc import Sequence
from typing import Final

from palaver.model.envelope import Event
from palaver.model.mail import deliverable

_NAMED: Final = 20
"""How many earlier held messages are listed by number."""


def held_text(event: Event, others: Sequence[int]) -> str:
    """Write the notice for a held message: how to release it, and which others of its sender are held."""
    names = ", ".join(deliverable(event).delivered_to)
    text = (
        f"#{event.seq} from {event.sender} to {names} is held: {event.payload['held']}. "
        f"To deliver it, run 'pal release {event.seq}'"
    )
    if not others:
        return text
    numbers = ", ".join(f"#{seq}" for seq in others[:_NAMED])
    rest = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    were = "message from {} was" if len(others) == 1 else "messages from {} were"
    return (
        f"{text}. {len(others)} more {were.format(event.sender)} held since the last notice: "
        f"{numbers}{rest}; 'pal pending' lists the held messages"
    )
