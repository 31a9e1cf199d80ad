"""Where holders keep what lets them in at their harness, and how such a folder says whose it is. Pure.

The holder writes it and takes it away; the daemon takes away what a holder that was killed has left.
"""

from dataclasses import dataclass
from typing import Final

NATIVE_FOLDER: Final = "agents/native"
"""In the home of the bus; each agent has one in it."""
HOLDER_FILE: Final = "holder"
_LIMIT_DIGITS: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that takes a folder away. A number is used again; with its start it is not."""

    pid: int
    start: int = 0
    """Ticks from boot to its start; 0 where it could not say."""


def format_holder(holder: Holder) -> str:
    """Write who has a folder."""
    return f"{holder.pid} {holder.start}"


def parse_holder(text: str) -> Holder | None:
    """Read who has a folder; None for what says nobody. An older holder has written its number alone."""
    words = text.split()
    if len(words) not in (1, 2) or not all(word.isascii() and word.isdigit() for word in words):
        return None
    if max(map(len, words)) > _LIMIT_DIGITS:
        return None
    return Holder(pid=int(words[0]), start=int(words[1]) if len(words) == 2 else 0)
