"""Tasks of which one that fails is written down and stops nobody else."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from palaver.errors import PalaverError

_logger: Final = logging.getLogger("palaver")


class GuardedTasks(asyncio.TaskGroup):
    """A task group in which one task that fails is written down and stops nobody else."""

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # the same call, every task guarded
        guarded = self._guard(coro)
        try:
            task = super().create_task(guarded, **options)
        except RuntimeError:  # the group has ended
            guarded.close()
            coro.close()
            raise
        # One that is ended before its first step never comes to its work, which then was never begun.
        task.add_done_callback(lambda done: coro.close())
        return task

    async def _guard(self, coro: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await coro
        except PalaverError as error:
            _logger.warning("a task was refused: %s: %s", error.code, error)
        except Exception:
            _logger.exception("a task failed")
        return None


def end_all_tasks() -> None:
    """End every task of this loop but the one that asks. One by one they are not kept: they are too many."""
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not current:
            task.cancel()
