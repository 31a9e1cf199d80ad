"""The four priorities of a message, and their names. Does not decide when one may be delivered."""

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
"""Every name, most urgent first."""


def parse_priority(word: str) -> Priority:
    """Parse the exact name of a priority; refuse anything else."""
    priority = _PRIORITIES.get(word)
    if priority is None:
        raise BadRequest(f"invalid priority: {word}")
    return priority


def format_priority(priority: Priority) -> str:
    """Return the name that `parse_priority` reads."""
    return _WORDS[priority]
