"""What a lane is saying to the daemon just now: each word in a task of its own, owned here."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Saying:
    """The tasks of one lane. Whoever ends waits for them, or ends them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start to say something."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until all that was being said is said, or the connection lost."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Say none of it."""
        for task in list(self._tasks):
            task.cancel()
