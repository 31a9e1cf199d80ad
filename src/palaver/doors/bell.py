"""Wake callers that wait for a change in a room. A signal says that something may have changed, never what.

One subscription to the log serves all waiting callers. An event of a room signals that room. An event about
an agent signals every room of which the agent is a member. No caller polls.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from palaver.log.api import Log
from palaver.log.fold import agent_of
from palaver.model.envelope import Event
from palaver.model.life import AGENT_TYPES


class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class Bell:
    """The signals of changes, one for each room. Use it only on the event loop's thread."""

    def __init__(
        self, log: Log, rooms_of: Callable[[str], Iterable[str]], call_later: CallLater | None = None
    ) -> None:
        """`rooms_of` returns the rooms of an agent. `call_later` defaults to that of the running loop."""
        self._rooms_of = rooms_of
        self._call_later = call_later
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._unsubscribe = log.subscribe(self._hear)

    def close(self) -> None:
        """Stop reading the log. Later events wake no caller."""
        self._unsubscribe()

    def ring(self, room: str) -> None:
        """Wake all callers that wait in a room."""
        for news in self._waiting.get(room, ()):
            news.set()

    @contextmanager
    def listening(self, room: str) -> Iterator["Listener"]:
        """Listen to a room while the block runs. A signal that arrives between two waits is kept."""
        news = asyncio.Event()
        listeners = self._waiting.setdefault(room, set())
        listeners.add(news)
        try:
            yield Listener(news, self._call_later or asyncio.get_running_loop().call_later)
        finally:
            listeners.discard(news)
            if not listeners and self._waiting.get(room) is listeners:
                del self._waiting[room]

    def _hear(self, events: Sequence[Event]) -> None:
        if not self._waiting:
            return
        for event in events:
            room = event.payload.get("room")
            if isinstance(room, str):
                self.ring(room)
            if event.type in AGENT_TYPES:
                for one in self._rooms_of(agent_of(event)):
                    self.ring(one)


class Listener:
    """One waiting caller."""

    def __init__(self, news: asyncio.Event, call_later: CallLater) -> None:
        self._news = news
        self._call_later = call_later

    def look(self) -> None:
        """Forget earlier signals. Call this before each look at the room, so that no change is missed."""
        self._news.clear()

    async def wait(self, limit_ms: int | None) -> None:
        """Wait for a signal, at most `limit_ms` milliseconds; None waits indefinitely."""
        if limit_ms is None:
            await self._news.wait()
            return
        timer = self._call_later(limit_ms / 1000, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()
