"""Output that waits to be understood: a bounded amount of it. Pure.

What does not fit is skipped, the oldest first. Of what is skipped only what the program said of itself is
picked out, and whether the rest could have drawn anywhere but on the line it was at.
"""

import re
from dataclasses import dataclass
from typing import Final

BACKLOG_BYTES: Final = 128 * 1024
"""Output that may wait to be understood."""
KEPT_BYTES: Final = 32 * 1024
"""What is kept of it when more comes: the newest."""

_LINE_START: Final = re.compile(rb"[\r\n](?!\n)")
_TELLING: Final = re.compile(
    rb"\x1b\[\?[0-9;]{1,64}[hl]|\x1b\](?:0|2|7501);[^\x07\x1b]{0,1024}(?:\x07|\x1b\\)"
)
"""What is picked out of skipped output: modes, titles, and the program's own status."""
_DRAWING: Final = re.compile(
    rb"\x1b(?!\[[0-9;:]{0,64}[mK]|\[\?25[hl]|\][^\x07\x1b]{0,1024}(?:\x07|\x1b\\)|\\)"
)
"""Anything that draws elsewhere: colours, a cleared line and a hidden cursor do not."""
_MOVING: Final = b"\x0b\x0c\x0e\x0f"
"""Single control characters that draw elsewhere."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """What is left of output that was passed over."""

    told: tuple[bytes, ...]
    lines: int
    is_linear: bool
    """It only went on line by line: what stood there has moved up, or was written over."""


class Backlog:
    """Output in the order it came."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, data: bytes) -> Skipped | None:
        """Put output aside; when there is no room, give what is left of all that is skipped for it."""
        if len(self._waiting) + len(data) <= BACKLOG_BYTES:
            self._waiting += data
            return None
        whole = bytes(self._waiting) + data
        start = _LINE_START.search(whole, len(whole) - KEPT_BYTES)
        kept_from = len(whole) - KEPT_BYTES if start is None else start.end()
        self._waiting = bytearray(whole[kept_from:])
        return Skipped(
            told=tuple(found[0] for found in _TELLING.finditer(whole, 0, kept_from)),
            lines=whole.count(b"\n", 0, kept_from),
            is_linear=start is not None and not _draws_elsewhere(whole, kept_from),
        )

    def take(self, limit_bytes: int) -> bytes:
        """Give the oldest of it, once."""
        piece = bytes(self._waiting[:limit_bytes])
        del self._waiting[:limit_bytes]
        return piece


def _draws_elsewhere(data: bytes, end: int) -> bool:
    # A flood comes through here, so no pattern starts at a set of characters: that is twenty times slower.
    skipped = data[:end]
    return len(skipped.translate(None, _MOVING)) < end or _DRAWING.search(skipped) is not None
