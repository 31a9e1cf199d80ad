"""The folders for a holder's connection to its harness, and the file that names the holder. Pure.

The holder writes and removes its folder; the daemon removes the folder of a killed holder.
"""

from dataclasses import dataclass
from typing import Final

NATIVE_FOLDER: Final = "agents/native"
"""In the home of the bus; each agent has a folder in it."""
HOLDER_FILE: Final = "holder"
_LIMIT_DIGITS: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that removes a folder. Pids are reused; together with the start time they are unique."""

    pid: int
    start: int = 0
    """Ticks from boot to its start; 0 if unknown."""


def format_holder(holder: Holder) -> str:
    """Format the holder of a folder."""
    return f"{holder.pid} {holder.start}"


def parse_holder(text: str) -> Holder | None:
    """Parse the holder of a folder; None for an invalid text. An older holder has written only its pid."""
    words = text.split()
    if len(words) not in (1, 2) or not all(word.isascii() and word.isdigit() for word in words):
        return None
    if max(map(len, words)) > _LIMIT_DIGITS:
        return None
    return Holder(pid=int(words[0]), start=int(words[1]) if len(words) == 2 else 0)
