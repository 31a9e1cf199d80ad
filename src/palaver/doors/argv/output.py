"""Standard output of one thin client: frames under a window, each with a token by which a repeat goes on.

At most 64 KiB may be on their way and not flushed, so a client that never reads holds up only its own
command. A client that lost the daemon brings the token of the last frame it had flushed. A command that goes
on and on makes tokens of its own; for every other one the number of its writes is enough: those that were
flushed are not sent again.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Final

from palaver.doors.argv.wire import WINDOW_BYTES, output_frame

_LIMIT_PIECE_BYTES: Final = 8 * 1024 * 1024
"""A frame has a limit; what is longer goes out in several, and the token with the last of them."""

_WRITES: Final = re.compile(rb"\+([0-9]{1,9})")


class Output:
    """What a command writes, in order. Belongs to the loop's thread."""

    def __init__(self, send: Callable[[bytes], None], go: Callable[[], None] = lambda: None) -> None:
        """`send` has a frame sent, soon, and does not wait; `go` says that nothing is added to it now."""
        self._send = send
        self._go = go
        self._in_flight: deque[tuple[int, int, Callable[[], None] | None]] = deque()
        self._bytes_in_flight = 0
        self._number = 0
        self._writes = 0
        self._writes_flushed_before = 0
        self._changed = asyncio.Event()

    def go_on_from(self, token: bytes | None) -> None:
        """Leave out what the client had flushed before. A command's own tokens are for the command."""
        if token is not None and (found := _WRITES.fullmatch(token)):
            self._writes_flushed_before = int(found[1])

    async def write(
        self, data: bytes, token: bytes = b"", *, flushed: Callable[[], None] | None = None
    ) -> None:
        """Send bytes, waiting while the window is full. Without bytes only the token goes out.

        `flushed` is called once, when the client has written out all of it; never before, and not at all when
        the client goes away first.
        """
        self._writes += 1
        if self._writes <= self._writes_flushed_before:
            return
        token = token or b"+%d" % self._writes
        for start in range(0, len(data), _LIMIT_PIECE_BYTES) or (0,):
            end = start + _LIMIT_PIECE_BYTES
            is_last = end >= len(data)
            await self._put(data[start:end], token if is_last else b"", flushed if is_last else None)

    async def flushed(self) -> None:
        """Wait until the client has written out everything it was sent."""
        while self._in_flight:
            await self._change()

    def on_flushed(self, number: int) -> None:
        """The client has written out the frame with this number, and all before it."""
        while self._in_flight and self._in_flight[0][0] <= number:
            _, length, flushed = self._in_flight.popleft()
            self._bytes_in_flight -= length
            if flushed is not None:
                flushed()
        self._changed.set()

    async def _put(self, data: bytes, token: bytes, flushed: Callable[[], None] | None) -> None:
        while self._bytes_in_flight and self._bytes_in_flight + len(data) > WINDOW_BYTES:
            await self._change()
        self._number += 1
        self._in_flight.append((self._number, len(data), flushed))
        self._bytes_in_flight += len(data)
        self._send(output_frame(self._number, token, data))

    async def _change(self) -> None:
        self._changed.clear()
        self._go()
        await self._changed.wait()
