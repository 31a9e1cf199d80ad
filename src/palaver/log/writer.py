"""The writer's thread: drains all waiting commits into one transaction, and hands the results back.

Everything that touches the writing connection happens here. What a batch is made of is in batch.py.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from palaver.errors import ShuttingDown, TooSlow
from palaver.log.api import LIMIT_WAITING, Commit, Decide
from palaver.log.batch import Batches, Order, Outcome
from palaver.log.newest import Newest
from palaver.log.storage import failure_from
from palaver.log.words import LIMIT_BEHIND

_IDLE_S: Final = 0.2
_PAGES_WHEN_IDLE: Final = 1_000
_PAGES_AT_MOST: Final = 4_000
"""How long the write-ahead log may grow until it is copied into the file: at the next pause, or at once."""
WAL_BYTES: Final = _PAGES_AT_MOST * 4_120

_PAGES_OF_A_BATCH: Final = 10
_PAGES_OF_AN_EVENT: Final = 2

_LIMIT_BATCH: Final = 2048
"""Commits in one transaction."""

_CLOSING: Final = "the log is closing; nothing was stored"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A commit in line."""

    order: Order
    result: "asyncio.Future[Commit]"


@dataclass(frozen=True, slots=True)
class _Errand:
    """Something else that is done with the writer's connection, when all before it in line is written."""

    run: Callable[[], int]
    is_last: bool = False
    result: "Future[int]" = field(default_factory=Future)


_Results: TypeAlias = Sequence[tuple["asyncio.Future[Commit]", Outcome]]


class Writer:
    """The line before the log and the thread that empties it.

    Each batch takes all that stand in line, costs one fsync, and comes back to the event loop in one step:
    first those who subscribed hear of it, then the commits return. When LIMIT_WAITING commits stand there,
    the next one is refused.
    """

    def __init__(
        self, connection: sqlite3.Connection, batches: Batches, newest: Newest, lay_out: Callable[[], None]
    ) -> None:
        """Take over the connection, on the running event loop, and start the thread.

        `lay_out` prepares the files for speed; it is called once, at the first pause.
        """
        self._connection = connection
        self._batches = batches
        self._newest = newest
        self._loop = asyncio.get_running_loop()
        self._line: queue.SimpleQueue[_Waiting | _Errand] = queue.SimpleQueue()
        self._end: _Errand | None = None
        self._pages = 0
        self._lay_out: Callable[[], None] | None = lay_out
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    # What follows belongs to the event loop.

    async def commit(self, decide: Decide, request_key: bytes | None) -> Commit:
        """Stand in line, and return when the batch is durable."""
        if self._end is not None:
            raise ShuttingDown(_CLOSING)
        if self._line.qsize() >= LIMIT_WAITING:
            raise TooSlow(f"{LIMIT_WAITING} commits wait for the disk; nothing was stored, try again")
        result: asyncio.Future[Commit] = self._loop.create_future()
        self._line.put(_Waiting(Order(decide, request_key), result))
        return await result

    async def rebuild(self) -> int:
        """Fold all events anew, between two batches."""
        return await self._done(self._batches.rebuild)

    async def remove_archived(self) -> int:
        """Remove some events that are in an archive, between two batches; 0 when none is left."""
        return await self._done(self._remove_archived)

    async def index(self) -> None:
        """Bring the full-text index up to the events; nothing to do when it is."""
        if self._batches.words.behind and self._end is None:
            errand = _Errand(self._index)
            self._line.put(errand)
            await asyncio.wrap_future(errand.result)

    async def close(self) -> None:
        """Write what stands in line, then end the thread and close the connection."""
        if self._end is None:
            self._end = _Errand(self._finish, is_last=True)
            self._line.put(self._end)
        await asyncio.shield(asyncio.wrap_future(self._end.result))
        self._thread.join()

    async def _done(self, run: Callable[[], int]) -> int:
        if self._end is not None:
            raise ShuttingDown(_CLOSING)
        errand = _Errand(run)
        self._line.put(errand)
        return await asyncio.wrap_future(errand.result)

    def _deliver(self, results: _Results) -> None:
        commits = [outcome for _, outcome in results if isinstance(outcome, Commit)]
        self._newest.add(
            [commit.event for commit in commits if commit.event is not None and not commit.is_repeat]
        )
        for result, outcome in results:
            if result.done():  # Its caller was cancelled.
                continue
            if isinstance(outcome, Commit):
                result.set_result(outcome)
            else:
                result.set_exception(outcome)

    # What follows belongs to the thread.

    def _run(self) -> None:
        is_running = True
        while is_running:
            waiting, errand = self._drain()
            if waiting:
                self._write(waiting)
            # A caller that was cancelled meanwhile wants nothing done, and its future takes no result.
            if errand is not None and errand.result.set_running_or_notify_cancel():
                is_running = not errand.is_last
                try:
                    errand.result.set_result(errand.run())
                except BaseException as error:
                    errand.result.set_exception(failure_from(error))

    def _drain(self) -> tuple[list[_Waiting], _Errand | None]:
        """Wait for somebody to stand in line; take all who do, up to the first errand."""
        waiting: list[_Waiting] = []
        item = self._first()
        while isinstance(item, _Waiting):
            waiting.append(item)
            if len(waiting) == _LIMIT_BATCH:
                break
            try:
                item = self._line.get_nowait()
            except queue.Empty:
                break
        return waiting, item if isinstance(item, _Errand) else None

    def _first(self) -> _Waiting | _Errand:
        if self._batches.words.behind >= LIMIT_BEHIND:
            self._index_quietly()
        if self._pages >= _PAGES_AT_MOST:
            self._checkpoint()
        elif self._lay_out is not None or self._pages >= _PAGES_WHEN_IDLE or self._batches.words.behind:
            try:
                return self._line.get(timeout=_IDLE_S)
            except queue.Empty:
                self._do_chores()
        return self._line.get()

    def _do_chores(self) -> None:
        """What can wait for a pause."""
        self._index_quietly()
        if self._pages >= _PAGES_WHEN_IDLE:
            self._checkpoint()
        if self._lay_out is not None:
            with contextlib.suppress(OSError):  # No room: commits are a little slower, and that is all.
                self._lay_out()
            self._lay_out = None

    def _write(self, waiting: Sequence[_Waiting]) -> None:
        orders = [one.order for one in waiting]
        try:
            outcomes = self._batches.write(orders)
        except BaseException as error:
            # One of them, or the disk, spoiled the batch: nothing of it is written. Each for itself, then.
            outcomes = [failure_from(error)] if len(orders) == 1 else [self._alone(order) for order in orders]
        self._pages += _PAGES_OF_A_BATCH + _PAGES_OF_AN_EVENT * len(orders)
        results = [(one.result, outcome) for one, outcome in zip(waiting, outcomes, strict=True)]
        with contextlib.suppress(RuntimeError):  # The event loop was closed, and nobody is left to hear it.
            self._loop.call_soon_threadsafe(self._deliver, results)

    def _alone(self, order: Order) -> Outcome:
        try:
            return self._batches.write([order])[0]
        except BaseException as error:
            return failure_from(error)

    def _checkpoint(self) -> None:
        self._pages = 0
        with contextlib.suppress(sqlite3.Error):  # No room, or a reader: there will be another time.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _index(self) -> int:
        """Index what is behind, and count the pages; whoever searches is told when that fails."""
        count = self._batches.words.behind
        if count:
            self._batches.words.catch_up()
            self._pages += _PAGES_OF_A_BATCH + count
        return count

    def _index_quietly(self) -> None:
        with contextlib.suppress(
            sqlite3.Error, OSError
        ):  # No room: a search will say so, or a later time do.
            self._index()

    def _remove_archived(self) -> int:
        count = self._batches.remove_archived()
        self._pages += _PAGES_OF_A_BATCH + _PAGES_OF_AN_EVENT * count
        return count

    def _finish(self) -> int:
        self._checkpoint()
        self._connection.close()
        return 0
