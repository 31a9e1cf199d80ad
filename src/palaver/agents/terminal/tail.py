"""Find an incomplete sequence or character at the end of output. Pure."""

import re
from typing import Final

LIMIT_TAIL_BYTES: Final = 8192
"""A longer sequence counts as one that never ends."""

_UNFINISHED: Final = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x18\x1a\x1b]*\x1b?|[ -/]+)?"
    rb"|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)


def unfinished(seen: bytes) -> bytes:
    """Return the incomplete sequence at the end, or nothing if the output is complete.

    A viewer that receives the screen after `seen` must receive these bytes too. Otherwise it would show the
    rest of the sequence as text.
    """
    last = seen[-LIMIT_TAIL_BYTES:]
    escape = last.rfind(b"\x1b")
    # The last escape may be the terminator of a string that began with the escape before it.
    places = [last.rfind(b"\x1b", 0, escape) if escape > 0 else -1, escape]
    places += range(len(last) - 3, len(last))
    for place in places:
        if place >= 0 and (found := _UNFINISHED.match(last, place)):
            return found[0]
    return b""
