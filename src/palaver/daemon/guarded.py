"""Tasks whose failure is logged and does not stop the others."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from palaver.errors import PalaverError

_logger: Final = logging.getLogger("palaver")


class GuardedTasks(asyncio.TaskGroup):
    """A task group in which a failing task is logged and does not stop the others."""

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # the same call, every task guarded
        guarded = self._guard(coro)
        try:
            task = super().create_task(guarded, **options)
        except RuntimeError:  # the group has ended
            guarded.close()
            coro.close()
            raise
        # A task cancelled before its first step never awaits its coroutine, so close it.
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
    """Cancel every task of this loop except the current one. They are too many to keep track of."""
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not current:
            task.cancel()
