"""Lines to and from one peer: bounded queues and frames. A peer that never reads blocks no other."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Final, Protocol

from palaver.errors import BadRequest, NotAllowed
from palaver.protocol.agents import Caller, Standing

# --------------------
# Lines waiting to be written to one peer. Bounded: a peer that never reads blocks no other.

_LIMIT_LINES: Final = 1024
_LIMIT_BYTES: Final = 4 * 1024 * 1024


class OutboxWriter(Protocol):
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

    async def drain(self, writer: OutboxWriter) -> None:
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


# --------------------
# One connection: its caller, the names opened on it, and its outbox. Reads and writes no bytes itself.


class Link:
    """A caller at a door, from connecting to closing. Belongs to the loop's thread."""

    def __init__(self, *, id: str, caller: Caller, outbox: Outbox) -> None:
        self.id = id
        self.caller = caller
        self.outbox = outbox
        self._names: dict[str, Standing] = {}
        self._ends = ExitStack()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True as soon as closing starts."""
        return self._is_closed

    @property
    def names(self) -> Mapping[str, Standing]:
        """The names opened on this link, in order of opening. They end with the link."""
        return MappingProxyType(self._names)

    def open_name(self, name: str, standing: Standing) -> None:
        """Open a child name on this link, with at most the link's own standing. Repeats are harmless."""
        if self._is_closed:
            raise BadRequest("the connection is closed")
        if standing > self.caller.standing:
            raise NotAllowed(f"opening {name}", self.caller.standing.word, standing.word)
        self._names[name] = standing

    def close_name(self, name: str) -> None:
        """Close a name; does nothing if it is not open here."""
        self._names.pop(name, None)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the link closes, last added first; at once if it has closed already."""
        if self._is_closed:
            callback()
        else:
            self._ends.callback(callback)

    def close(self) -> None:
        """Close the outbox and run the callbacks, once. A callback that fails does not stop the others."""
        if self._is_closed:
            return
        self._is_closed = True
        self.outbox.close()
        self._ends.close()
