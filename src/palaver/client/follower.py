"""Follow the log on a separate connection, so that a slow reader delays no other request.

A follower needs no name, changes nothing, and continues across restarts of the daemon after its last event.
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
"""Events that may wait to be taken. At this limit reading pauses; the daemon sends the rest later."""
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses before the next connection, when several in a row ended without an event."""


class Follower:
    """Events that match a filter, in log order, each once."""

    def __init__(
        self, home: str, request: EventsOp, on_unreadable: Callable[[], None] = lambda: None
    ) -> None:
        """Create a follower. `on_unreadable` is called for each event that is skipped as unreadable."""
        self._home = home
        self._request = request
        self._waiting: Stream[Event] = Stream()
        self._on_unreadable = on_unreadable
        self._is_closed = False
        self._closing = asyncio.Event()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield events as they arrive. Raises Disconnected if the daemon cannot be reached again."""
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
        """End; a current reader gets the remaining events and then stops."""
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
        """Skip an unreadable event; it is not requested again after a reconnect."""
        self._on_unreadable()
        after = max(self._request.after, place_from_json(line))
        if not len(self._waiting):  # Otherwise the waiting events would be skipped with it.
            self._request = msgspec.structs.replace(self._request, after=after)

    async def _pause(self, pause_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    def _lose(self, wire: Wire) -> None:
        self._waiting.end()
