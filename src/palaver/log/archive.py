"""Archives: how events leave the log for archive files, and how they are read again."""

import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Collection, Generator
from contextlib import closing
from functools import partial
from itertools import islice, takewhile, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Final

from palaver.errors import BadQuery, ShuttingDown, StorageFailed
from palaver.log.api import Scrub
from palaver.log.archive_file import ArchiveFile, archive_files, write_archive
from palaver.log.records import (
    COLUMNS,
    Blobs,
    EventRow,
    add_archived_places,
    read_indexed,
    readable_events,
    remove_from_indexes,
    searched_text,
)
from palaver.log.redaction import redact_archives
from palaver.log.search import check_search, is_found, parse_search
from palaver.log.storage import connect_reader
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query, matches

# --------------------
# Archives: how events leave the log for archive files, and how they are read again.
#
# A file is complete and durable in `archive/` before its events leave the log. So at any time an event is in
# one of the two or, for a while, in both; archiving again finishes an interrupted job.

_COPIED_AT_ONCE: Final = 500
_LOOKED_AT_ONCE: Final = 500
_REMOVED_AT_ONCE: Final = 250
"""Events that leave the log in one transaction: few, because commits wait meanwhile."""

_SELECT: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_BETWEEN: Final = f"{_SELECT} WHERE seq > ? AND seq < ? ORDER BY seq LIMIT {_COPIED_AT_ONCE}"
_UP_TO: Final = f"{_SELECT} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {_REMOVED_AT_ONCE}"
_REMEMBER: Final = "INSERT OR IGNORE INTO archived (seq, id, sender, request_key) VALUES (?, ?, ?, ?)"

_by_last = attrgetter("last")


class Archives:
    """The archive files of one home. May be read from any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Replaced as a whole and never changed, because other threads read it.
        self._files = archive_files(directory)

    def last(self) -> int:
        """Return the highest archived seq, or 0. Its event may still be in the log too."""
        return self._files[-1].last if self._files else 0

    def event(self, seq: int) -> Event | None:
        """Return the archived event with a seq, or None. Fast enough for the event loop: a binary search."""
        files = self._files
        index = bisect_left(files, seq, key=_by_last)
        return files[index].find(seq) if index < len(files) else None

    def where(self, seq: int) -> Path:
        """Return the file that contains a seq, or the directory if no file does."""
        files = self._files
        index = bisect_left(files, seq, key=_by_last)
        return files[index].path if index < len(files) and files[index].first <= seq else self.directory

    def events(self, after: int = 0) -> Generator[Event, None, None]:
        """Yield the archived events above a seq, each once, in order.

        Raises StorageFailed if a file is missing or damaged.
        """
        for file in self._files:
            if file.last > after:
                with closing(file.events(after)) as events:
                    yield from events
                after = file.last

    def look(self, query: Query) -> tuple[list[Event], int]:
        """Search a bounded part after `query.after`. Return the matches and the last searched seq.

        Archives have no index, so every line is read. Raises BadQuery for SQL, which only the log supports.
        """
        if query.sql:
            raise BadQuery("an SQL condition searches only the log, not the archives")
        check_search(query)
        phrases = parse_search(query.search)
        last = self.last()
        with closing(self.events(query.after)) as events:
            some = list(islice(events, _LOOKED_AT_ONCE))
        found = [
            event
            for event in some
            if matches(query, event) and (not phrases or is_found(phrases, searched_text(event.payload)))
        ]
        return found, some[-1].seq if len(some) == _LOOKED_AT_ONCE else last

    def between(self, after: int, before: int, *, is_newest_first: bool) -> Generator[Event, None, None]:
        """Yield the archived events between two seqs, also newest first. Reads a few lines at once."""
        if not is_newest_first:
            with closing(self.events(after)) as events:
                yield from takewhile(partial(_is_before, before), events)
            return
        before = min(before, self.last() + 1)
        while before > after + 1:
            start = max(after, before - 1 - _LOOKED_AT_ONCE)
            with closing(self.events(start)) as events:
                yield from reversed(list(takewhile(partial(_is_before, before), events)))
            before = start + 1

    @property
    def files(self) -> tuple[ArchiveFile, ...]:
        """The files, lowest seqs first."""
        return self._files

    def add(self, file: ArchiveFile) -> None:
        """Add a new file, above all others."""
        self._files = (*self._files, file)


def _is_before(seq: int, event: Event) -> bool:
    return event.seq < seq


class Copier:
    """Copies events from the log into a new archive file. Removes nothing."""

    def __init__(self, path: Path, archives: Archives, blobs: Blobs) -> None:
        self._path = path
        self._archives = archives
        self._blobs = blobs
        self._is_stopped = False
        # The thread of a cancelled caller continues; the next caller waits for it here.
        self._one_at_a_time = threading.Lock()

    def copy(self, before: int) -> ArchiveFile | None:
        """Write the events below a seq that are not archived yet into one file; None if nothing is left.

        Runs in a separate thread and blocks no commit. Raises OSError or sqlite3.Error, StorageFailed, or
        ShuttingDown after `stop`; then there is no new file.
        """
        # before the database is opened: a log that is closing may not have one any more
        self._check_running()
        with self._one_at_a_time, closing(connect_reader(self._path)) as connection:
            file = write_archive(self._archives.directory, self._events(connection, before))
            if file is not None:
                self._archives.add(file)
            return file

    def redact(self, seqs: Collection[int], scrub: Scrub) -> int:
        """Replace events in the archive files, and return how many; never during a copy."""
        with self._one_at_a_time:
            return redact_archives(self._archives.directory, self._archives.files, seqs, scrub)

    def stop(self) -> None:
        """Make the running and all later copies give up; from any thread."""
        self._is_stopped = True

    def _check_running(self) -> None:
        if self._is_stopped:
            raise ShuttingDown("the log is closing; nothing was archived")

    def _events(self, connection: sqlite3.Connection, before: int) -> Generator[Event, None, None]:
        seq = self._archives.last()
        while True:
            self._check_running()
            rows = connection.execute(_BETWEEN, (seq, before)).fetchall()
            if not rows:
                return
            yield from readable_events(rows, self._blobs)
            seq = rows[-1][0]


def remove_some(connection: sqlite3.Connection, archives: Archives, blobs: Blobs) -> int:
    """Remove some events from the log that are in an archive. Return how many; 0 if none is left.

    One transaction, on the writer's connection and in its thread. The rows of the fold stay, and so do the
    ids and request keys by which the events are found. An event that cannot be read is in no archive and
    stays in the log. Raises StorageFailed, and removes nothing, if an archive does not contain exactly the
    events of the log.
    """
    events: list[Event] = []
    seq = 0
    while not events:
        rows: list[EventRow] = connection.execute(_UP_TO, (seq, archives.last())).fetchall()
        if not rows:
            return 0
        events = list(readable_events(rows, blobs))
        seq = rows[-1][0]
    _check_archived(archives, events)
    connection.execute("BEGIN IMMEDIATE")
    try:
        keys = {row[0]: row[-1] for row in rows}
        _remove(connection, events, [keys[event.seq] for event in events])
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return len(events)


def archived_events(connection: sqlite3.Connection, archives: Archives) -> Generator[Event, None, None]:
    """Yield all archived events, in order, for a rebuild.

    Raises StorageFailed if a file is damaged, or at the end if events have left the log and are in no file:
    rows built without them would be wrong.
    """
    missing, last = connection.execute("SELECT count(*), coalesce(max(seq), 0) FROM archived").fetchone()
    for event in archives.events():
        missing -= event.seq <= last
        yield event
    if missing > 0:
        raise StorageFailed(
            f"{missing} archived events up to #{last} are not in {archives.directory}; restore its files"
        )


def count_archived(path: Path, archives: Archives) -> int:
    """Read every archive and return how many events there are. Call it in a thread.

    Raises StorageFailed if a file is damaged, or if events that have left the log are in no file.
    """
    with (
        closing(connect_reader(path)) as connection,
        closing(archived_events(connection, archives)) as events,
    ):
        return sum(1 for _ in events)


def _check_archived(archives: Archives, events: list[Event]) -> None:
    with closing(archives.events(events[0].seq - 1)) as copies:
        for event, copy in zip_longest(events, islice(copies, len(events))):
            if event != copy:
                raise StorageFailed(
                    f"the log and {archives.directory} differ at #{event.seq}; nothing was removed"
                )


def _remove(connection: sqlite3.Connection, events: list[Event], request_keys: list[bytes | None]) -> None:
    last_indexed = read_indexed(connection)
    remove_from_indexes(connection, [event for event in events if event.seq <= last_indexed])
    add_archived_places(connection, events)
    names = [
        (event.seq, event.id, event.sender, key) for event, key in zip(events, request_keys, strict=True)
    ]
    connection.executemany(_REMEMBER, names)
    connection.executemany("DELETE FROM events WHERE seq = ?", [(event.seq,) for event in events])


# --------------------
# The index of archived events that the log keeps: their ids, senders and request keys. Reads only.
#
# An event that is listed here and cannot be read from its file is an error, not a missing event.

_FOUND_AT_MOST: Final = 5

_BY_ID: Final = f"SELECT seq FROM archived WHERE id = ? ORDER BY seq DESC LIMIT {_FOUND_AT_MOST}"  # noqa: S608
_BY_END: Final = (
    "SELECT seq FROM archived WHERE upper(substr(id, -4)) = upper(substr(?1, -4))"  # noqa: S608 - a constant
    f" AND upper(substr(id, -length(?1))) = upper(?1) ORDER BY seq DESC LIMIT {_FOUND_AT_MOST}"
)
_BY_SENDER: Final = "SELECT seq FROM archived WHERE id = ? AND sender = ?"
_BY_REQUEST_KEY: Final = "SELECT seq FROM archived WHERE request_key = ?"
_BY_SEQ: Final = "SELECT seq FROM archived WHERE seq = ?"
_LARGEST_ULID: Final = (
    "SELECT id FROM archived WHERE id < '7ZZZZZZZZZ' AND length(id) = 26"
    " AND id NOT GLOB '*[^0-9A-HJKMNP-TV-Z]*' ORDER BY id DESC LIMIT 1"
)


class ArchiveIndex:
    """Finds archived events by their ids, on one connection and in its thread.

    All methods raise StorageFailed if there was such an event and its file is missing or damaged.
    """

    def __init__(self, connection: sqlite3.Connection, archives: Archives) -> None:
        self._connection = connection
        self._archives = archives

    def by_seq(self, seq: int) -> Event | None:
        """Return the event with a seq, or None."""
        # A copy may be in a file before its event has left the log.
        return self._archives.event(seq) or self._one(_BY_SEQ, seq)

    def by_request_key(self, request_key: bytes) -> Event | None:
        """Return the event that a request has written, or None."""
        return self._one(_BY_REQUEST_KEY, request_key)

    def by_id(self, id: str) -> list[Event]:
        """Return events with this id, newest first, at most five."""
        return self._events(_BY_ID, id)

    def by_end(self, end: str) -> list[Event]:
        """Return up to five events whose id ends with this (four characters or more), newest first."""
        return self._events(_BY_END, end)

    def by_sender(self, id: str, sender: str) -> Event | None:
        """Return the event of a sender with this id, or None."""
        return self._one(_BY_SENDER, id, sender)

    def largest_ulid(self) -> str:
        """Return the largest ULID among archived events; empty in an empty archive."""
        row = self._connection.execute(_LARGEST_ULID).fetchone()
        return "" if row is None else row[0]

    def largest_id(self) -> str:
        """Return the largest id of any kind; empty in an empty archive."""
        largest: str = self._connection.execute("SELECT coalesce(max(id), '') FROM archived").fetchone()[0]
        return largest

    def _events(self, statement: str, value: str) -> list[Event]:
        return [self._read(seq) for (seq,) in self._connection.execute(statement, (value,))]

    def _one(self, statement: str, *values: object) -> Event | None:
        row = self._connection.execute(statement, values).fetchone()
        return None if row is None else self._read(row[0])

    def _read(self, seq: int) -> Event:
        event = self._archives.event(seq)
        if event is None:
            raise StorageFailed(
                f"event #{seq} is archived and cannot be read from {self._archives.where(seq)}: "
                "restore the file; if you have no copy, run 'pal down' and then 'pal doctor --repair'"
            )
        return event
