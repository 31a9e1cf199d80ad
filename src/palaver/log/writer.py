"""The writer: collects all waiting commits into one transaction, and returns their results.

Everything that uses the writing connection happens here: in a thread, and for a single commit on a quick disk
(`CommitPace`) on the event loop itself. The contents of a batch are in batch.py.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count, islice
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace

from palaver.errors import PalaverError, ShuttingDown, TooSlow
from palaver.log.api import LIMIT_NEWEST, LIMIT_WAITING, Commit, Decide, EventKey, EventKind, Hear, Scrub
from palaver.log.batch import Batches, CommitOrder, LargeDraftError, Outcome
from palaver.log.redaction import write_mark
from palaver.log.search import LIMIT_BEHIND, LIMIT_INDEXED, Words
from palaver.log.storage import BUSY_TIMEOUT_S, failure_from
from palaver.protocol.envelope import Event, room_id_of
from palaver.protocol.events import MessageSent

# --------------------
# The rule for commits on the event loop itself instead of in the writer's thread. Pure.
#
# A single commit on a quick disk takes less time than switching to a thread and back. But a commit blocks the
# event loop: so it never waits for a disk that was slow recently, and not for commits in quick succession,
# which are better written together.

QUICK_S: Final = 0.003
"""A commit that took longer was slow."""
ENOUGH: Final = 4
"""This many quick commits in a row make a quick disk; a slow one resets the count."""
CLOSE_S: Final = 0.001
"""A commit within this time after another one counts as company."""
ALONE_S: Final = 0.05
"""The last company must be at least this long ago."""


class CommitPace:
    """The recent commits and their durations. All times are of one monotonic clock."""

    def __init__(self) -> None:
        self._quick = 0
        self._company_s = float("-inf")
        self.ended_s = float("-inf")

    def came(self, now_s: float) -> bool:
        """Record that a commit arrives; return whether the event loop may make it."""
        if now_s - self.ended_s < CLOSE_S:
            self._company_s = now_s
        return self._quick >= ENOUGH and now_s - self._company_s >= ALONE_S

    def ended(self, now_s: float, took_s: float) -> None:
        """Record that commits were just made, in either way."""
        self._quick = self._quick + 1 if took_s <= QUICK_S else 0
        self.ended_s = now_s


# --------------------
# The table of all handlers of new events, by event type: an event costs only the handlers of its type.
#
# Every engine has one table, and the daemon's reactors are entries of it. Belongs to the event loop's thread.


class HandlerTable:
    """Handlers by the event types, or kinds of events, that each of them handles."""

    def __init__(self) -> None:
        self._table: dict[EventKey, dict[int, Hear]] = {}
        """For each key the handlers by their number; a handler that was added later has a higher number."""
        self._numbers = count()

    def add(self, hear: Hear, keys: Collection[EventKey]) -> Callable[[], None]:
        """Add a handler for these keys. Return a function that removes it; calling that twice is harmless."""
        number = next(self._numbers)
        for key in keys:
            self._table.setdefault(key, {})[number] = hear

        def remove() -> None:
            for key in keys:
                if (handlers := self._table.get(key)) is not None:
                    handlers.pop(number, None)
                    if not handlers:
                        del self._table[key]

        return remove

    def call(self, events: Sequence[Event]) -> None:
        """Call each handler of these events once, with its own events, in the order in which they were added.

        A handler that raises does not affect the others.
        """
        found: dict[int, tuple[Hear, list[Event]]] = {}
        # Most events of a batch have the same keys, and so the same handlers.
        lists: dict[tuple[EventKey, ...], list[list[Event]]] = {}
        for event in events:
            keys = _keys_of(event)
            if keys not in lists:
                # Several keys of a handler may apply to one event.
                handlers = {number: hear for key in keys for number, hear in self._table.get(key, {}).items()}
                lists[keys] = [found.setdefault(number, (hear, []))[1] for number, hear in handlers.items()]
            for own in lists[keys]:
                own.append(event)
        for number in sorted(found):
            hear, own = found[number]
            try:
                hear(own)
            except Exception as error:  # A bug of the handler; the commit is durable and must return.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a subscriber of the log raised", "exception": error}
                )


def _keys_of(event: Event) -> tuple[EventKey, ...]:
    # Whatever it asks for was done, or not done, in the log or the path broker that it comes from.
    message = event.body if isinstance(event.body, MessageSent) else None
    if event.imported or (message is not None and message.migrated is not None):
        return ()
    keys: tuple[EventKey, ...] = (event.type, EventKind.ANY)
    if event.delivered_to:
        keys += (EventKind.DELIVERED,)
    if room_id_of(event) is not None:
        keys += (EventKind.IN_ROOM,)
    if message is not None and message.expects_reply:
        keys += (EventKind.EXPECTS_REPLY,)
    return keys


# --------------------
# The newest events in memory, which are passed to their handlers. Belongs to the event loop's thread.

_by_seq = attrgetter("seq")


class Newest:
    """A ring of the newest events. When it is full the oldest is dropped: the log still has it."""

    def __init__(self, last: int) -> None:
        """Start after the seq of the newest event."""
        self._last = last
        self._reaches_back_to = last
        self._events: deque[Event] = deque()
        self.handlers = HandlerTable()

    def last(self) -> int:
        return self._last

    def tail(self, after: int, limit: int) -> list[Event] | None:
        if after < self._reaches_back_to:
            return None
        count = len(self._events) - bisect_right(self._events, after, key=_by_seq)
        # From the end: most callers want the newest event, and a slice would pass all events before it.
        newest = list(islice(reversed(self._events), count))
        return newest[::-1][:limit]

    def may_hold(self, seq: int) -> bool:
        """Whether an event with this seq is in memory, if there is one."""
        return seq > self._reaches_back_to

    def replace(self, events: Sequence[Event]) -> None:
        """Replace events by newer versions of them; ignore those that were dropped."""
        newer = {event.seq: event for event in events}
        self._events = deque(newer.get(event.seq, event) for event in self._events)

    def add(self, events: Sequence[Event]) -> None:
        """Add a batch, in seq order, and call its handlers; one that raises does not affect the others."""
        if not events:
            return
        self._events.extend(events)
        self._last = events[-1].seq
        while len(self._events) > LIMIT_NEWEST:
            self._reaches_back_to = self._events.popleft().seq
        self.handlers.call(events)


# --------------------
# Maintenance of the log's file: indexing words, checkpointing the journal, preallocating space.
#
# All of it can wait for a pause, up to a limit. The caller has exclusive use of the writing connection.

_PAGES_WHEN_IDLE: Final = 1_000
_PAGES_AT_MOST: Final = 4_000
"""Pages of the write-ahead log before a checkpoint: at the next pause, or at once."""
WAL_BYTES: Final = _PAGES_AT_MOST * 4_120

_PAGES_OF_A_BATCH: Final = 10
_PAGES_OF_AN_EVENT: Final = 2


class Upkeep:
    """Counts written pages, and decides and does the maintenance that they need."""

    def __init__(self, connection: sqlite3.Connection, words: Words, lay_out: Callable[[], None]) -> None:
        """`lay_out` preallocates the files; it is called once, at the first pause."""
        self._connection = connection
        self._words = words
        self._lay_out: Callable[[], None] | None = lay_out
        self._lay_out_again = lay_out
        self._pages = 0

    # Usable from any thread.

    @property
    def is_urgent(self) -> bool:
        """Whether something cannot wait for a pause any more."""
        return self._words.behind >= LIMIT_BEHIND or self._pages >= _PAGES_AT_MOST

    @property
    def is_wanted(self) -> bool:
        """Whether something must be done at the next pause."""
        return self._lay_out is not None or self._pages >= _PAGES_WHEN_IDLE or bool(self._words.behind)

    # Needs the connection.

    def written(self, events: int) -> None:
        """Record that a batch was written, or something of that size."""
        self._pages += _PAGES_OF_A_BATCH + _PAGES_OF_AN_EVENT * events

    def emptied(self) -> None:
        """Record that the write-ahead log was truncated: it is preallocated again at the next pause."""
        self._pages = 0
        self._lay_out = self._lay_out_again

    def do_what_is_urgent(self) -> None:
        """Do what cannot wait for a pause any more."""
        if self._words.behind >= LIMIT_BEHIND:
            self._index_quietly()
        if self._pages >= _PAGES_AT_MOST:
            self.checkpoint()

    def do_all(self) -> int:
        """Do what can wait for a pause."""
        self._index_quietly()
        if self._pages >= _PAGES_WHEN_IDLE:
            self.checkpoint()
        if self._lay_out is not None:
            # Disk full: commits are a little slower, without other effects.
            with contextlib.suppress(OSError):
                self._lay_out()
            self._lay_out = None
        return 0

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file."""
        self._pages = 0
        with contextlib.suppress(sqlite3.Error):  # Disk full, or a reader is active: it is tried again later.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def index(self) -> int:
        """Index missing events up to a limit, and count the pages; a failure is raised to the search."""
        count = min(LIMIT_INDEXED, self._words.behind)
        if count:
            self._words.catch_up()
            self._pages += _PAGES_OF_A_BATCH + count
        return count

    def _index_quietly(self) -> None:
        with contextlib.suppress(
            sqlite3.Error, OSError
        ):  # Disk full: a search reports it, or a later call succeeds.
            self.index()


# --------------------
# The queue of commits, and the thread that writes them.

_IDLE_S: Final = 0.2
_LIMIT_BATCH: Final = 2048
"""Commits after which a transaction takes no more callers."""

_TRIED_BYTES: Final = 64 * 1024
"""Free bytes that must exist before commits are accepted again."""

_CLOSING: Final = "the log is closing; nothing was stored"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Queued commits of one caller."""

    orders: Sequence[CommitOrder]
    result: "asyncio.Future[Sequence[Outcome]]"


@dataclass(frozen=True, slots=True)
class _Job:
    """Another job on the writer's connection, done after all commits queued before it."""

    run: Callable[[], int]
    is_last: bool = False
    result: "Future[int]" = field(default_factory=Future)


_Results: TypeAlias = Sequence[tuple[_Waiting, Sequence[Outcome]]]


class Writer:
    """The queue of commits and the thread that writes them.

    Each batch takes all queued commits, costs one fsync, and returns to the event loop in one step: first the
    subscribers are called, then the commits return. When LIMIT_WAITING commits are open, the next one is
    refused. If the queue is empty and `pace` allows it, a commit is made at once.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        batches: Batches,
        newest: Newest,
        upkeep: Upkeep,
        pace: CommitPace,
    ) -> None:
        """Take over the connection, on the running event loop, and start the thread."""
        self._connection = connection
        self._batches = batches
        self._newest = newest
        self._loop = asyncio.get_running_loop()
        self._line: queue.SimpleQueue[_Waiting | _Job] = queue.SimpleQueue()
        self._end: _Job | None = None
        self._refusal: PalaverError | None = None
        self._upkeep = upkeep
        self._pace = pace
        self._in_line = 0
        self._nudge: asyncio.TimerHandle | None = None
        self._is_patient = True
        self._in_use = threading.Lock()  # Protects the connection and all state about it.
        # A daemon thread: a process that ends without `close` must not hang on it.
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    # The methods below belong to the event loop.

    async def commit(self, decide: Decide, request_key: bytes | None) -> Commit:
        """Commit at once, or queue; return when it is durable."""
        self._check_open()
        order = CommitOrder(decide, request_key)
        outcome = self._commit_here(order)
        if outcome is None:
            (outcome,) = await self._queue([order])
        else:
            # As after a batch, tasks that the event has woken run before the caller: a waiting receiver
            # must not wait for the reply to the sender.
            await asyncio.sleep(0)
        if isinstance(outcome, Commit):
            return outcome
        raise outcome

    async def commit_all(self, decisions: Sequence[Decide]) -> list[Outcome]:
        """Queue several commits as one item; return their outcomes when they are durable."""
        self._check_open()
        return list(await self._queue([CommitOrder(decide, None) for decide in decisions]))

    def _check_open(self) -> None:
        """Refuse every commit while the log closes, is refused, or has too many waiting ones."""
        if self._end is not None:
            raise ShuttingDown(_CLOSING)
        if self._refusal is not None:
            raise self._refusal
        if self._in_line >= LIMIT_WAITING:
            raise TooSlow(f"{LIMIT_WAITING} commits are waiting for the disk; nothing was stored. Try again")

    async def _queue(self, orders: Sequence[CommitOrder]) -> Sequence[Outcome]:
        result: asyncio.Future[Sequence[Outcome]] = self._loop.create_future()
        self._in_line += len(orders)
        self._line.put(_Waiting(orders, result))
        return await result

    async def rebuild(self, progress: Callable[[int], None] | None = None) -> int:
        """Fold all events again, between two batches. `progress` is called in the thread."""
        return await self._done(lambda: self._batches.rebuild(progress))

    def refuse(self, reason: PalaverError) -> None:
        """Refuse every commit from now on."""
        self._refusal = reason

    async def try_writing(self) -> None:
        """Write the size of a few events, and remove it; raise DiskFull if there is no space."""
        await self._done(self._try_writing)

    async def save(self, target: Path) -> None:
        """Save committed events after a file was lost: see `Batches.save`."""
        await self._done(lambda: self._batches.save(target))

    async def remove_archived(self) -> int:
        """Remove some events that are in an archive, between two batches; 0 if none is left."""
        return await self._done(self._remove_archived)

    async def redact(self, seqs: Sequence[int], scrub: Scrub) -> int:
        """Replace events in the log, between two batches."""

        def run() -> int:
            count = self._batches.redact(seqs, scrub)
            self._upkeep.emptied()
            return count

        return await self._done(run)

    async def mark_redacted(self, seq: int, unfinished: Sequence[int]) -> None:
        """Record which redactions are finished, between two batches."""
        await self._done(lambda: write_mark(self._connection, seq, unfinished))

    async def index(self) -> None:
        """Bring the full-text index up to date, if necessary."""
        # In parts, so that commits need not wait for a whole index that an upgrade has emptied.
        for _ in range(0, self._batches.words.behind, LIMIT_INDEXED):
            if self._end is None:
                job = _Job(self._upkeep.index)
                self._line.put(job)
                await asyncio.wrap_future(job.result)

    async def close(self) -> None:
        """Write queued commits, then end the thread and close the connection."""
        if self._end is None:
            if self._nudge is not None:
                self._nudge.cancel()
            self._end = _Job(self._finish, is_last=True)
            self._line.put(self._end)
        # Shielded: several callers may wait for this one job, and a cancelled caller must not cancel it.
        await asyncio.shield(asyncio.wrap_future(self._end.result))
        self._thread.join()

    async def _done(self, run: Callable[[], int]) -> int:
        if self._end is not None:
            raise ShuttingDown(_CLOSING)
        job = _Job(run)
        self._line.put(job)
        return await asyncio.wrap_future(job.result)

    def _commit_here(self, order: CommitOrder) -> Outcome | None:
        """Write one order now, on the event loop; None if it has to be queued."""
        began_s = time.monotonic()
        # Commits that are queued, or whose results are not delivered yet, come first.
        if not self._pace.came(began_s) or self._in_line or self._upkeep.is_urgent:
            return None
        # Do not wait here: the thread may be in a sync, and the event loop must not block.
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            # Without a busy timeout: SQLite would sleep in it, and the event loop with it.
            self._be_patient(False)
            outcome: Outcome = self._batches.write([replace(order, is_quick=True)])[0]
        except LargeDraftError:
            return None  # The thread has time for it.
        except BaseException as error:
            if _is_busy(error):
                return None  # Another program locks the file, and the thread has time to wait for it.
            outcome = failure_from(error)
        else:
            self._upkeep.written(1)
        finally:
            self._in_use.release()
        ended_s = time.monotonic()
        self._pace.ended(ended_s, ended_s - began_s)
        self._nudge_later()
        if isinstance(outcome, Commit) and outcome.event is not None and not outcome.is_repeat:
            self._newest.add([outcome.event])
        return outcome

    def _nudge_later(self) -> None:
        """Let the thread do the work that waits for a pause: nothing else wakes it."""
        if self._nudge is None:
            self._nudge = self._loop.call_later(_IDLE_S, self._nudge_thread)

    def _nudge_thread(self) -> None:
        self._nudge = None
        # Commits on the event loop do not move this timer, so check again that there was a pause.
        if time.monotonic() - self._pace.ended_s < _IDLE_S / 2:
            self._nudge_later()
        else:
            self._line.put(_Job(self._upkeep.do_all))

    def _deliver(self, results: _Results, took_s: float) -> None:
        self._pace.ended(time.monotonic(), took_s)
        made = [outcome for _, outcomes in results for outcome in outcomes]
        self._in_line -= len(made)
        commits = [outcome for outcome in made if isinstance(outcome, Commit)]
        # Handlers before callers: what a caller reads after its commit includes the effects of that commit.
        self._newest.add(
            [commit.event for commit in commits if commit.event is not None and not commit.is_repeat]
        )
        for waiting, outcomes in results:
            if not waiting.result.done():  # Otherwise its caller was cancelled.
                waiting.result.set_result(outcomes)

    # The methods below belong to the thread.

    def _run(self) -> None:
        is_running = True
        while is_running:
            waiting, job = self._drain()
            if waiting:
                self._write(waiting)
            # A caller that was cancelled meanwhile needs no work, and its future accepts no result.
            if job is not None and job.result.set_running_or_notify_cancel():
                is_running = not job.is_last
                try:
                    with self._in_use:
                        self._be_patient(True)
                        done = job.run()
                    job.result.set_result(done)
                except BaseException as error:
                    job.result.set_exception(failure_from(error))

    def _drain(self) -> tuple[list[_Waiting], _Job | None]:
        """Wait for the first queued item; return all commits up to the first job."""
        waiting: list[_Waiting] = []
        count = 0
        item = self._first()
        while isinstance(item, _Waiting):
            waiting.append(item)
            count += len(item.orders)
            # A longer transaction would keep the first of its callers waiting for all the others.
            if count >= _LIMIT_BATCH:
                break
            try:
                item = self._line.get_nowait()
            except queue.Empty:
                break
        return waiting, item if isinstance(item, _Job) else None

    def _be_patient(self, is_patient: bool) -> None:
        """Set whether to wait for another program that locks the file."""
        if is_patient != self._is_patient:
            self._connection.execute(
                f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000 if is_patient else 0:.0f}"
            )
            self._is_patient = is_patient

    def _first(self) -> _Waiting | _Job:
        if self._upkeep.is_urgent:
            with self._in_use:
                self._upkeep.do_what_is_urgent()
        if self._upkeep.is_wanted:
            try:
                return self._line.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._in_use:
                    self._upkeep.do_all()
        return self._line.get()

    def _write(self, waiting: Sequence[_Waiting]) -> None:
        began_s = time.monotonic()
        with self._in_use:
            self._be_patient(True)
            results = self._together(waiting)
            self._upkeep.written(sum(len(one.orders) for one in waiting))
        with contextlib.suppress(RuntimeError):  # The event loop was closed, so there is no caller left.
            self._loop.call_soon_threadsafe(self._deliver, results, time.monotonic() - began_s)

    def _together(self, waiting: Sequence[_Waiting]) -> _Results:
        try:
            outcomes = iter(self._batches.write([order for one in waiting for order in one.orders]))
        except BaseException as error:
            # One of them, or the disk, broke the batch: nothing of it is written. Write each caller's alone,
            # but never a part of them: they belong together.
            if len(waiting) == 1:
                return [(waiting[0], [failure_from(error)] * len(waiting[0].orders))]
            return [result for one in waiting for result in self._together([one])]
        return [(one, list(islice(outcomes, len(one.orders)))) for one in waiting]

    def _try_writing(self) -> int:
        self._connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('room', ?)", ("x" * _TRIED_BYTES,)
        )
        self._connection.execute("DELETE FROM meta WHERE key = 'room'")
        return 0

    def _remove_archived(self) -> int:
        count = self._batches.remove_archived()
        self._upkeep.written(count)
        return count

    def _finish(self) -> int:
        self._upkeep.checkpoint()
        self._connection.close()
        return 0


def _is_busy(error: BaseException) -> bool:
    """Return whether another program locks the file. The lowest byte of a code is its kind."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
