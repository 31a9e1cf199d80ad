"""Following the log on a connection of its own: one that is read slowly holds up nobody else.

It needs no name, changes nothing, and goes on across restarts of the daemon from where it was.
"""

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from palaver.client.stream import Stream
from palaver.client.wire import Line, Wire, open_wire
from palaver.model.envelope import Event, decode_event
from palaver.model.lines.program_ops import EventsOp
from palaver.model.lines.wire import op_to_json

LIMIT_WAITING: Final = 1000
"""When so many events wait to be taken, no more are read, and the daemon reads on from there later."""


class Follower:
    """Events that pass a filter, in the order of the log, each once."""

    def __init__(self, home: str, request: EventsOp) -> None:
        self._home = home
        self._request = request
        self._waiting: Stream[Event] = Stream()
        self._is_closed = False

    async def events(self) -> AsyncGenerator[Event, None]:
        """Give events as they come. Raises Disconnected when there is no way back to the daemon."""
        is_returning = False
        while not self._is_closed:
            waiting = self._waiting = Stream()
            wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
            self._wire = wire
            is_returning = True
            wire.write(op_to_json(1, self._request))
            try:
                async for event in waiting:
                    if len(waiting) == LIMIT_WAITING // 2:
                        wire.resume_reading()
                    self._request = msgspec.structs.replace(self._request, after=event.seq)
                    yield event
            finally:
                wire.close()

    def close(self) -> None:
        """End; whoever is reading is given what is left, and stops."""
        self._is_closed = True
        self._waiting.end()

    def _hear(self, line: Line) -> None:
        if line.error:
            self._waiting.end(line.refusal)
        elif line.push == "event":
            self._waiting.put(decode_event(line.event))
            if len(self._waiting) == LIMIT_WAITING:
                self._wire.pause_reading()

    def _lose(self, wire: Wire) -> None:
        self._waiting.end()
