"""Following the log on a connection of its own: one that is read slowly holds up nobody else.

It needs no name, changes nothing, and goes on across restarts of the daemon from where it was.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final

import msgspec

from palaver.client.answer import event_from_json, place_from_json
from palaver.client.stream import Stream
from palaver.client.wire import Line, Wire, open_wire
from palaver.model.envelope import Event
from palaver.model.lines.program_ops import EventsOp
from palaver.model.lines.wire import op_to_json

LIMIT_WAITING: Final = 1000
"""When so many events wait to be taken, no more are read, and the daemon reads on from there later."""
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""How long to wait before the next connection when several in a row have ended without an event."""


class Follower:
    """Events that pass a filter, in the order of the log, each once."""

    def __init__(
        self, home: str, request: EventsOp, on_unreadable: Callable[[], None] = lambda: None
    ) -> None:
        """`on_unreadable` is called for each event that is skipped because it cannot be read."""
        self._home = home
        self._request = request
        self._waiting: Stream[Event] = Stream()
        self._on_unreadable = on_unreadable
        self._is_closed = False
        self._closing = asyncio.Event()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Give events as they come. Raises Disconnected when there is no way back to the daemon."""
        is_returning = False
        empty = 0
        while not self._is_closed:
            waiting = self._waiting = Stream()
            wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
            self._wire = wire
            is_returning = True
            empty += 1
            wire.write(op_to_json(1, self._request))
            try:
                async for event in waiting:
                    empty = 0
                    if len(waiting) == LIMIT_WAITING // 2:
                        wire.resume_reading()
                    self._request = msgspec.structs.replace(self._request, after=event.seq)
                    yield event
            finally:
                wire.close()
            if empty:
                await self._pause(_PAUSES_S[min(empty, len(_PAUSES_S)) - 1])

    def close(self) -> None:
        """End; whoever is reading is given what is left, and stops."""
        self._is_closed = True
        self._closing.set()
        self._waiting.end()

    def _hear(self, line: Line) -> None:
        if line.error:
            self._waiting.end(line.refusal)
        elif line.push == "event":
            event = event_from_json(line.event)
            if event is None:
                self._skip(line.event)
                return
            self._waiting.put(event)
            if len(self._waiting) == LIMIT_WAITING:
                self._wire.pause_reading()

    def _skip(self, line: msgspec.Raw) -> None:
        """Pass over an event that cannot be read; after a loss it is not asked for again."""
        self._on_unreadable()
        after = max(self._request.after, place_from_json(line))
        if not len(self._waiting):  # Else the events that wait would be passed over with it.
            self._request = msgspec.structs.replace(self._request, after=after)

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    def _lose(self, wire: Wire) -> None:
        self._waiting.end()
