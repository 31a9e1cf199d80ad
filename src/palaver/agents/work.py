"""Work that nobody waits for in its place: each piece in a task of its own, owned here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

_logger: Final = logging.getLogger("palaver.holder")

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a piece of work that whoever gave it this owns."""


class Work:
    """The pieces that are under way. What goes wrong in one is written down and ends no other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start one."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("something went wrong", exc_info=error)

    async def settle(self) -> None:
        """Wait until none is left, those included that begin meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """End them all; `settle` waits until they have ended."""
        for task in list(self._tasks):
            task.cancel()
