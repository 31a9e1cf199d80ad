"""What has come and was not taken yet, in order. Whoever fills it sees to its length."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """An asynchronous iterator that others fill. With several readers each thing goes to one of them.

    After its end readers are still given what is left, and then stop, or get the error it ended with.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._news = asyncio.Event()
        self._is_ended = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add a thing behind all others."""
        self._items.append(item)
        self._news.set()

    def end(self, error: Exception | None = None) -> None:
        """Say that nothing more will come, and maybe why. The first word counts."""
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._news.set()

    def reopen(self) -> None:
        """Go on after an end; nothing happens when there was none."""
        self._is_ended = False
        self._error = None

    def __aiter__(self) -> "Stream[T]":
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._is_ended:
                raise self._error or StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()
