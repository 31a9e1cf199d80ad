"""A queue of received items. The producer limits its length."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """An asynchronous iterator that a producer fills. With several readers each item goes to one of them.

    After the end, readers still get the remaining items, and then stop or get the error it ended with.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._news = asyncio.Event()
        self._is_ended = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Append an item."""
        self._items.append(item)
        self._news.set()

    def end(self, error: Exception | None = None) -> None:
        """End the stream, optionally with an error. Only the first call counts."""
        if not self._is_ended:
            self._is_ended = True
            self._error = error
            self._news.set()

    def reopen(self) -> None:
        """Continue after an end; without an end, do nothing."""
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
