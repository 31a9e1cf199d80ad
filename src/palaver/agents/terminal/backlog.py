"""A bounded queue of output that waits to be parsed. Pure.

When the queue is full, the oldest output is skipped. Of the skipped output only the status sequences of the
program are kept, and whether it could have drawn anywhere but on the current line.
"""

import re
from dataclasses import dataclass
from typing import Final

BACKLOG_BYTES: Final = 128 * 1024
"""Bytes of output that may wait to be parsed."""
KEPT_BYTES: Final = 32 * 1024
"""The newest bytes, which are kept when the limit is exceeded."""

_LINE_START: Final = re.compile(rb"[\r\n](?!\n)")
_TELLING: Final = re.compile(
    rb"\x1b\[\?[0-9;]{1,64}[hl]|\x1b\](?:0|2|7501);[^\x07\x1b]{0,1024}(?:\x07|\x1b\\)"
)
"""Sequences that are kept of skipped output: modes, titles, and the status that the program reports."""
_DRAWING: Final = re.compile(
    rb"\x1b(?!\[[0-9;:]{0,64}[mK]|\[\?25[hl]|\][^\x07\x1b]{0,1024}(?:\x07|\x1b\\)|\\)"
)
"""Escape sequences that may draw on another line; colours, clearing a line and hiding the cursor do not."""
_MOVING: Final = b"\x0b\x0c\x0e\x0f"
"""Single control characters that may draw on another line."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Summary of skipped output: its status sequences and its number of lines."""

    told: tuple[bytes, ...]
    lines: int
    is_linear: bool
    """It wrote only line by line, so the earlier text has moved up or was overwritten."""


class Backlog:
    """Waiting output, oldest first. At most `BACKLOG_BYTES`; older output is skipped."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, data: bytes) -> Skipped | None:
        """Add output. If the limit is exceeded, keep the newest part and return a summary of the rest."""
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
        """Remove and return the oldest bytes, at most `limit_bytes`."""
        piece = bytes(self._waiting[:limit_bytes])
        del self._waiting[:limit_bytes]
        return piece


def _draws_elsewhere(data: bytes, end: int) -> bool:
    # This must be fast for a flood of output: a pattern that starts with a character set is 20 times slower.
    skipped = data[:end]
    return len(skipped.translate(None, _MOVING)) < end or _DRAWING.search(skipped) is not None
