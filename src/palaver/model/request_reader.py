"""Find the end of the only request on a connection to an agent's own socket. Pure.

The holder reads the request, and so does the daemon: both must agree where it ends.
"""

import re
from typing import Final

from palaver.errors import MessageTooLarge
from palaver.model.text import LIMIT_FRAME_BYTES

_SIGNS: Final = re.compile(rb'["{}\n]')
_IN_STRING: Final = re.compile(rb'\\[^\n]|["\n]')
_BLANKS: Final = b" \t\r\n"


class RequestReader:
    """Separates the request from the following bytes. Reads every byte once, however they arrive."""

    def __init__(self, limit_bytes: int = LIMIT_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._received = bytearray()
        self._place = 0
        self._depth = 0
        self._is_in_string = False

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Add bytes; return the request and all bytes after it, or None if it has not ended.

        Raises MessageTooLarge for one that does not end within the limit.
        """
        if not self._received:
            data = data.lstrip(_BLANKS)
        self._received += data
        end = self._find_end()
        if end is not None:
            return bytes(self._received[:end]), bytes(self._received[end:])
        if len(self._received) > self._limit_bytes:
            raise MessageTooLarge("the request", len(self._received), self._limit_bytes)
        return None

    def end(self) -> bytes:
        """Return the bytes of a request without an end, at the end of input; empty if nothing was sent."""
        return bytes(self._received)

    def _find_end(self) -> int | None:
        """Return the end of the line, or of the object that begins it, or None."""
        while found := (_IN_STRING if self._is_in_string else _SIGNS).search(self._received, self._place):
            sign = found[0]
            self._place = found.end()
            if sign == b"\n":
                return found.start()
            if sign == b'"':
                self._is_in_string = not self._is_in_string
            elif sign == b"{":
                self._depth += 1
            elif sign == b"}":
                self._depth -= 1
                if self._depth == 0:
                    return self._place
        # A backslash at the very end is read again, together with the byte after it.
        is_half = self._is_in_string and self._received[self._place :].endswith(b"\\")
        self._place = len(self._received) - is_half
        return None
