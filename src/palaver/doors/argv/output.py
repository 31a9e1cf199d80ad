"""Standard output of one thin client: frames within a window, each with a token to resume from.

At most 64 KiB, or one larger frame, may be sent and not yet flushed, so a client that never reads delays only
its own command. A client that lost the daemon brings the token of the last frame that it flushed. A command
that streams makes its own tokens; for every other command the number of its writes is enough: flushed writes
are not repeated.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Final

from palaver.doors.argv.wire import WINDOW_BYTES, output_frame

_LIMIT_PIECE_BYTES: Final = 8 * 1024 * 1024
"""The limit of one frame. Longer data is sent in several frames, and the token with the last of them."""

_WRITES: Final = re.compile(rb"\+([0-9]{1,9})")


class Output:
    """The output of a command, in order. For use in the event loop's thread only."""

    def __init__(self, send: Callable[[bytes], None], go: Callable[[], None] = lambda: None) -> None:
        """`send` queues a frame and does not wait; `go` sends the queued frames now."""
        self._send = send
        self._go = go
        self._in_flight: deque[tuple[int, int, Callable[[], None] | None]] = deque()
        self._bytes_in_flight = 0
        self._number = 0
        self._writes = 0
        self._writes_flushed_before = 0
        self._changed = asyncio.Event()

    def go_on_from(self, token: bytes | None) -> None:
        """Skip the writes that the client had flushed before. A command handles its own tokens itself."""
        if token is not None and (found := _WRITES.fullmatch(token)):
            self._writes_flushed_before = int(found[1])

    async def write(
        self, data: bytes, token: bytes = b"", *, flushed: Callable[[], None] | None = None
    ) -> None:
        """Send bytes, waiting while the window is full. Without bytes only the token is sent.

        `flushed` is called once, after the client has written out all bytes. It is not called if the client
        disconnects first.
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
        """Record that the client has written out the frame with this number, and all frames before it."""
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
