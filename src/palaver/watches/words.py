"""The text of a subscription hit, on one line. Pure: events in, text out."""

from collections.abc import Sequence
from typing import Final

from palaver.model.envelope import Event
from palaver.model.subscription import Subscription
from palaver.model.summary import summary

LIMIT_EXCERPT: Final = 300


def hit_text(subscription: Subscription, event: Event) -> str:
    """Return the text of a hit:

    `[sub a1b2c3] #57 status nova: idle (in src/x.py)`, then the owner's own text.
    """
    to = f" → {', '.join(event.to)}" if event.to else ""
    return _worded(subscription, f"#{event.seq} {event.type} {event.sender}{to}: {summary(event)}")


def collision_text(subscription: Subscription, event: Event, agents: Sequence[str], file: str) -> str:
    """Return the text of a collision: `[sub a1b2c3] #57 collision: nova and luna edited src/x.py`."""
    first, *others = agents
    return _worded(subscription, f"#{event.seq} collision: {', '.join(others)} and {first} edited {file}")


def _worded(subscription: Subscription, said: str) -> str:
    text = f"[sub {subscription.id}] {_one_line(said)}"
    return f"{text} — {subscription.text}" if subscription.text else text


def _one_line(text: str) -> str:
    """Return a text on one line, without unprintable characters and cut: the event itself has the rest."""
    cut = text[: LIMIT_EXCERPT + 1]
    plain = " ".join("".join(char if char.isprintable() else " " for char in cut).split())
    return plain if len(text) <= LIMIT_EXCERPT else f"{plain[: LIMIT_EXCERPT - 1]}…"
