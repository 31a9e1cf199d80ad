"""What a hit says of an event, on one line. Pure: events in, words out."""

from collections.abc import Sequence
from typing import Final

from palaver.model.envelope import Event
from palaver.model.message import MESSAGE, readable_text
from palaver.model.subscription import BYE, DELIVERY, STATUS, Subscription

LIMIT_EXCERPT: Final = 300
_HELLO: Final = "agent.hello"


def hit_text(subscription: Subscription, event: Event) -> str:
    """Word a hit: `[sub a1b2c3] #57 status nova: idle (in src/x.py)`, then what its owner wants said."""
    to = f" → {', '.join(event.to)}" if event.to else ""
    return _worded(subscription, f"#{event.seq} {event.type} {event.sender}{to}: {_about(event)}")


def collision_text(subscription: Subscription, event: Event, agents: Sequence[str], file: str) -> str:
    """Word a collision: `[sub a1b2c3] #57 collision: nova and luna edited src/x.py`."""
    first, *others = agents
    return _worded(subscription, f"#{event.seq} collision: {', '.join(others)} and {first} edited {file}")


def _worded(subscription: Subscription, said: str) -> str:
    text = f"[sub {subscription.id}] {_one_line(said)}"
    return f"{text} — {subscription.text}" if subscription.text else text


def _one_line(text: str) -> str:
    """Leave out what may not stand in a text, and cut: the event itself has the rest."""
    cut = text[: LIMIT_EXCERPT + 1]
    plain = " ".join("".join(char if char.isprintable() else " " for char in cut).split())
    return plain if len(text) <= LIMIT_EXCERPT else f"{plain[: LIMIT_EXCERPT - 1]}…"


def _about(event: Event) -> str:
    payload = event.payload
    if event.type == STATUS:
        file = payload.get("file")
        return _with(payload.get("state"), payload.get("detail"), payload.get("tool"), file and f"in {file}")
    if event.type == _HELLO:
        return _with("joined", payload.get("runtime"))
    if event.type == BYE:
        return _with("left", payload.get("reason"))
    if event.type == DELIVERY:
        seqs = payload.get("messages")
        numbers = [f"#{seq}" for seq in seqs] if isinstance(seqs, (list, tuple)) else []
        return _with(
            f"{payload.get('state')} {', '.join(numbers)}", payload.get("lane"), payload.get("reason")
        )
    text = readable_text(event)
    return text if event.type == MESSAGE else text.removeprefix(event.type).lstrip()


def _with(word: object, *details: object) -> str:
    said = ", ".join(str(detail) for detail in details if detail)
    return f"{word} ({said})" if said else str(word)
