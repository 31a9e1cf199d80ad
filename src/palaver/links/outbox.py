"""Lines waiting to be written to one peer. Bounded: a peer that never reads blocks no other."""

import asyncio
from collections import deque
from typing import Final, Protocol

_LIMIT_LINES: Final = 1024
_LIMIT_BYTES: Final = 4 * 1024 * 1024


class Writer(Protocol):
    """The part of an asyncio stream that an outbox needs."""

    def write(self, data: bytes, /) -> None:
        """Accept bytes to be written."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more. Raises ConnectionError if the peer has disconnected."""
        ...


class Outbox:
    """Lines to one peer, in order. When full it refuses new lines, and loses none that it accepted.

    The limit counts lines and bytes that are not written yet. A single line always fits, at any length:
    otherwise it could never be sent.
    """

    def __init__(self, *, limit_lines: int = _LIMIT_LINES, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._limit_lines = limit_lines
        self._limit_bytes = limit_bytes
        self._lines: deque[bytes] = deque()
        self._lines_held = 0
        self._bytes_held = 0
        self._is_closed = False
        self._is_ended = False
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be written."""
        return self._is_closed

    def offer(self, line: bytes) -> bool:
        """Add one line; return False if there is no room, or if the peer has disconnected.

        A refusal loses nothing: the log has the event, and the peer reads on from its cursor.
        """
        if self._is_closed or self._is_ended:
            return False
        is_full = self._lines_held >= self._limit_lines or self._bytes_held + len(line) > self._limit_bytes
        if self._lines_held and is_full:
            self._room.clear()
            return False
        self._lines.append(line)
        self._lines_held += 1
        self._bytes_held += len(line)
        self._something.set()
        return True

    async def wait_for_room(self) -> bool:
        """Wait after a refusal until half of the limit is free; return False if the peer has disconnected."""
        await self._room.wait()
        return not (self._is_closed or self._is_ended)

    def end(self) -> None:
        """Accept no more lines; accepted lines are still written, and then `drain` returns."""
        self._is_ended = True
        self._something.set()
        self._room.set()

    def close(self) -> None:
        """Drop lines that were not written, and let `drain` return. Closing twice is harmless."""
        self._is_closed = True
        self._lines.clear()
        self._lines_held = self._bytes_held = 0
        self._something.set()
        self._room.set()

    async def drain(self, writer: Writer) -> None:
        """Write lines until the outbox is closed, or ended and empty, or the peer has disconnected.

        Run it in one task per outbox. All waiting lines go out in one write.
        """
        while not self._is_closed:
            await self._something.wait()
            batch = b"".join(self._lines)
            count = len(self._lines)
            self._lines.clear()
            if not count:
                if self._is_ended:
                    self.close()
                self._something.clear()
                continue
            try:
                writer.write(batch)
                await writer.drain()
            except ConnectionError:
                self.close()
            else:
                self._written(count, len(batch))

    def _written(self, count: int, size: int) -> None:
        if self._is_closed:
            return
        self._lines_held -= count
        self._bytes_held -= size
        if self._lines_held <= self._limit_lines // 2 and self._bytes_held <= self._limit_bytes // 2:
            self._room.set()
