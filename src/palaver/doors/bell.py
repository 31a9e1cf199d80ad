"""Wakes those who wait for something in a room. It says that something may have changed, never what.

One subscription to the log serves everybody: a room's events ring in that room, what becomes of an agent
rings in the rooms of which it is a member. Nobody polls.
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
    """What can be called off."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class Bell:
    """Belongs to the loop's thread."""

    def __init__(
        self, log: Log, rooms_of: Callable[[str], Iterable[str]], call_later: CallLater | None = None
    ) -> None:
        """`rooms_of` gives the rooms of an agent; `call_later` is the loop's own unless told otherwise."""
        self._rooms_of = rooms_of
        self._call_later = call_later
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._unsubscribe = log.subscribe(self._hear)

    def close(self) -> None:
        """Ring no more."""
        self._unsubscribe()

    def ring(self, room: str) -> None:
        """Wake everybody who waits in a room."""
        for news in self._waiting.get(room, ()):
            news.set()

    @contextmanager
    def listening(self, room: str) -> Iterator["Listener"]:
        """Hear the bell of a room for as long as the block runs; what rings while nobody waits is kept."""
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
    """One who waits."""

    def __init__(self, news: asyncio.Event, call_later: CallLater) -> None:
        self._news = news
        self._call_later = call_later

    def look(self) -> None:
        """What is looked at from now on is new: forget what rang before."""
        self._news.clear()

    async def wait(self, limit_ms: int | None) -> None:
        """Wait until it rings, or so many milliseconds; None is for ever."""
        if limit_ms is None:
            await self._news.wait()
            return
        timer = self._call_later(limit_ms / 1000, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()
