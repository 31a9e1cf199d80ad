"""The newest events in memory, and the subscribers of new ones. Belongs to the event loop's thread."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter

from palaver.log.api import LIMIT_NEWEST, Hear
from palaver.model.envelope import Event

_by_place = attrgetter("seq")


class Newest:
    """A ring of the newest events. When it is full the oldest is dropped: the log still has it."""

    def __init__(self, last: int) -> None:
        """Start after the seq of the newest event."""
        self._last = last
        self._reaches_back_to = last
        self._events: deque[Event] = deque()
        self._hearers: dict[object, Hear] = {}

    def last(self) -> int:
        return self._last

    def subscribe(self, hear: Hear) -> Callable[[], None]:
        token = object()
        self._hearers[token] = hear

        def stop() -> None:
            self._hearers.pop(token, None)

        return stop

    def tail(self, after: int, limit: int) -> list[Event] | None:
        if after < self._reaches_back_to:
            return None
        start = bisect_right(self._events, after, key=_by_place)
        return list(islice(self._events, start, start + limit))

    def may_hold(self, seq: int) -> bool:
        """Whether an event with this seq is in memory, if there is one."""
        return seq > self._reaches_back_to

    def replace(self, events: Sequence[Event]) -> None:
        """Replace events by newer versions of them; ignore those that were dropped."""
        newer = {event.seq: event for event in events}
        self._events = deque(newer.get(event.seq, event) for event in self._events)

    def add(self, events: Sequence[Event]) -> None:
        """Add a batch, in seq order, and call all subscribers; one that raises does not affect the others."""
        if not events:
            return
        self._events.extend(events)
        self._last = events[-1].seq
        while len(self._events) > LIMIT_NEWEST:
            self._reaches_back_to = self._events.popleft().seq
        for hear in list(self._hearers.values()):
            try:
                hear(events)
            except Exception as error:  # A bug of the subscriber; the commit is durable and must return.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a subscriber of the log raised", "exception": error}
                )
