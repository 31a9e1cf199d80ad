"""Background tasks: each coroutine runs in its own task, owned by the object that started it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

_logger: Final = logging.getLogger("palaver.holder")

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a coroutine as a task; the provider of this function owns the task."""


class Work:
    """The running tasks. An error in one is logged and does not affect the others."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("something went wrong", exc_info=error)

    async def settle(self) -> None:
        """Wait until all tasks have ended, including those that start meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancel all tasks; `settle` waits until they have ended."""
        for task in list(self._tasks):
            task.cancel()
