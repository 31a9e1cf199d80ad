"""The four priorities of a message, and their words. Says nothing about when one may be delivered."""

import enum
from typing import Final

from palaver.errors import BadRequest


class Priority(enum.IntEnum):
    """Smaller goes first. `IDLE_FIRST` is last in, first out; the others are first in, first out."""

    INTERRUPT = 1
    NORMAL = 2
    IDLE_FIRST = 3
    IDLE = 4


_WORDS: Final = {priority: priority.name.lower().replace("_", "-") for priority in Priority}
_PRIORITIES: Final = {word: priority for priority, word in _WORDS.items()}

PRIORITY_WORDS: Final = tuple(_PRIORITIES)
"""Every word, most urgent first."""


def parse_priority(word: str) -> Priority:
    """Read a priority's word, written exactly; anything else is refused."""
    priority = _PRIORITIES.get(word)
    if priority is None:
        raise BadRequest(f"invalid priority: {word}")
    return priority


def format_priority(priority: Priority) -> str:
    """Write the word that `parse_priority` reads."""
    return _WORDS[priority]
