"""The table of all handlers of new events, by event type: an event costs only the handlers of its type.

Every engine has one table, and the daemon's reactors are entries of it. Belongs to the event loop's thread.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import count

from palaver.log.api import EventKey, EventKind, Hear
from palaver.protocol.envelope import Event, room_id_of
from palaver.protocol.events import MessageSent


class HandlerTable:
    """Handlers by the event types, or kinds of events, that each of them handles."""

    def __init__(self) -> None:
        self._table: dict[EventKey, dict[int, Hear]] = {}
        """For each key the handlers by their number; a handler that was added later has a higher number."""
        self._numbers = count()

    def add(self, hear: Hear, keys: Collection[EventKey]) -> Callable[[], None]:
        """Add a handler for these keys. Return a function that removes it; calling that twice is harmless."""
        number = next(self._numbers)
        for key in keys:
            self._table.setdefault(key, {})[number] = hear

        def remove() -> None:
            for key in keys:
                if (handlers := self._table.get(key)) is not None:
                    handlers.pop(number, None)
                    if not handlers:
                        del self._table[key]

        return remove

    def call(self, events: Sequence[Event]) -> None:
        """Call each handler of these events once, with its own events, in the order in which they were added.

        A handler that raises does not affect the others.
        """
        found: dict[int, tuple[Hear, list[Event]]] = {}
        for event in events:
            for key in _keys_of(event):
                for number, hear in self._table.get(key, {}).items():
                    own = found.setdefault(number, (hear, []))[1]
                    if not own or own[-1] is not event:  # Several keys of a handler may apply to one event.
                        own.append(event)
        for number in sorted(found):
            hear, own = found[number]
            try:
                hear(own)
            except Exception as error:  # A bug of the handler; the commit is durable and must return.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a subscriber of the log raised", "exception": error}
                )


def _keys_of(event: Event) -> list[EventKey]:
    keys: list[EventKey] = [event.type, EventKind.ANY]
    if event.delivered_to:
        keys.append(EventKind.DELIVERED)
    if room_id_of(event) is not None:
        keys.append(EventKind.IN_ROOM)
    if isinstance(event.body, MessageSent) and event.body.expects_reply:
        keys.append(EventKind.EXPECTS_REPLY)
    return keys
