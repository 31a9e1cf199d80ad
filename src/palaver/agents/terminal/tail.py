"""Where output may be cut: the end of it that is only the beginning of a sequence or character. Pure."""

import re
from typing import Final

LIMIT_TAIL_BYTES: Final = 8192
"""A longer sequence is taken for one without an end."""

_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x18\x1a\x1b]*\x1b?|[ -/]+)?"
    rb"|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)


def unfinished(seen: bytes) -> bytes:
    """Give the last bytes that wait for the rest of their sequence; nothing when all of it is whole.

    Whoever is shown the screen as it is after `seen` must be given these bytes too, or would take the rest of
    the sequence for text.
    """
    last = seen[-LIMIT_TAIL_BYTES:]
    escape = last.rfind(b"\x1b")
    # The last escape may only end a string that began with the one before it.
    places = [last.rfind(b"\x1b", 0, escape) if escape > 0 else -1, escape]
    places += range(len(last) - 3, len(last))
    for place in places:
        if place >= 0 and (found := _UNFINISHED.match(last, place)):
            return found[0]
    return b""
