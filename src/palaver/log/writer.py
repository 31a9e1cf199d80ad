"""The only writer of a SQLite log: batches of commits, each batch in one transaction.

They are written in one thread. Only a quick single commit is written on the event loop.
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

import msgspec
from msgspec.structs import replace

from palaver.errors import PalaverError, ShuttingDown, TooSlow
from palaver.log.api import (
    LIMIT_NEWEST,
    LIMIT_WAITING,
    Apply,
    Commit,
    Decide,
    EventKey,
    EventKind,
    Hear,
    Scrub,
)
from palaver.log.archive import ArchiveIndex, Archives, archived_events, redact_rows, remove_some, write_mark
from palaver.log.records import (
    COLUMNS,
    ROWS_AT_ONCE,
    BatchRows,
    Blobs,
    EventRow,
    TableVersions,
    decode_event_row,
    encode_event_row,
    in_pieces,
    insert_many,
    readable_events,
)
from palaver.log.search import LIMIT_INDEXED, LIMIT_UNINDEXED, Words
from palaver.log.storage import BUSY_TIMEOUT_S, LogFiles, SeqMark, copy_database, failure_from
from palaver.protocol.envelope import Draft, Event, check_draft, event_from, room_id_of
from palaver.protocol.events import MessageSent

# --------------------
# One transaction of commits: decided, folded and written together. The caller has exclusive use of the
# writing connection.

Outcome: TypeAlias = Commit | Exception
"""The outcome of a commit: its result, or the exception that it raises."""

_SELECT: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_BY_KEY: Final = f"{_SELECT} WHERE request_key = ?"
_BY_KEYS: Final = f"{_SELECT} WHERE request_key IN ({', '.join('?' * ROWS_AT_ONCE)})"
_BY_ID: Final = f"{_SELECT} WHERE id = ? AND sender = ?"
_AFTER: Final = f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?"
# Events of a rebuild between two flushes: the changed rows in memory stay bounded.
_EVENTS_AT_ONCE: Final = 1000
_MANY_EVENTS: Final = 32
"""A batch with at least this many events indexes them in its own transaction; fewer wait for more.

The index costs little per event only if many are added at once.
"""


class CommitOrder(msgspec.Struct, frozen=True):
    """One commit that a caller has ordered."""

    decide: Decide
    request_key: bytes | None
    is_quick: bool = False
    """Reject a draft that takes too long to store on the event loop, with `LargeDraftError`."""


class LargeDraftError(Exception):
    """A draft is too large to be stored on the event loop. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """The events that a batch has accepted and not written yet.

    Repeats within a batch are found here, because no row of the batch is in the file until its end.
    """

    by_key: dict[bytes, Event]
    by_id: dict[tuple[str, str], Event] = field(default_factory=dict)
    rows: list[EventRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event, row: EventRow) -> None:
        self.rows.append(row)
        # By sender too: programs choose ids, and an id is unique only for its sender.
        self.by_id[event.sender, event.id] = event
        request_key = row[-1]
        if request_key is not None:
            self.by_key[request_key] = event
        self.events.append(event)


class Batches:
    """Writes batches of orders, each in one transaction, and keeps track of the last seq."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        apply: Apply,
        device: str,
        blobs: Blobs,
        archives: Archives,
        files: LogFiles,
        mark: SeqMark,
        fold_version: int = 0,
    ) -> None:
        """`fold_version` is the version of `apply`; a rebuild stores it with the rows."""
        self._connection = connection
        self._fold_version = fold_version
        self._files = files
        self._mark = mark
        self._apply = apply
        self._device = device
        self._blobs = blobs
        self._rows = BatchRows(connection)
        self.versions: Final = TableVersions()
        """The last changes of committed rows. Usable from any thread."""
        self._archives = archives
        self._archived = ArchiveIndex(connection, archives)
        self._last = last_seq(connection, archives)
        self.words = Words(connection, blobs, self._last)
        largest_id: str = connection.execute("SELECT coalesce(max(id), '') FROM events").fetchone()[0]
        largest_archived_id = self._archived.largest_id()
        self._has_archived = bool(largest_archived_id)
        # With the archives: `_stored` does not look up an id above this one, so a value that is too low would
        # let a repeat of an archived event in.
        self._largest_id = max(largest_id, largest_archived_id)

    def write(self, orders: Sequence[CommitOrder]) -> list[Outcome]:
        """Decide and write all orders in one transaction; on return the successful ones are durable.

        Raises the errors of the storage; then nothing of the batch is written, and the file is as it was
        before.
        """
        last, largest_id = self._last, self._largest_id
        # IMMEDIATE: the decisions read rows first, and a lock that is taken later could fail after them.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            # A commit into a file that is no longer at its path would be lost without an error.
            self._files.check()
            outcomes = self._write_all(orders)
            self._connection.execute("COMMIT")
        except BaseException:
            # The orders have moved both; the seqs of a batch that failed are used again.
            self._last, self._largest_id = last, largest_id
            self._roll_back()
            raise
        # After the commit: a reader that has seen the new version must find the new rows.
        self.versions.rise(self._rows.tables)
        self._rows.tables.clear()
        self.words.written(self._last)
        # After the commit, so that the mark is never too high: a start would report a loss that never
        # happened.
        self._mark.write(self._last)
        # Again: a file that was lost meanwhile has taken this commit with it.
        self._files.check()
        return outcomes

    def rebuild(self, progress: Callable[[int], None] | None = None) -> int:
        """Fold all events again, archives first, in one transaction. Return how many there were.

        `progress` is called with their number after every few events.
        """
        report = progress or (lambda count: None)
        count = seq = 0
        # One transaction: a rebuild that fails or is killed leaves the old rows, which are complete.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._rows.forget()
            # The cache was emptied first: it would still return rows of the old fold.
            self._connection.execute("DELETE FROM state")
            for event in archived_events(self._connection, self._archives):
                self._rows.change(self._apply(self._rows, event))
                count, seq = count + 1, event.seq
                if count % _EVENTS_AT_ONCE == 0:
                    self._rows.flush()
                    report(count)
            self._rows.flush()
            # From the last archived seq on: an archived event that has not left the log yet is folded once.
            while rows := self._connection.execute(_AFTER, (seq, _EVENTS_AT_ONCE)).fetchall():
                for event in readable_events(rows, self._blobs):
                    self._rows.change(self._apply(self._rows, event))
                self._rows.flush()
                count += len(rows)
                seq = rows[-1][0]
                report(count)
            # In the same transaction: a version that does not belong to the rows would hide that they must be
            # rebuilt.
            write_fold_version(self._connection, self._fold_version)
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self.versions.rise_all()
        return count

    def save(self, target: Path) -> int:
        """Save all committed events after a file of the log was lost.

        If the database is still at its path, it takes over the write-ahead log; else everything is copied
        into the file `target`, which is durable under its name on return. A truncated file cannot be saved:
        it is left as it is.
        """
        if self._files.is_cut:
            return 0
        if not self._files.has_database:
            copy_database(self._connection, target)
        # Needed in both cases: a new database at this path must not meet a foreign write-ahead log.
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return 0

    def remove_archived(self) -> int:
        """Remove some events that are in an archive, in one transaction, and return how many."""
        removed = remove_some(self._connection, self._archives, self._blobs)
        self._has_archived = self._has_archived or removed > 0
        return removed

    def redact(self, seqs: Sequence[int], scrub: Scrub) -> int:
        """Replace events in the log without leaving a byte of the old ones. Return how many there were."""
        self._files.check()
        # Shorter files would otherwise count as damage that another program has done.
        with self._files.being_cut():
            return redact_rows(self._connection, self._blobs, seqs, scrub)

    def _write_all(self, orders: Sequence[CommitOrder]) -> list[Outcome]:
        # Before the outcomes, because each of them raises `_last`.
        before = self._last
        taken = _Taken(by_key=self._known_request_keys(orders))
        outcomes = [self._outcome(order, taken) for order in orders]
        # One statement for many rows: the cost per statement is larger than the cost per row.
        insert_many(self._connection, f"INSERT INTO events ({COLUMNS})", taken.rows)
        # After an upgrade the whole index is missing, and a batch must not wait until it is filled.
        if len(taken.events) >= _MANY_EVENTS and self.words.unindexed <= LIMIT_INDEXED:
            # The index has one end: the events before this batch must be in it first.
            if self.words.unindexed:
                self.words.take_in(before)
            self.words.add(taken.events, self._last)
        self._rows.flush()
        return outcomes

    def _outcome(self, order: CommitOrder, taken: "_Taken") -> Outcome:
        key = order.request_key
        # Before `decide`: the state has changed since the first attempt, so the decision could refuse a
        # repeat.
        if key is not None and key in taken.by_key:
            return Commit(taken.by_key[key], is_repeat=True)
        # A refusal, or an error in a draft, concerns only its caller: it is returned here, not raised,
        # because a raised error would roll back the commits of the others.
        try:
            # While nothing is archived, request keys need no second query.
            if key is not None and self._has_archived and (first := self._archived.by_request_key(key)):
                return Commit(first, is_repeat=True)
            draft = order.decide(self._rows)
            if draft is None:
                return Commit(None)
            check_draft(draft)
            if first := taken.by_id.get((draft.sender, draft.id)) or self._stored(draft):
                return Commit(first, is_repeat=True)
            event = event_from(draft, self._last + 1, self._device)
            # A large payload goes to a file, which is too slow for the event loop.
            if order.is_quick and not event.has_small_payload:
                raise LargeDraftError
            # A large payload is durable in its blob on return, so no committed row names a file that is
            # missing.
            row = encode_event_row(event, key, self._blobs)
            # Last, and before the event gets its seq: an event that the fold rejects must not be written.
            changes = self._apply(self._rows, event)
        # The storage itself failed: no other order of the transaction could be written either.
        except (sqlite3.Error, OSError, LargeDraftError):
            raise
        except StopIteration as error:  # `Future.set_exception` rejects it.
            return RuntimeError(f"decide raised {error!r}")
        except Exception as error:
            return error
        # From here on only the storage can fail: the event has its seq.
        self._last = event.seq
        self._largest_id = max(self._largest_id, event.id)
        self._rows.change(changes)
        taken.add(event, row)
        return Commit(event)

    def _known_request_keys(self, orders: Sequence[CommitOrder]) -> dict[bytes, Event]:
        """Return the events of request keys that are already in the log, with few statements per batch."""
        keys = [order.request_key for order in orders if order.request_key is not None]
        known: dict[bytes, Event] = {}
        for some in in_pieces(keys, ROWS_AT_ONCE):
            # Only two statement texts are used, so that they stay prepared.
            if len(some) == ROWS_AT_ONCE:
                self._look_up(known, _BY_KEYS, some)
            else:
                for key in some:
                    self._look_up(known, _BY_KEY, [key])
        return known

    def _look_up(self, known: dict[bytes, Event], statement: str, keys: list[bytes]) -> None:
        for row in self._connection.execute(statement, keys):
            known[row[-1]] = decode_event_row(row, self._blobs)

    def _stored(self, draft: Draft) -> Event | None:
        # A new id, without a query. Our generator starts above the largest ULID of the log, so this is the
        # usual case; only a repeat or the own id of a program needs the index.
        if draft.id > self._largest_id:
            return None
        try:
            row = self._connection.execute(_BY_ID, (draft.id, draft.sender)).fetchone()
        except UnicodeError as error:  # A lone surrogate in the draft: only this caller is refused.
            raise failure_from(error) from error
        if row is None:
            return self._archived.by_sender(draft.id, draft.sender)
        return decode_event_row(row, self._blobs)

    def _roll_back(self) -> None:
        self._rows.forget()
        if self._connection.in_transaction:  # Some disk errors have already rolled back.
            self._connection.execute("ROLLBACK")
        # After the ROLLBACK: inside the transaction it would read an end of the index that is not committed.
        self.words.forget()
        # A commit that reports an error may still have been made: cached rows of other threads may be old.
        self.versions.rise_all()


def read_fold_version(connection: sqlite3.Connection) -> int:
    """Return the version of the fold that made the rows; 0 for one without a version."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'fold'").fetchone()
    return 0 if row is None else int(row[0])


def write_fold_version(connection: sqlite3.Connection, version: int) -> None:
    """Store the version of the fold that made the rows, in the open transaction if there is one."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('fold', ?)", (str(version),))


def last_seq(connection: sqlite3.Connection, archives: Archives) -> int:
    """Return the highest seq ever used, also if its event is archived, even in a lost file."""
    # Not the largest seq in `events`: archived and lost events are not in it, and their seqs must not be
    # reused.
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return max(0 if row is None else row[0], archives.last())


# --------------------
# The rule for commits on the event loop itself instead of in the writer's thread. Pure.
#
# A single commit on a quick disk takes less time than switching to a thread and back. But a commit blocks the
# event loop: so it never waits for a disk that was slow recently, and not for commits in quick succession,
# which cost less in one transaction.

QUICK_S: Final = 0.003
"""Seconds: a commit that took longer was slow, and the next ones must not block the event loop."""
ENOUGH: Final = 4
"""This many quick commits in a row make a quick disk; a slow one resets the count."""
CLOSE_S: Final = 0.001
"""Seconds: a commit that arrives sooner after the end of another one is part of a series."""
ALONE_S: Final = 0.05
"""Seconds without a series before the event loop may make a commit."""


class CommitPace:
    """The recent commits and their durations. All times are of one monotonic clock.

    The disk counts as slow at first, so that an unknown disk never blocks the event loop.
    """

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
        """Record that commits were just made, by the thread or on the event loop."""
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
        # The handlers are looked up once for each combination of keys: most events of a batch have the same.
        lists: dict[tuple[EventKey, ...], list[list[Event]]] = {}
        for event in events:
            keys = _keys_of(event)
            if keys not in lists:
                # Several keys of a handler may apply to one event.
                handlers = {number: hear for key in keys for number, hear in self._table.get(key, {}).items()}
                lists[keys] = [found.setdefault(number, (hear, []))[1] for number, hear in handlers.items()]
            for own in lists[keys]:
                own.append(event)
        # By number, because `found` has the order of the events. All lists were made before the first call,
        # so a handler may add or remove handlers.
        for number in sorted(found):
            hear, own = found[number]
            try:
                hear(own)
            except Exception as error:  # A bug of the handler; the commit is durable and must return.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a subscriber of the log raised", "exception": error}
                )


def _keys_of(event: Event) -> tuple[EventKey, ...]:
    # An imported or migrated event is history: deliveries and reminders that it required were handled, or
    # dropped, in the log or the path broker that it comes from. No handler may act on it a second time.
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
# All of it can wait for a pause, up to a limit, so that no sender waits for it. The caller has exclusive use
# of the writing connection.

_PAGES_WHEN_IDLE: Final = 1_000
_PAGES_AT_MOST: Final = 4_000
"""Pages of the write-ahead log before a checkpoint: at the next pause, or at once."""
WAL_BYTES: Final = _PAGES_AT_MOST * 4_120
"""The preallocated size: a frame is a page of 4,096 bytes and a header of 24."""

_PAGES_OF_A_BATCH: Final = 10
_PAGES_OF_AN_EVENT: Final = 2
"""Estimates, because Python's sqlite3 has no access to SQLite's own count of written pages."""


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
        return self._words.unindexed >= LIMIT_UNINDEXED or self._pages >= _PAGES_AT_MOST

    @property
    def is_wanted(self) -> bool:
        """Whether something must be done at the next pause."""
        return self._lay_out is not None or self._pages >= _PAGES_WHEN_IDLE or bool(self._words.unindexed)

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
        if self._words.unindexed >= LIMIT_UNINDEXED:
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
            # Also after a failure: it is not retried at every pause.
            self._lay_out = None
        return 0

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file."""
        # Also if the checkpoint fails: the next attempt then follows after as many pages, not at every
        # commit.
        self._pages = 0
        # Disk full, or a reader is active: it is tried again later. PASSIVE never waits for a reader.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def index(self) -> int:
        """Index missing events up to a limit, and count the pages; a failure is raised to the search."""
        count = min(LIMIT_INDEXED, self._words.unindexed)
        if count:
            self._words.catch_up()
            self._pages += _PAGES_OF_A_BATCH + count
        return count

    def _index_quietly(self) -> None:
        # Disk full: a search reports it, or a later call succeeds. The writer's thread must not end here.
        with contextlib.suppress(sqlite3.Error, OSError):
            self.index()


# --------------------
# The queue of commits, and the thread that writes them.

_IDLE_S: Final = 0.2
"""Seconds without a commit that count as a pause, in which maintenance runs."""
_LIMIT_BATCH: Final = 2048
"""Commits after which a transaction takes no more callers."""

_TRIED_BYTES: Final = 64 * 1024
"""Free bytes that must exist before commits are accepted again: the largest payload that a row holds."""

_CLOSING: Final = "the log is closing; nothing was stored"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Queued commits of one caller. They share one transaction: all of them are stored, or none."""

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
        in_use: threading.Lock,
        batches: Batches,
        newest: Newest,
        upkeep: Upkeep,
        pace: CommitPace,
    ) -> None:
        """Take over the connection, on the running event loop, and start the thread.

        Others may read with the connection while they hold `in_use`.
        """
        self._connection = connection
        self._batches = batches
        self._newest = newest
        self._loop = asyncio.get_running_loop()
        # Without a limit, so that the event loop never blocks in `put`; `_in_line` limits the number of
        # commits.
        self._line: queue.SimpleQueue[_Waiting | _Job] = queue.SimpleQueue()
        self._end: _Job | None = None
        self._refusal: PalaverError | None = None
        self._upkeep = upkeep
        self._pace = pace
        self._in_line = 0
        self._nudge: asyncio.TimerHandle | None = None
        # As `connect_writer` has opened the connection.
        self._is_patient = True
        # Protects the connection and all state about it: the thread and the event loop both write.
        self._in_use = in_use
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
        # A cancelled caller does not lower it: its orders are written anyway, and `_deliver` subtracts them.
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
        # In parts, so that commits need not wait for a whole index that an upgrade has emptied. The number of
        # parts is fixed at the start: with constant writes a search would otherwise never begin.
        for _ in range(0, self._batches.words.unindexed, LIMIT_INDEXED):
            # The thread ends with the last job, so a later one would never be done.
            if self._end is None:
                job = _Job(self._upkeep.index)
                self._line.put(job)
                await asyncio.wrap_future(job.result)

    async def close(self) -> None:
        """Write queued commits, then end the thread and close the connection."""
        if self._end is None:
            if self._nudge is not None:
                # The thread ends with the last job: a job that is queued after it would never be done.
                self._nudge.cancel()
            self._end = _Job(self._finish, is_last=True)
            self._line.put(self._end)
        # Shielded: several callers may wait for this one job, and a cancelled caller must not cancel it.
        await asyncio.shield(asyncio.wrap_future(self._end.result))
        # This does not block the event loop for long: the thread ends right after the result of its last job.
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
        # Commits that are queued, or whose results are not delivered yet, come first: handlers must receive
        # events in seq order. Urgent maintenance takes long, so it is left to the thread.
        # `came` is first in the condition, because it must record every commit that arrives, also a queued
        # one.
        if not self._pace.came(began_s) or self._in_line or self._upkeep.is_urgent:
            return None
        # Do not wait here: the thread may be in a sync, and the event loop must not block.
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            # Without a busy timeout: SQLite would sleep in it, and the event loop with it.
            self._be_patient(False)
            outcome: Outcome = self._batches.write([replace(order, is_quick=True)])[0]
        # In the next two cases nothing was written, and the thread calls `decide` again.
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
        # The lock is free before the handlers are called, because their reads use this connection if it is
        # free.
        ended_s = time.monotonic()
        self._pace.ended(ended_s, ended_s - began_s)
        self._nudge_later()
        # A repeat was published when it was stored.
        if isinstance(outcome, Commit) and outcome.event is not None and not outcome.is_repeat:
            self._newest.add([outcome.event])
        return outcome

    def _nudge_later(self) -> None:
        """Let the thread do the work that waits for a pause: nothing else wakes it."""
        if self._nudge is None:
            self._nudge = self._loop.call_later(_IDLE_S, self._nudge_thread)

    def _nudge_thread(self) -> None:
        self._nudge = None
        # Commits on the event loop do not move this timer, because a new timer for each would cost more than
        # one check here that there was a pause.
        if time.monotonic() - self._pace.ended_s < _IDLE_S / 2:
            self._nudge_later()
        else:
            self._line.put(_Job(self._upkeep.do_all))

    def _deliver(self, results: _Results, took_s: float) -> None:
        self._pace.ended(time.monotonic(), took_s)
        made = [outcome for _, outcomes in results for outcome in outcomes]
        self._in_line -= len(made)
        commits = [outcome for outcome in made if isinstance(outcome, Commit)]
        # Handlers before callers: a caller that reads after its commit must see the effects of that commit.
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
                    done = self._do(job)
                # The thread must not end: every later commit would wait indefinitely.
                except BaseException as error:
                    job.result.set_exception(failure_from(error))
                else:
                    job.result.set_result(done)

    def _do(self, job: _Job) -> int:
        self._in_use.acquire()
        try:
            self._be_patient(True)
            done = job.run()
            # So that the next commit on the event loop needs no statement for it.
            if not job.is_last:
                self._be_patient(False)
        finally:
            # The last job has closed the connection: readers must not find it free again.
            if not job.is_last:
                self._in_use.release()
        return done

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
        # Between two batches, and before the next one is taken: the delay is bounded, the files do not grow.
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
            # BaseException below: a decision that raises SystemExit would otherwise end the thread.
            outcomes = iter(self._batches.write([order for one in waiting for order in one.orders]))
        except BaseException as error:
            # One order, or the disk, broke the batch, and nothing of it is written. Write the orders of each
            # caller in a separate transaction, so that the others succeed. Never split the orders of one
            # caller: after a crash all of them must be stored, or none.
            if len(waiting) == 1:
                return [(waiting[0], [failure_from(error)] * len(waiting[0].orders))]
            return [result for one in waiting for result in self._together([one])]
        return [(one, list(islice(outcomes, len(one.orders)))) for one in waiting]

    def _try_writing(self) -> int:
        # A real write, because free space alone does not show a quota or a file size limit.
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
        # SQLite does it itself only when the last connection closes, and the readers are still open.
        self._upkeep.checkpoint()
        self._connection.close()
        return 0


def _is_busy(error: BaseException) -> bool:
    """Return whether another program locks the file. The lowest byte of a code is its kind."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
