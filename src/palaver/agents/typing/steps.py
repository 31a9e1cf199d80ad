"""What is to be typed, the steps of typing it, and how that can end. Values only."""

import enum
from dataclasses import dataclass

from palaver.model.delivery import Grade
from palaver.model.priority import Priority


class Answer(enum.StrEnum):
    """What became of the message."""

    SEEN = "seen"
    """It left the composer."""
    DEFERRED = "deferred"
    """Not now, and no part of it is in the terminal: it may be offered again."""
    REFUSED = "refused"
    """Never: the terminal is not the agent's."""
    UNCONFIRMED = "unconfirmed"
    """Keys were written and nobody can say what became of them. It must not be typed again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is to be typed. Raw text goes byte for byte, with nothing before, behind or after it."""

    text: str
    priority: Priority = Priority.NORMAL
    is_raw: bool = False
    is_secret: bool = False
    """Raw keys for a prompt that shows nothing of them, and for no other."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write these bytes now, all of them, and ask again when they are written."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after so many milliseconds, or as soon as the screen or a fact changes.

    A reason means that the text is in the composer, or half way there, and why it is held.
    """

    ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The end. `grade` is set when it was seen."""

    answer: Answer
    reason: str = ""
    grade: Grade | None = None


Step = Write | Wait | Done
