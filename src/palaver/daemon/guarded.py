"""Tasks whose failure is logged and does not stop the others.

A separate module from `daemon.py`, because it knows none of the parts that are put together there.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import CoroutineType
from typing import Any, Final

from palaver.clock import CallLater, Timer
from palaver.errors import PalaverError
from palaver.home import file_id

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


# --------------------
# Check that the home and its files still exist.
#
# A daemon whose home was removed stops, so that another can start. Sockets that were removed are created
# again.

_LOOK_EVERY_S: Final = 1.0
"""Seconds. A command waits as long for a socket that was removed."""


class HomeWatch:
    """Checks regularly that the lock at the home's path is the one that this daemon holds."""

    def __init__(
        self,
        home: Path,
        lost: Callable[[], None],
        call_later: CallLater,
        look_after: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Requires the lock; `lost` is called once, if it was removed or replaced.

        At each check the functions in `look_after` are called too, in order, to maintain other parts of this
        home.
        """
        self._lock = home / "daemon.lock"
        self._file = file_id(self._lock)
        self._lost = lost
        self._look_after = look_after
        self._call_later = call_later
        self._timer: Timer = call_later(_LOOK_EVERY_S, self._look)

    def close(self) -> None:
        """Stop checking."""
        self._timer.cancel()

    def _look(self) -> None:
        if file_id(self._lock) == self._file:
            for look in self._look_after:
                look()
            self._timer = self._call_later(_LOOK_EVERY_S, self._look)
        else:
            self._lost()


# --------------------
# Log callbacks that block the event loop.
#
# Every callback of the loop is measured by the processor time of the loop's thread, not by a clock: a busy
# machine makes a callback late, but does not make it long.

_LIMIT_LINES_PER_MINUTE: Final = 20
"""More lines add no information, and would fill the log."""

_watchdog_logger: Final = logging.getLogger("palaver.watchdog")


def watch_loop(limit_ms: int) -> Callable[[], None]:
    """Log each callback that takes more than `limit_ms` of processor time; return a function that stops it.

    Call it in the thread of the running loop. A daemon has one such thread, so all callbacks of the process
    are its callbacks. 0 watches nothing.
    """
    if not limit_ms:
        return lambda: None
    limit_s = limit_ms / 1000
    lines = _Lines()
    plain: Callable[[asyncio.Handle], None] = asyncio.Handle._run
    ended_s = time.thread_time()

    def run_watched(handle: asyncio.Handle) -> None:
        nonlocal ended_s
        plain(handle)
        # One reading per callback: between two of them the loop itself does almost nothing.
        now_s = time.thread_time()
        took_s = now_s - ended_s
        ended_s = now_s
        if took_s > limit_s and lines.may_write(time.monotonic()):
            _watchdog_logger.warning(
                "watchdog: the event loop was busy for %d ms with %s", took_s * 1000, _describe(handle)
            )
            ended_s = time.thread_time()

    def stop() -> None:
        asyncio.Handle._run = plain  # type: ignore[method-assign, assignment]  # what it was before

    asyncio.Handle._run = run_watched  # type: ignore[method-assign, assignment]  # there is no public hook
    return stop


class _Lines:
    """Counts the lines of the last minute."""

    def __init__(self) -> None:
        self._begin_s = float("-inf")
        self._count = 0

    def may_write(self, now_s: float) -> bool:
        if now_s - self._begin_s >= 60:
            self._begin_s, self._count = now_s, 0
        self._count += 1
        return self._count <= _LIMIT_LINES_PER_MINUTE


def _describe(handle: asyncio.Handle) -> str:
    """Describe a callback: for a task the stack of functions that it is in, else the function."""
    callback: object = handle._callback  # type: ignore[attr-defined]  # the loop's own report uses it too
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return getattr(callback, "__qualname__", None) or repr(callback)
    names = []
    inner: object = owner.get_coro()
    while isinstance(inner, CoroutineType):
        line = inner.cr_frame.f_lineno if inner.cr_frame is not None else inner.cr_code.co_firstlineno
        names.append(f"{inner.__qualname__}:{line}")
        inner = inner.cr_await
    return " > ".join(names) or repr(owner)
