"""One transaction of commits: decided, folded and written together. Belongs to the writer's thread."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from palaver.log.api import Apply, Commit, Decide, Scrub
from palaver.log.archive import ArchiveIndex, Archives, archived_events, remove_some
from palaver.log.records import (
    COLUMNS,
    ROWS_AT_ONCE,
    BatchRows,
    Blobs,
    EventRow,
    decode_event_row,
    encode_event_row,
    in_pieces,
    insert_many,
    readable_events,
)
from palaver.log.redaction import redact_rows
from palaver.log.search import LIMIT_INDEXED, Words
from palaver.log.storage import LogFiles, SeqMark, copy_database, failure_from
from palaver.protocol.envelope import Draft, Event, check_draft, event_from, is_small

Outcome: TypeAlias = Commit | Exception
"""The outcome of a commit: its result, or the exception that it raises."""

_SELECT: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_BY_KEY: Final = f"{_SELECT} WHERE request_key = ?"
_BY_KEYS: Final = f"{_SELECT} WHERE request_key IN ({', '.join('?' * ROWS_AT_ONCE)})"
_BY_ID: Final = f"{_SELECT} WHERE id = ? AND sender = ?"
_BEHIND: Final = f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?"
_EVENTS_AT_ONCE: Final = 1000
_MANY_EVENTS: Final = 32
"""A batch with at least this many events indexes them at once; fewer wait for more."""


class CommitOrder(msgspec.Struct, frozen=True):
    """The request of a caller."""

    decide: Decide
    request_key: bytes | None
    is_quick: bool = False
    """Reject a draft that takes too long to store on the event loop, with `LargeDraftError`."""


class LargeDraftError(Exception):
    """A draft is too large to be stored on the event loop. Nothing was written."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """The events that a batch has accepted and not written yet."""

    by_key: dict[bytes, Event]
    by_id: dict[tuple[str, str], Event] = field(default_factory=dict)
    rows: list[EventRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event, row: EventRow) -> None:
        self.rows.append(row)
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
        self._archives = archives
        self._archived = ArchiveIndex(connection, archives)
        self._last = last_seq(connection, archives)
        self.words = Words(connection, blobs, self._last)
        largest_id: str = connection.execute("SELECT coalesce(max(id), '') FROM events").fetchone()[0]
        largest_archived_id = self._archived.largest_id()
        self._has_archived = bool(largest_archived_id)
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
        self.words.written(self._last)
        self._mark.write(self._last)
        self._files.check()  # Again: a file that was lost meanwhile has taken this commit with it.
        return outcomes

    def rebuild(self, progress: Callable[[int], None] | None = None) -> int:
        """Fold all events again, archives first, in one transaction. Return how many there were.

        `progress` is called with their number after every few events.
        """
        report = progress or (lambda count: None)
        count = seq = 0
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._rows.forget()
            self._connection.execute("DELETE FROM state")
            for event in archived_events(self._connection, self._archives):
                self._rows.change(self._apply(self._rows, event))
                count, seq = count + 1, event.seq
                if count % _EVENTS_AT_ONCE == 0:
                    self._rows.flush()
                    report(count)
            self._rows.flush()
            while rows := self._connection.execute(_BEHIND, (seq, _EVENTS_AT_ONCE)).fetchall():
                for event in readable_events(rows, self._blobs):
                    self._rows.change(self._apply(self._rows, event))
                self._rows.flush()
                count += len(rows)
                seq = rows[-1][0]
                report(count)
            write_fold_version(self._connection, self._fold_version)
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
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
        with self._files.being_cut():
            return redact_rows(self._connection, self._blobs, seqs, scrub)

    def _write_all(self, orders: Sequence[CommitOrder]) -> list[Outcome]:
        before = self._last
        taken = _Taken(by_key=self._known_request_keys(orders))
        outcomes = [self._outcome(order, taken) for order in orders]
        # One statement for many rows: the cost per statement is larger than the cost per row.
        insert_many(self._connection, f"INSERT INTO events ({COLUMNS})", taken.rows)
        if len(taken.events) >= _MANY_EVENTS and self.words.behind <= LIMIT_INDEXED:
            if self.words.behind:
                self.words.take_in(before)
            self.words.add(taken.events, self._last)
        self._rows.flush()
        return outcomes

    def _outcome(self, order: CommitOrder, taken: "_Taken") -> Outcome:
        key = order.request_key
        if key is not None and key in taken.by_key:
            return Commit(taken.by_key[key], is_repeat=True)
        # A refusal, or an error in a draft, concerns only its caller.
        try:
            if key is not None and self._has_archived and (first := self._archived.by_request_key(key)):
                return Commit(first, is_repeat=True)
            draft = order.decide(self._rows)
            if draft is None:
                return Commit(None)
            check_draft(draft)
            if first := taken.by_id.get((draft.sender, draft.id)) or self._stored(draft):
                return Commit(first, is_repeat=True)
            # A large payload goes to a file, which is too slow for the event loop.
            if order.is_quick and not is_small(draft.payload):
                raise LargeDraftError
            event = event_from(draft, self._last + 1, self._device)
            row = encode_event_row(event, key, self._blobs)
            changes = self._apply(self._rows, event)
        except (sqlite3.Error, OSError, LargeDraftError):
            raise
        except StopIteration as error:  # No future can carry it.
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
        if draft.id > self._largest_id:  # As are all ids that our generator makes.
            return None
        try:
            row = self._connection.execute(_BY_ID, (draft.id, draft.sender)).fetchone()
        except UnicodeError as error:
            raise failure_from(error) from error
        if row is None:
            return self._archived.by_sender(draft.id, draft.sender)
        return decode_event_row(row, self._blobs)

    def _roll_back(self) -> None:
        self._rows.forget()
        if self._connection.in_transaction:  # Some disk errors have already rolled back.
            self._connection.execute("ROLLBACK")
        self.words.forget()


def read_fold_version(connection: sqlite3.Connection) -> int:
    """Return the version of the fold that made the rows; 0 for one without a version."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'fold'").fetchone()
    return 0 if row is None else int(row[0])


def write_fold_version(connection: sqlite3.Connection, version: int) -> None:
    """Store the version of the fold that made the rows, in the open transaction if there is one."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('fold', ?)", (str(version),))


def last_seq(connection: sqlite3.Connection, archives: Archives) -> int:
    """Return the highest seq ever used, also if its event is archived, even in a lost file."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return max(0 if row is None else row[0], archives.last())
