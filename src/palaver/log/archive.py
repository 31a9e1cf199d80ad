"""Archives of a SQLite log, and the permanent removal of texts from the log and its archives."""

import os
import re
import sqlite3
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from palaver.errors import BadQuery, BadRequest, ShuttingDown, StorageFailed
from palaver.home import sync
from palaver.log.api import Containing, Scrub
from palaver.log.records import (
    COLUMNS,
    Blobs,
    EventRow,
    add_archived_conversations,
    add_to_indexes,
    decode_event_row,
    encode_event_row,
    read_indexed,
    readable_events,
    remove_from_indexes,
    searched_text,
)
from palaver.log.search import check_search, is_found, parse_search
from palaver.log.storage import connect_reader
from palaver.protocol.envelope import Event, decode_event, encode_event
from palaver.protocol.query import Query, matches

# --------------------
# One archive file: events in seq order, one line of JSON each.
#
# It is complete or absent, and only the removal of a text changes it. Its name contains its first and last
# seq. A seq is found by binary search, without reading the whole file.

# Numbers of one length, so that the files sorted by name are in the order of their seqs.
_NAME: Final = re.compile(r"([0-9]{15})-([0-9]{15})\.jsonl")
_UNFINISHED: Final = "unfinished-"
_LIMIT_DAMAGED: Final = 100
"""Damaged lines in a row that a search skips: it runs on the event loop, so its time must be bounded."""


class _SeqOfLine(msgspec.Struct):
    """The field of a line by which it is found."""

    seq: int


_decode_seq: Final = msgspec.json.Decoder(_SeqOfLine).decode


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of archived events, from the seq `first` to the seq `last`, possibly with gaps."""

    path: Path
    first: int
    last: int

    def find(self, seq: int) -> Event | None:
        """Return the event with a seq, or None if it is not in the file or cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(_offset_after(file, seq - 1))
                event = decode_event(_skip_damaged(file, file.tell(), file.readline())[1])
        except (OSError, msgspec.DecodeError, BadRequest):
            return None
        # The line after the offset has another seq if this one is not in the file.
        return event if event.seq == seq else None

    def events(self, after: int = 0) -> Generator[Event, None, None]:
        """Yield the events above a seq, in order. Close the generator to release the file.

        Raises StorageFailed if the file is missing or a line of it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(_offset_after(file, after))
                for line in file:
                    yield decode_event(line)
        except (OSError, msgspec.DecodeError, BadRequest) as error:
            raise StorageFailed(f"the archive {self.path} cannot be read: {error}") from error


def archive_files(directory: Path) -> tuple[ArchiveFile, ...]:
    """Return the archive files in a directory, lowest seqs first; files with other names are ignored."""
    if not directory.is_dir():
        return ()
    named = ((path, _NAME.fullmatch(path.name)) for path in sorted(directory.iterdir()))
    return tuple(ArchiveFile(path, int(found[1]), int(found[2])) for path, found in named if found)


def _remove_unfinished(directory: Path) -> None:
    """Remove incomplete files that a crash has left: there is never more than one writer."""
    for path in directory.glob(f"{_UNFINISHED}*"):
        path.unlink()


def write_archive(directory: Path, events: Iterable[Event]) -> ArchiveFile | None:
    """Write events, given in seq order, into a new file; None for no events.

    On return the file is durable under its name. Raises OSError if the disk is full and StorageFailed for an
    event that could not be read back; then there is no new file.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    _remove_unfinished(directory)
    # Only a complete file gets its name: write a temporary file, sync it, then rename it. mkstemp sets 0600.
    handle, temporary = tempfile.mkstemp(prefix=_UNFINISHED, dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            # `events` may be a generator that reads the log: the file's name is known only after the last
            # one.
            offsets = _write_lines(file, events)
            file.flush()
            os.fsync(file.fileno())
        if offsets is None:
            Path(temporary).unlink()
            return None
        first, last = offsets
        path = directory / f"{first:015d}-{last:015d}.jsonl"
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    # The parent too: the directory itself may have been made just now.
    for changed in (directory, directory.parent):
        sync(changed)
    return ArchiveFile(path, first, last)


def _write_lines(file: BinaryIO, events: Iterable[Event]) -> tuple[int, int] | None:
    first = last = None
    for event in events:
        line = encode_event(event)
        # This line becomes the only copy of the event, so it must contain the same.
        if not _says(line, event):
            raise StorageFailed(f"event #{event.seq} cannot be archived without a loss; nothing was changed")
        file.write(line + b"\n")
        first = event.seq if first is None else first
        last = event.seq
    return None if first is None or last is None else (first, last)


def _says(line: bytes, event: Event) -> bool:
    """Return whether a line contains exactly this event."""
    try:
        return decode_event(line) == event
    except BadRequest:
        return False


def _offset_after(file: BinaryIO, seq: int) -> int:
    """Return the offset of the first line above a seq, or the end of the file."""
    # A binary search over bytes: `low` is always the beginning of a line, `high` may be anywhere in one.
    low, high = 0, file.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        start, line = _skip_damaged(file, *_first_line_from(file, middle))
        # `start` first: no line begins between `middle` and `high`, or at the end of the file there is no
        # line to decode.
        if start >= high or _decode_seq(line).seq > seq:
            high = middle
        else:
            low = start + len(line)
    return low


def _first_line_from(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    """Return the first line that begins at an offset or later, and its offset."""
    # From one byte before: if that is a line end, the line that begins exactly at the offset is not skipped.
    file.seek(max(0, offset - 1))
    if offset:
        file.readline()
    return file.tell(), file.readline()


def _skip_damaged(file: BinaryIO, start: int, line: bytes) -> tuple[int, bytes]:
    """Return the first of a line and those after it whose seq can be read, and where it begins.

    After many damaged lines the next one is returned as it is.
    """
    for _ in range(_LIMIT_DAMAGED):
        try:
            _decode_seq(line)
        except msgspec.MsgspecError:
            start += len(line)
            line = file.readline()
        else:
            break
    return start, line


def _seq_of_line(line: bytes) -> int:
    """Return the seq of the event in a line."""
    return _decode_seq(line).seq


# --------------------
# Remove texts from archive files: each file is replaced as a whole.


def redact_archives(
    directory: Path, files: Sequence[ArchiveFile], seqs: Collection[int], scrub: Scrub
) -> None:
    """Rewrite the archive files that contain one of the seqs.

    Incomplete files in the directory are removed: they may contain the text, even if nothing is archived.
    """
    _remove_unfinished(directory)
    for file in files:
        if any(file.first <= seq <= file.last for seq in seqs):
            with _readable(file):
                _redact_file(file.path, seqs, scrub)


@contextmanager
def _readable(file: ArchiveFile) -> Iterator[None]:
    """Turn a decoding error inside the block into StorageFailed, with the path of the archive."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeError, BadRequest) as error:
        raise StorageFailed(f"the archive {file.path} cannot be read: {error}") from error


def _redact_file(path: Path, seqs: Collection[int], scrub: Scrub) -> None:
    """Replace events in one file. Lines that cannot be read stay as they are."""
    # A new file is renamed over the old one, so a crash leaves the old or the new file, and never a part of
    # one.
    has_redacted = is_damaged = False
    handle, temporary = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as copy, path.open("rb") as lines:
            for line in lines:
                try:
                    is_redacted = _seq_of_line(line) in seqs
                except (msgspec.MsgspecError, UnicodeError):
                    is_redacted = False
                    is_damaged = True
                copy.write(encode_event(scrub(decode_event(line))) + b"\n" if is_redacted else line)
                has_redacted = has_redacted or is_redacted
            if is_damaged and not has_redacted:  # A damaged line may be the one that was to be redacted.
                raise StorageFailed(f"the archive {path} cannot be read: some of its lines are damaged")
            copy.flush()
            os.fsync(copy.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    # Without it, a power loss after the redaction could bring the file with the text back.
    sync(path.parent)


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
        # Before the read: a file that is added meanwhile was not searched.
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
        # Files can only be read forwards: read the last part first, and reverse each part.
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
        # The thread of a cancelled caller continues; the next caller waits for it here. Two copies at the
        # same time would write the same events into two files.
        self._one_at_a_time = threading.Lock()

    def copy(self, before: int) -> ArchiveFile | None:
        """Write the events below a seq that are not archived yet into one file; None if nothing is left.

        Runs in a separate thread and blocks no commit. Raises OSError or sqlite3.Error, StorageFailed, or
        ShuttingDown after `stop`; then there is no new file.
        """
        # Before the database is opened: a log that is closing may not have one any more.
        self._check_running()
        with self._one_at_a_time, closing(connect_reader(self._path)) as connection:
            file = write_archive(self._archives.directory, self._events(connection, before))
            if file is not None:
                self._archives.add(file)
            return file

    def redact(self, seqs: Collection[int], scrub: Scrub) -> None:
        """Replace events in the archive files; never during a copy."""
        with self._one_at_a_time:
            redact_archives(self._archives.directory, self._archives.files, seqs, scrub)

    def stop(self) -> None:
        """Make the running and all later copies give up; from any thread."""
        self._is_stopped = True

    def _check_running(self) -> None:
        if self._is_stopped:
            raise ShuttingDown("the log is closing; nothing was archived")

    def _events(self, connection: sqlite3.Connection, before: int) -> Generator[Event, None, None]:
        # An event that is in a file already is not copied again, also if a crash has left it in the log.
        seq = self._archives.last()
        while True:
            self._check_running()
            # A new statement for each page: with an open one the write-ahead log could not start again at its
            # beginning, and would grow.
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
        # A page may have only unreadable rows; the next one must then be read, because 0 means the end.
        seq = rows[-1][0]
    # Nothing is deleted on trust: the archive becomes the only copy of these events.
    _check_archived(archives, events)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # The rows were read before the transaction. They are the same now, because only this connection
        # writes.
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
        # Later events are in a file and still in the log: they are not counted in `archived` yet.
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
        # Not `zip`: an archive that ends too early must count as a difference.
        for event, copy in zip_longest(events, islice(copies, len(events))):
            if event != copy:
                raise StorageFailed(
                    f"the archives in {archives.directory} do not match the log at #{event.seq}; nothing was "
                    "removed. Run 'pal doctor'"
                )


def _remove(connection: sqlite3.Connection, events: list[Event], request_keys: list[bytes | None]) -> None:
    # FTS5 would corrupt its index if words were removed that are not in it yet.
    last_indexed = read_indexed(connection)
    remove_from_indexes(connection, [event for event in events if event.seq <= last_indexed])
    # After the removal, which takes all terms of these seqs out of the index; these ones must stay.
    add_archived_conversations(connection, events)
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
# As in sqlite.py: ids of the last millisecond that a ULID can contain are left out.
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


# --------------------
# Remove texts from the SQLite log permanently: from rows, the word index, blobs and free pages.
#
# Freed pages, the write-ahead log and older parts of the index still contain removed bytes. So `redact_rows`
# merges the index into one part, rewrites the file, and empties the write-ahead log. Commits wait meanwhile.
# `redact_archives` removes the texts from archives.

LIMIT_FOUND: Final = 10_000
"""Events that one search returns at most."""

_FINISHED_KEY: Final = "redacted"
_UNFINISHED_KEY: Final = "redacted_unfinished"
"""Keys of the table `meta`: the seq of the last finished record, and the seqs that could not be redacted."""

_decode_seqs: Final = msgspec.json.Decoder(tuple[int, ...]).decode

_SELECT_REDACTED: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_REDACTED_BY_SEQ: Final = f"{_SELECT_REDACTED} WHERE seq = ?"


def redact_rows(connection: sqlite3.Connection, blobs: Blobs, seqs: Sequence[int], scrub: Scrub) -> int:
    """Replace events in the log, and return how many there were. Belongs to the writer's thread."""
    old = [row for seq in seqs for row in connection.execute(_REDACTED_BY_SEQ, (seq,)).fetchall()]
    connection.execute("PRAGMA secure_delete = ON")  # Overwrite removed content with zeros.
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            last_indexed = read_indexed(connection)
            for row in old:
                _replace(connection, blobs, row, scrub, last_indexed=last_indexed)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        # FTS5 only marks words as deleted; merging all its parts into one drops them.
        for index in ("events_fts", "events_terms"):
            connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")  # noqa: S608 - constants
        # Pages that were freed earlier, without `secure_delete`, may still contain the text.
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA secure_delete = OFF")
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    # A reader keeps the write-ahead log from being truncated, and the old pages are in it.
    if is_busy:
        raise StorageFailed(
            "the log is in use, so the removed text may still be in its files; redact it again"
        )
    # After the COMMIT: a crash before it would leave rows whose blobs are missing.
    _remove_unused_blobs(connection, blobs)
    return len(old)


def read_mark(connection: sqlite3.Connection) -> int:
    """Return the seq of the last finished redaction record; all earlier ones are finished too."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_FINISHED_KEY,)).fetchone()
    return 0 if row is None else int(row[0])


def read_unfinished(connection: sqlite3.Connection) -> tuple[int, ...]:
    """Return the events whose text could not be removed."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_UNFINISHED_KEY,)).fetchone()
    return () if row is None else _decode_seqs(row[0])


def write_mark(connection: sqlite3.Connection, seq: int, unfinished: Sequence[int]) -> int:
    """Record that all redactions recorded up to a seq are finished, except those of `unfinished`.

    Belongs to the writer's thread.
    """
    mark = max(seq, read_mark(connection))
    encoded = msgspec.json.encode(list(unfinished)).decode()
    # One statement: a crash keeps both or none.
    statement = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?), (?, ?)"
    connection.execute(statement, (_FINISHED_KEY, str(mark), _UNFINISHED_KEY, encoded))
    return mark


def _replace(
    connection: sqlite3.Connection, blobs: Blobs, row: EventRow, scrub: Scrub, *, last_indexed: int
) -> None:
    event = decode_event_row(row, blobs)
    scrubbed = scrub(event)
    # The indexes are updated later than the events: they contain only those up to `last_indexed`.
    if event.seq <= last_indexed:
        remove_from_indexes(connection, [event])
        add_to_indexes(connection, [scrubbed])
    # The columns `thread` and `room` repeat words of the payload, so they must change with it.
    *_, thread, room, payload, blob, _, _, _ = encode_event_row(scrubbed, None, blobs)
    connection.execute(
        "UPDATE events SET thread = ?, room = ?, payload = ?, blob = ? WHERE seq = ?",
        (thread, room, payload, blob, event.seq),
    )


def _remove_unused_blobs(connection: sqlite3.Connection, blobs: Blobs) -> None:
    """Remove the files of payloads that no event has, also those that a crash left.

    Only the writer's thread writes payloads, and it is here now: so no file belongs to an event that is being
    written.
    """
    used = {name for (name,) in connection.execute("SELECT blob FROM events WHERE blob IS NOT NULL")}
    # By name, not by event: the same content of two events is one file, which the other event may still need.
    for name in blobs.names():
        if name not in used:
            blobs.remove(name)


def find_containing(
    path: Path, blobs: Blobs, files: Sequence[ArchiveFile], pieces: Sequence[str]
) -> Containing:
    """Return the events whose payload contains one of the JSON fragments, in order; a bounded number.

    Call it in a thread. A payload in a blob is not searched. Unreadable lines of archives are skipped, and
    their files are named.
    """
    found: dict[int, Event] = {}
    unreadable: dict[str, None] = {}
    # The archives first, then the log. An event that is in both is returned as the log has it.
    for file in files:
        try:
            for event in _in_archive(file, [piece.encode() for piece in pieces]):
                if event is None:
                    unreadable[str(file.path)] = None
                else:
                    found[event.seq] = event
        except OSError:
            unreadable[str(file.path)] = None
    condition = " OR ".join(["instr(payload, ?)"] * len(pieces))
    statement = f"{_SELECT_REDACTED} WHERE {condition} ORDER BY seq LIMIT {LIMIT_FOUND}"
    with closing(connect_reader(path)) as connection:
        for event in readable_events(connection.execute(statement, pieces).fetchall(), blobs):
            found[event.seq] = event
    return Containing([found[seq] for seq in sorted(found)][:LIMIT_FOUND], tuple(unreadable))


def _in_archive(file: ArchiveFile, pieces: Sequence[bytes]) -> Generator[Event | None, None, None]:
    """Return the events of a file that contain one of some pieces; None for a line that cannot be read."""
    with file.path.open("rb") as lines:
        for line in lines:
            # A line that breaks off may have lost the piece: decode it, so that its file is reported.
            is_complete = line.endswith(b"}\n")
            if not is_complete or any(piece in line for piece in pieces):
                try:
                    yield decode_event(line)
                except (msgspec.MsgspecError, UnicodeError, BadRequest):
                    yield None
