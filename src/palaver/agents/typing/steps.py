"""The text to type, the steps of typing it, and the possible outcomes. Values only."""

import enum
from dataclasses import dataclass

from palaver.model.delivery import Grade
from palaver.model.priority import Priority


class Answer(enum.StrEnum):
    """The outcome of typing a message."""

    SEEN = "seen"
    """It left the composer."""
    DEFERRED = "deferred"
    """It cannot be typed now, and no part of it is in the terminal. It may be offered again."""
    REFUSED = "refused"
    """It must not be typed into this terminal."""
    UNCONFIRMED = "unconfirmed"
    """Keys were written and their effect is unknown. It must not be typed again automatically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A text to type. Raw text is written byte for byte, with no keys before or after it."""

    text: str
    priority: Priority = Priority.NORMAL
    is_raw: bool = False
    is_secret: bool = False
    """Raw keys for a prompt that hides what is typed. They are refused at any other prompt."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write all of these bytes now, and request the next step when they are written."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Request the next step after `ms` milliseconds, or as soon as the screen or a fact changes.

    `reason` says why a text is held that is already in the composer, or partly; empty if it is not held.
    """

    ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome. `grade` is set if the message was seen."""

    answer: Answer
    reason: str = ""
    grade: Grade | None = None


Step = Write | Wait | Done
