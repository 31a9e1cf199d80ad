"""The log in one SQLite file: the default engine. Assembles its parts and decides nothing.

Writes go through one thread (writer.py); point reads run here, on the event loop, on a separate connection;
everything longer runs in the reader's threads.
"""

import asyncio
import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from palaver.clock import Clock
from palaver.errors import DiskFull, PalaverError, ShuttingDown, StorageFailed, TooSlow
from palaver.home import sync
from palaver.log.api import (
    ANY_EVENT,
    Apply,
    Archived,
    ArchivedPage,
    BlobCount,
    Commit,
    Containing,
    Decide,
    EventKey,
    Hear,
    Order,
    Scrub,
)
from palaver.log.archive import (
    ArchiveIndex,
    Archives,
    Copier,
    count_archived,
    find_containing,
    read_mark,
    read_unfinished,
)
from palaver.log.records import (
    COLUMNS,
    Blobs,
    CachedRows,
    count_blobs,
    count_unreadable,
    read_indexed,
    read_unplaced,
    readable_events,
)
from palaver.log.search import (
    archived_conversations_statement,
    check_search,
    in_order,
    statements_from,
    wanted,
)
from palaver.log.sql_guard import TIME_LIMIT_S, GuardProcess
from palaver.log.storage import (
    FILE_NAME,
    REBUILT,
    LogFiles,
    SeqMark,
    connect_reader,
    connect_writer,
    damaged,
    failure_from,
    find_damage,
    lay_out_wal,
    migrate,
    note_lost,
)
from palaver.log.writer import (
    WAL_BYTES,
    Batches,
    CommitPace,
    Newest,
    Upkeep,
    Writer,
    last_seq,
    read_fold_version,
    write_fold_version,
)
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query, matches
from palaver.state.rows import Rows

# --------------------
# Reads outside the event loop: a few threads for queries, and one that waits for the SQL of callers.
#
# Every read opens, finishes and closes its own statement; nothing stays open between two.

_THREADS: Final = 2
_LIMIT_SQL_IN_LINE: Final = 8
"""Conditions that run or wait: one runs at a time, so the last one may wait for as many time limits."""
_EVENTS_AT_ONCE: Final = 256
_ABOVE_ALL_SEQS: Final = 2**63 - 1  # The largest integer in SQLite.


class Reader:
    """The reading threads, each with its own connection.

    Queries wait for a free thread. Of those with SQL one runs at a time and a few wait; more are refused with
    TooSlow.
    """

    def __init__(self, path: Path, blobs: Blobs, files: LogFiles, *, sql_limit_s: float) -> None:
        self._path = path
        self._files = files
        self._blobs = blobs
        # Several threads use it without a lock: `pop` and `append` of a list are atomic in the interpreter.
        self._connections: list[sqlite3.Connection] = []
        self._guard = GuardProcess(path, sql_limit_s)
        self._sql_in_line = 0
        self._is_closed = False
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="log reader")
        # A separate thread: a condition may take its whole time limit, and other queries must not wait.
        self._slow_thread = ThreadPoolExecutor(1, thread_name_prefix="log sql")

    async def read(self, query: Query) -> list[Event]:
        """Return matching events, in seq order."""
        check_search(query)
        if not query.sql:
            return await self._run(self._threads, self._find, query)
        if self._sql_in_line >= _LIMIT_SQL_IN_LINE:
            raise TooSlow("too many SQL conditions are waiting; try again")
        self._sql_in_line += 1
        try:
            return await self._run(self._slow_thread, self._find_with_sql, query)
        finally:
            self._sql_in_line -= 1

    async def read_archived_conversations(self, query: Query, archives: Archives) -> list[Event]:
        """Return archived events in the conversations of a query, in seq order: as many as it wants."""
        return await self._run(self._threads, partial(self._find_archived, archives), query)

    async def close(self) -> None:
        """Let running queries finish, stop SQL conditions at once, and close the connections."""
        self._is_closed = True
        # Before the threads are waited for: a running condition would delay the close until its time limit.
        self._guard.stop()
        for threads in (self._threads, self._slow_thread):
            # In a thread, because `shutdown` waits for running queries.
            await asyncio.to_thread(threads.shutdown)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def _run(
        self, threads: ThreadPoolExecutor, find: Callable[[Query], list[Event]], query: Query
    ) -> list[Event]:
        if self._is_closed:
            raise ShuttingDown("the log is closed")
        # A new connection would open any file that is at the path now, also that of another log.
        self._files.check()
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, find, query)
        except (sqlite3.Error, OSError) as error:
            raise StorageFailed(f"the log could not be read: {error}") from error

    # The methods below belong to the threads.

    def _find(self, query: Query) -> list[Event]:
        with self._connection() as connection:
            return _in_seq_order(query, self._matching(connection, query))

    def _find_with_sql(self, query: Query) -> list[Event]:
        with self._connection() as connection:
            return _in_seq_order(query, self._matching_sql(connection, query))

    def _find_archived(self, archives: Archives, query: Query) -> list[Event]:
        with self._connection() as connection:
            return _in_seq_order(query, _archived_in_conversations(connection, archives, query))

    def _matching_sql(self, connection: sqlite3.Connection, query: Query) -> Generator[Event, None, None]:
        # The statement of the guard always has both ends, so a query without an end gets one that excludes no
        # event.
        before = _ABOVE_ALL_SEQS if query.before is None else query.before
        is_newest_first = query.last is not None
        with contextlib.closing(
            # Closing this iterator ends the process when the query has enough events.
            self._guard.seqs(query.sql, after=query.after, before=before, is_newest_first=is_newest_first)
        ) as pieces:
            for seqs in pieces:
                yield from self._matching(connection, query, seqs)

    def _matching(
        self, connection: sqlite3.Connection, query: Query, among: list[int] | None = None
    ) -> Generator[Event, None, None]:
        # The index only grows, so an event that is indexed meanwhile is found by one of the statements: one
        # reads the index up to this seq, the other one reads the events after it.
        for statement, values in statements_from(query, among or (), last_indexed=read_indexed(connection)):
            with contextlib.closing(connection.execute(statement, values)) as cursor:
                # The first fetch is no larger than the query: most callers want one event.
                size = min(wanted(query), _EVENTS_AT_ONCE)
                while rows := cursor.fetchmany(size):
                    for event in readable_events(rows, self._blobs):
                        if matches(query, event):
                            yield event
                    size = _EVENTS_AT_ONCE

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to the calling thread; there are never more connections than threads."""
        try:
            connection = self._connections.pop()
        except IndexError:  # A check before it would not do: another thread may take the last one in between.
            connection = connect_reader(self._path)
        try:
            yield connection
        finally:
            self._connections.append(connection)


def _archived_in_conversations(
    connection: sqlite3.Connection, archives: Archives, query: Query
) -> Generator[Event, None, None]:
    """Yield archived events in the conversations of a query, from the end at which it begins.

    Events that an older version archived have no conversations in the index: they are read one by one. They
    have the lowest seqs, so they come before all others, or after them if the newest come first.
    """
    last = archives.last() + 1
    before = last if query.before is None else min(query.before, last)
    unplaced = read_unplaced(connection)
    is_newest_first = query.last is not None
    statement, values = archived_conversations_statement(query, max(query.after, unplaced), before)
    with contextlib.closing(connection.execute(statement, values)) as cursor:
        placed = (archives.event(seq) for (seq,) in cursor)
        with contextlib.closing(
            archives.between(query.after, min(before, unplaced + 1), is_newest_first=is_newest_first)
        ) as read:
            for event in chain(placed, read) if is_newest_first else chain(read, placed):
                if event is not None and matches(query, event):
                    yield event


def _in_seq_order(query: Query, found: Generator[Event, None, None]) -> list[Event]:
    """Return the wanted number of events, from the end at which the statement began, and drop the rest."""
    with contextlib.closing(found):
        events = list(islice(found, wanted(query)))
    return events if query.last is None else events[::-1]


# --------------------
# The engine: it opens the file, and connects the writer, the reader and the archives.

_CONSONANTS: Final = "BDFGKLMNPRSTVZ"
_VOWELS: Final = "AEIOU"

_SHORTEST_END: Final = 4
"""Characters of an end of an id: the database has an index of the last four, and a shorter end cannot use it.
"""
# Enough candidates for an error about an end that is not unique, as the contract of `find` says.
_FOUND_AT_MOST: Final = 5

_SELECT: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_BY_SEQ: Final = f"{_SELECT} WHERE seq = ?"
_BY_ID: Final = f"{_SELECT} WHERE id = ? ORDER BY seq DESC LIMIT {_FOUND_AT_MOST}"
# The first condition is the expression of the index `events_by_end`, so that SQLite uses the index; the
# second one compares an end that is longer.
_BY_END: Final = (
    f"{_SELECT} WHERE upper(substr(id, -4)) = upper(substr(?1, -4))"
    f" AND upper(substr(id, -length(?1))) = upper(?1) ORDER BY seq DESC LIMIT {_FOUND_AT_MOST}"
)
# Ids of the last millisecond that a ULID can contain are left out: the generator would have no larger ones.
_LARGEST_ULID: Final = (
    "SELECT id FROM events WHERE id < '7ZZZZZZZZZ' AND length(id) = 26"
    " AND id NOT GLOB '*[^0-9A-HJKMNP-TV-Z]*' ORDER BY id DESC LIMIT 1"
)
"""The generator starts above it.

An id that a program chose may have any form, and must not become the start.
"""


class SqliteLog:
    """The log of one home directory. Only one process may open it at a time: the daemon holds a lock."""

    def __init__(
        self,
        *,
        device: str,
        path: Path,
        writer: Writer,
        reader: Reader,
        point: sqlite3.Connection,
        rows: CachedRows,
        blobs: Blobs,
        newest: Newest,
        archives: Archives,
        copier: Copier,
        files: LogFiles,
        mark: SeqMark,
        lost: str,
        is_fold_old: bool,
    ) -> None:
        """Take the parts that `open` made."""
        self.is_fold_old = is_fold_old
        """Whether another version of the fold made the rows, so that they must be rebuilt."""
        self._files = files
        self._mark = mark
        self.lost = lost
        """A sentence if this start has detected that acknowledged events are missing; else empty."""
        self._is_saved = False
        """Whether the events of a lost file were saved; `close` tries again only after a failure."""
        self._device = device
        self._path = path
        self._writer = writer
        self._reader = reader
        self._point = point
        self._rows = rows
        self._blobs = blobs
        self._newest = newest
        self._archives = archives
        self._archived = ArchiveIndex(point, archives)
        self._copier = copier

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        apply: Apply,
        clock: Clock,
        fold_version: int = 0,
        device: str | None = None,
        sql_limit_s: float = TIME_LIMIT_S,
        pace: CommitPace | None = None,
        upgrading: Callable[[], None] | None = None,
    ) -> "SqliteLog":
        """Open the log in a directory, or create it; nothing in it is scanned.

        `upgrading` is called in a thread before the file of an older version is changed, which can take long.

        `fold_version` is the version of `apply`: if another one made the rows, `is_fold_old` is true. The
        device id is drawn when the log is created, or taken from `device`, and kept permanently. Raises
        NewerSchema, DiskFull, or StorageFailed for a foreign or unreadable file.
        """
        path = directory / FILE_NAME
        blobs = Blobs(directory / "blobs")
        try:
            with contextlib.ExitStack() as opened:
                connection, kept_device = await asyncio.to_thread(
                    _prepare, path, device or _draw_device(), clock.now_ms(), fold_version, upgrading
                )
                opened.callback(connection.close)
                # Not before: opening the file may move a saved copy to its path, and makes the write-ahead
                # log.
                files = LogFiles(path)
                mark = SeqMark(directory, kept_device)
                opened.callback(mark.close)
                reader = Reader(path, blobs, files, sql_limit_s=sql_limit_s)
                point = connect_reader(path)
                opened.callback(point.close)
                archives = Archives(directory / "archive")
                # Before the batches and the newest events, which begin after the highest seq: this can raise
                # it.
                lost = note_lost(connection, mark.read(), last_seq(connection, archives))
                batches = Batches(
                    connection,
                    apply=apply,
                    device=kept_device,
                    blobs=blobs,
                    archives=archives,
                    files=files,
                    mark=mark,
                    fold_version=fold_version,
                )
                # Not only a lower version: after a downgrade the rows are those of another fold too.
                is_fold_old = read_fold_version(connection) != fold_version
                newest = Newest(last_seq(connection, archives))
                # From here on `close` closes them.
                opened.pop_all()
        except (sqlite3.Error, OSError, UnicodeError) as error:
            # SQLite cannot decode a name that it reads from a damaged file.
            raise (damaged(error) if isinstance(error, UnicodeError) else failure_from(error)) from error
        upkeep = Upkeep(connection, batches.words, lambda: lay_out_wal(path, WAL_BYTES))
        in_use = threading.Lock()
        writer = Writer(connection, in_use, batches, newest, upkeep, pace or CommitPace())
        return cls(
            device=kept_device,
            path=path,
            writer=writer,
            reader=reader,
            point=point,
            rows=CachedRows(point, batches.versions, connection, in_use),
            blobs=blobs,
            newest=newest,
            archives=archives,
            copier=Copier(path, archives, blobs),
            files=files,
            mark=mark,
            lost=lost,
            is_fold_old=is_fold_old,
        )

    @property
    def device(self) -> str:
        return self._device

    @property
    def rows(self) -> Rows:
        return self._rows

    async def commit(self, key: str | None, decide: Decide, *, request_key: bytes | None = None) -> Commit:
        # One writer decides inside its transaction, so it has seen everything, whatever the key.
        return await self._writer.commit(decide, request_key)

    async def commit_all(self, orders: Sequence[Order]) -> list[Commit | Exception]:
        return await self._writer.commit_all([decide for _, decide in orders])

    def last(self) -> int:
        return self._newest.last()

    def largest_id(self) -> str:
        row = self._point.execute(_LARGEST_ULID).fetchone()
        return max("" if row is None else row[0], self._archived.largest_ulid())

    def event(self, seq: int) -> Event | None:
        found = self._events(_BY_SEQ, seq)
        return found[0] if found else self._archives.event(seq)

    def recall(self, seq: int) -> Event | None:
        found = self._events(_BY_SEQ, seq)
        return found[0] if found else self._archived.by_seq(seq)

    async def fetch(self, seq: int) -> Event | None:
        # `with_imported`, because a query leaves imported events out.
        found = await self.read(Query(after=seq - 1, before=seq + 1, with_imported=True))
        event = found[0] if found else await asyncio.to_thread(self._archives.event, seq)
        # Only the index knows whether a missing event is lost or has never existed.
        return event or self._archived.by_seq(seq)

    def find(self, id_or_end: str) -> list[Event]:
        # Newest first: archived events are older than those in the log.
        exact = [*self._events(_BY_ID, id_or_end), *self._archived.by_id(id_or_end)]
        if exact or len(id_or_end) < _SHORTEST_END:
            return exact[:_FOUND_AT_MOST]
        return [*self._events(_BY_END, id_or_end), *self._archived.by_end(id_or_end)][:_FOUND_AT_MOST]

    async def read(self, query: Query) -> list[Event]:
        if query.search:
            await self._writer.index()
        return await self._reader.read(query)

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]:
        return self._newest.handlers.add(hear, types)

    def tail(self, after: int, limit: int) -> list[Event] | None:
        return self._newest.tail(after, limit)

    async def rebuild(self, progress: Callable[[int], None] | None = None) -> int:
        count = await self._writer.rebuild(progress)
        self.is_fold_old = False
        return count

    def find_trouble(self) -> str:
        """Check whether a file of the log was lost. Return a sentence, or an empty text."""
        with contextlib.suppress(StorageFailed):
            self._files.check()
        return self._files.trouble

    async def save(self) -> None:
        """Save all committed events after a file of the log was lost; at most once.

        They are in the database if that is still at its path, else in a copy, which the next `open` moves
        there. Raises DiskFull or StorageFailed if that fails.
        """
        if not self._is_saved:
            await self._writer.save(_saved(self._path))
            self._is_saved = True

    def refuse_commits(self, reason: PalaverError) -> None:
        """Refuse every commit from now on, for as long as this log is open. Reads continue."""
        self._writer.refuse(reason)

    async def has_room(self) -> bool:
        """Return whether something can be written, also while commits are refused; it leaves no trace.

        There must be space for the write-ahead log once more: it is copied into the database on close.
        """
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < self._files.wal_bytes:
            return False
        try:
            await self._writer.try_writing()
        except DiskFull:
            return False
        return True

    async def archive(self, before: int) -> Archived:
        # The copy opens the file that is at the path now, which may be that of another log.
        self._files.check()
        try:
            file = await asyncio.to_thread(self._copier.copy, before)
        except (sqlite3.Error, OSError) as error:
            raise failure_from(error) from error
        count = 0
        # Also without a new file: an earlier call may have been interrupted before it removed all events. One
        # job for a few events, so that commits run in between.
        while removed := await self._writer.remove_archived():
            count += removed
        return Archived(count, self._archives.last(), None if file is None else file.path)

    def archived(self) -> int:
        return self._archives.last()

    async def read_archived(self, query: Query) -> ArchivedPage:
        return ArchivedPage(*await asyncio.to_thread(self._archives.look, query))

    async def read_shown(self, query: Query) -> list[Event]:
        # The log first: an event that is archived meanwhile is then found twice, and not missed.
        found = await self._reader.read(query)
        if query.after < self._archives.last():
            found += await self._reader.read_archived_conversations(query, self._archives)
        return in_order(query, found)

    async def redact(self, seqs: Sequence[int], scrub: Scrub) -> None:
        try:
            await asyncio.to_thread(self._copier.redact, frozenset(seqs), scrub)
        except OSError as error:
            raise failure_from(error) from error
        await self._writer.redact(seqs, scrub)
        # Followers read the newest events from memory, so the text must leave it too.
        held = [await self.fetch(seq) for seq in seqs if self._newest.may_hold(seq)]
        self._newest.replace([event for event in held if event is not None])

    def redacted(self) -> int:
        return read_mark(self._point)

    def unfinished_redactions(self) -> Sequence[int]:
        return read_unfinished(self._point)

    async def mark_redacted(self, seq: int, unfinished: Sequence[int] = ()) -> None:
        await self._writer.mark_redacted(seq, unfinished)

    async def find_containing(self, pieces: Sequence[str]) -> Containing:
        try:
            return await asyncio.to_thread(
                find_containing, self._path, self._blobs, self._archives.files, pieces
            )
        except (sqlite3.Error, OSError) as error:
            raise failure_from(error) from error

    async def check_archives(self) -> int:
        return await asyncio.to_thread(count_archived, self._path, self._archives)

    async def check_storage(self) -> Sequence[str]:
        self._files.check()
        return await asyncio.to_thread(find_damage, self._path)

    async def check_blobs(self) -> BlobCount:
        return await asyncio.to_thread(count_blobs, self._path, self._blobs)

    async def count_unreadable(self) -> int:
        return await asyncio.to_thread(count_unreadable, self._path, self._blobs)

    async def close(self) -> None:
        # The last chance: an unlinked file disappears with its last connection.
        if self.find_trouble():
            with contextlib.suppress(PalaverError):
                await self.save()
        # SQLite removes the write-ahead log when the last connection closes: that must not count as a loss.
        self._files.close()
        # A copy of a large log would delay the close for a long time; the next archiving makes it again.
        self._copier.stop()
        await self._writer.close()
        await self._reader.close()
        self._point.close()
        # After the writer, which stores the seq of each batch in it until its last one.
        self._mark.close()

    def _events(self, statement: str, value: object) -> list[Event]:
        rows = self._point.execute(statement, (value,)).fetchall()
        return list(readable_events(rows, self._blobs))


def _prepare(
    path: Path, device: str, now_ms: int, fold_version: int, upgrading: Callable[[], None] | None
) -> tuple[sqlite3.Connection, str]:
    """Open and migrate the file. Return the writer's connection and the stored device id."""
    # Before the file is opened: that creates an empty one, and a saved copy is used only if there is no file.
    put_saved_back(path)
    connection = connect_writer(path)
    try:
        migrate(connection, upgrading=upgrading)
        found = connection.execute("SELECT value FROM meta WHERE key = 'device'").fetchone()
        if found is None:
            connection.execute(
                "INSERT OR IGNORE INTO meta (key, value) VALUES ('device', ?), ('made', ?)",
                (device, str(now_ms)),
            )
            # Only a log that never had an event needs no rows. A repair that was killed leaves events without
            # rows, so its log must not get a version: they are then folded at this start.
            if connection.execute("SELECT 1 FROM sqlite_sequence").fetchone() is None:
                write_fold_version(connection, fold_version)
        kept: str = device if found is None else found[0]
    except BaseException:
        connection.close()
        raise
    return connection, kept


def put_saved_back(path: Path) -> None:
    """Move a complete copy to the path of the database, if there is one.

    A copy made by a repair replaces the database, also after the repair was killed. A copy saved when the
    database was removed is used only while the database is missing.
    """
    rebuilt, saved = path.with_name(f"{path.name}{REBUILT}"), _saved(path)
    if rebuilt.exists():
        copy = rebuilt
    elif saved.exists() and not path.exists():
        copy = saved
    else:
        return
    # They belong to the damaged file, which is kept elsewhere; or the saved copy contains all of their data.
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    sync(path.parent)  # A new file must never be seen with an old write-ahead log.
    copy.replace(path)
    sync(path.parent)


def _saved(path: Path) -> Path:
    """Return the path of the copy that is made if the database is removed under a running daemon."""
    return path.with_name(f"{path.name}.saved")


def _draw_device() -> str:
    """Return four pronounceable letters: consonant, vowel, consonant, vowel."""
    return "".join(secrets.choice(letters) for letters in (_CONSONANTS, _VOWELS) * 2)
