"""The rows and blobs of the SQLite engine: one row per event, and a blob for a large payload."""

import contextlib
import errno
import hashlib
import os
import re
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec

from palaver.errors import BadRequest, StorageFailed
from palaver.home import sync
from palaver.log.api import BlobCount
from palaver.log.storage import connect_reader
from palaver.protocol.envelope import Event
from palaver.protocol.query import conversation_words, index_words
from palaver.state.rows import Change

# --------------------
# Contents too large for a row, in files named by their hash. Handles only bytes.

LIMIT_ROW_BYTES: Final = 64 * 1024
"""A payload with more bytes than this is stored in a blob."""


class Blobs:
    """One directory of files, each written once and never changed.

    The same content has the same name, so writing it twice is harmless, and a file whose event was never
    committed only uses space.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, content: bytes) -> str:
        """Store the content and return its hash; on return it is durable.

        Raises OSError if the disk is full; then no file with that name exists.
        """
        # Rows of the log have this name, so another hash function would need a migration.
        name = hashlib.sha256(content).hexdigest()
        path = self._directory / name
        # Read, not only looked for: a file whose content was damaged must not count as this content.
        if self.read(name) is None:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._write_durably(path, content)
        return name

    def read(self, name: str) -> bytes | None:
        """Return the content, or None if the file is missing, unreadable, or does not match its name."""
        try:
            content = (self._directory / name).read_bytes()
        except OSError as error:
            # A file that the disk cannot read is lost too: one such file must not stop every reader. Other
            # errors, such as too many open files, end by themselves and say nothing about the file.
            if error.errno not in (errno.ENOENT, errno.EIO):
                raise
            return None
        # A damaged text must never be delivered as if its sender had written it.
        return content if hashlib.sha256(content).hexdigest() == name else None

    def remove(self, name: str) -> None:
        """Remove a content permanently; ignore a missing file."""
        (self._directory / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files, including incomplete ones that a crash has left."""
        return [path.name for path in self._directory.iterdir()] if self._directory.exists() else []

    def _write_durably(self, path: Path, content: bytes) -> None:
        # Only a complete file gets its name: write a temporary file, sync it, then rename it. mkstemp sets
        # 0600.
        handle, temporary = tempfile.mkstemp(dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise
        # The parent too: the directory itself may have been made just now.
        for directory in (self._directory, self._directory.parent):
            sync(directory)


# --------------------
# An event as the SQLite engine stores it: one row, and a blob if the payload is large.

EventRow: TypeAlias = tuple[
    int,  # seq
    str,  # id
    str,  # type
    str,  # sender
    str | None,  # recipients
    int,  # ts
    str,  # device
    str | None,  # by_
    str | None,  # delivered_to
    str | None,  # thread
    str | None,  # room
    str,  # payload
    str | None,  # blob
    int | None,  # imported
    int | None,  # sent_ts
    bytes | None,  # request_key
]
"""The columns of one row, in the order of `COLUMNS`."""

# The writer and the archives read the first column as `row[0]` and the last one as `row[-1]`.
COLUMNS: Final = (
    "seq, id, type, sender, recipients, ts, device, by_, delivered_to, thread, room, payload, blob, "
    "imported, sent_ts, request_key"
)

LIMIT_DEPTH: Final = 200
"""Levels of nesting in a payload. SQLite's JSON functions read a thousand at most, and the views use them:
one deeper row would fail every query.
"""

_CJK: Final = "[\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
"""Chinese, Japanese and Korean characters. Compiled on first use, because that is slow."""
_SEARCHED: Final = ("text", "title", "description", "body", "detail", "reason")
"""Fields that a search covers.

The view `events_text` lists the same ones: FTS5 reads a row back through it.
"""
_KEPT_IN_ROW: Final = (
    "scope",
    "sender_kind",
    "intent",
    "thread",
    "reply_to",
    "bundle_id",
    "priority",
    "room",
    "command",
    "path",
    "state",
    "agent",
    "file",
    "expires",
    "held",
)
"""Fields that stay in the row of a large payload: filters and delivery need them without reading the blob."""
_LISTS_KEPT_IN_ROW: Final = ("mentions", "delivered_to", "wakes", "dead", "migrated")
_LIMIT_KEPT_CHARACTERS: Final = 1024
_LIMIT_KEPT_LIST_BYTES: Final = 16 * 1024
"""Names of a few hundred recipients: enough for any message written by hand."""

_encode: Final = msgspec.json.Encoder().encode
decode_payload: Final = msgspec.json.Decoder(dict[str, object]).decode
_decode_list: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def encode_event_row(event: Event, request_key: bytes | None, blobs: Blobs) -> EventRow:
    """Return the row of an event; a large payload is durable in its blob on return.

    Raises BadRequest for a payload that JSON cannot represent, and OSError if there is no space for a blob.
    """
    payload = encode_payload(event.payload)
    blob = None
    if len(payload) > LIMIT_ROW_BYTES:
        blob = blobs.write(payload)
        payload = _encode(_short_fields(event.payload))
    return (
        event.seq,
        event.id,
        event.type,
        event.sender,
        _list_text(event.to),
        event.ts,
        event.device,
        event.by,
        _list_text(event.delivered_to),
        _word(event.payload, "thread"),
        _word(event.payload, "room"),
        payload.decode(),
        blob,
        # NULL instead of 0: queries find the events of this log itself with `imported IS NULL`.
        event.imported or None,
        event.sent_ts,
        request_key,
    )


def decode_event_row(row: EventRow, blobs: Blobs) -> Event:
    """Return the event of a row. If its blob is lost, the payload has its short fields and `missing_blob`.

    Raises StorageFailed for a row that is not an event.
    """
    seq, id_, type_, sender, recipients, ts, device, by, delivered_to = row[:9]
    # `thread` and `room` are left out: these columns are only for indexes, and the payload has both fields.
    payload, blob, imported, sent_ts = row[11:15]
    try:
        fields = decode_payload(payload)
        if blob is not None:
            content = blobs.read(blob)
            fields = {**fields, "missing_blob": blob} if content is None else decode_payload(content)
        to, routed_to = _list_from(recipients), _list_from(delivered_to)
        # A damaged byte was read as a lone surrogate, which cannot be encoded.
        f"{id_}{type_}{sender}{device}{by}".encode()
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        raise StorageFailed(f"event #{seq} cannot be read: {error}") from error
    # No commit stores such an event (`check_draft`), so the row is damaged.
    if not (id_ and type_ and sender):
        raise StorageFailed(f"event #{seq} cannot be read: its id, type or sender is empty")
    return Event(
        seq=seq,
        id=id_,
        type=type_,
        sender=sender,
        to=to,
        ts=ts,
        device=device,
        payload=fields,
        by=by,
        delivered_to=routed_to,
        imported=imported or 0,
        sent_ts=sent_ts,
    )


def readable_events(rows: Iterable[EventRow], blobs: Blobs) -> Iterator[Event]:
    """Yield the events of rows, and skip unreadable ones: one bad row must not stop every reader."""
    for row in rows:
        try:
            event = decode_event_row(row, blobs)
        except StorageFailed:
            continue
        yield event


def searched_text(payload: dict[str, object]) -> str:
    """Return the text that a search covers, as the view `events_text` does."""
    return "".join(
        [f"{text}\n" for key in _SEARCHED if key in payload and isinstance(text := payload[key], str)]
    )


def indexed_text(payload: dict[str, object]) -> str:
    """Return the text that the full-text index contains: the searched text, with CJK characters as words."""
    return space_cjk(searched_text(payload))


def indexed_terms(event: Event) -> str:
    """Return the terms that the index of words contains for an event."""
    return " ".join(map(term_of, index_words(event)))


# Cached, because most events have the same few names.
@lru_cache(maxsize=4096)
def term_of(word: str) -> str:
    """Return a word as a term of the index: hashed, because FTS5 would split and fold the word itself."""
    # The terms are stored, so another hash or size would need a migration that fills the index again.
    return blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def space_cjk(text: str) -> str:
    """Put blanks around each CJK character, so that it is a word: such texts have no blanks between words."""
    # Most texts are ASCII: they do not need the pattern, which is slow to compile and to search.
    return text if text.isascii() else re.sub(_CJK, r" \g<0> ", text)


def encode_payload(payload: dict[str, object]) -> bytes:
    """Encode a payload as JSON; the pair of `decode_payload`. Raises BadRequest if that is impossible."""
    encoded = _json(payload)
    # Counting brackets is cheap, and few payloads have enough of them to nest too deep.
    if encoded.count(b"{") + encoded.count(b"[") > LIMIT_DEPTH and _depth(payload) > LIMIT_DEPTH:
        raise BadRequest(f"the payload is nested more than {LIMIT_DEPTH} levels deep")
    return encoded


def _json(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"the event cannot be stored: {error}") from error


def _list_text(names: tuple[str, ...]) -> str | None:
    return _json(names).decode() if names else None


def _list_from(text: str | None) -> tuple[str, ...]:
    return () if text is None else _decode_list(text)


def _depth(payload: object) -> int:
    # Level by level: recursion would fail at the depth that is to be refused.
    depth = 0
    level = [payload]
    while level:
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, (list, tuple)):
                below.extend(value)
        level = below
        depth += 1
    return depth


def _short_fields(payload: dict[str, object]) -> dict[str, object]:
    """Return the fields that can still be queried, and are still known if the blob is lost."""
    words: dict[str, object] = {
        key: value
        for key in _KEPT_IN_ROW
        if isinstance(value := payload.get(key), (str, int)) and len(str(value)) <= _LIMIT_KEPT_CHARACTERS
    }
    lists: dict[str, object] = {
        key: value
        for key in _LISTS_KEPT_IN_ROW
        if isinstance(value := payload.get(key), (list, tuple))
        and len(_encode(value)) <= _LIMIT_KEPT_LIST_BYTES
    }
    return words | lists


def _word(payload: dict[str, object], key: str) -> str | None:
    """Return the value that an index stores for a key: a string, or the empty one for any other type.

    Queries for a thread or room also read the rows with the empty string, because such a value may match.
    """
    found = payload.get(key)
    if found is None or isinstance(found, str):
        return found
    return ""


# --------------------
# The folded rows in SQLite: as any connection reads them, and as the writer does within a batch.

_T = TypeVar("_T")
_table_of: Final = itemgetter(0)

ROWS_AT_ONCE: Final = 64
"""Rows that one statement handles in a large batch."""
_LIMIT_REMEMBERED: Final = 4096
"""Rows, or results of scans, in a cache. A full cache is emptied as a whole."""
_LIMIT_CACHED_ROWS: Final = 8
"""Rows of a scan that is cached: most are empty."""
_LIMIT_CACHED_BYTES: Final = 4096
"""Bytes of their values. Each scan has its own copy, and a single row can have many kilobytes."""
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)

_GET: Final = "SELECT value FROM state WHERE tbl = ? AND key = ?"
# Two complete texts, so that both statements stay prepared.
_SCAN: Final = {
    False: "SELECT key, value FROM state WHERE tbl = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
    True: "SELECT key, value FROM state WHERE tbl = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?",
}
_ABOVE_ALL_TEXT: Final = b""  # In SQLite every blob sorts above every text.


class SqliteRows:
    """Rows read directly from a connection; no transaction is left open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def get(self, table: str, key: str) -> bytes | None:
        row = self._connection.execute(_GET, (table, key)).fetchone()
        return None if row is None else row[0]

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        first: str = prefix
        end: str | None = prefix_end(prefix)
        if after and reverse:
            end = after if end is None else min(end, after)
        elif after:
            first = max(prefix, after + "\0")  # The smallest text above `after`.
        upper_end = _ABOVE_ALL_TEXT if end is None else end
        return self._connection.execute(_SCAN[reverse], (table, first, upper_end, limit)).fetchall()


class TableVersions:
    """Which commit has last changed the rows of each table. Any thread reads it; the writer changes it.

    It needs no lock: a reader that misses a change of this moment only uses rows that were valid before it.
    """

    def __init__(self) -> None:
        self._tables: dict[str, int] = {}
        self._all = 0
        self._commits = 0

    def of(self, table: str) -> tuple[int, int]:
        """Return a value that differs after each commit that changes rows of the table."""
        return self._all, self._tables.get(table, 0)

    def rise(self, tables: Iterable[str]) -> None:
        """Record a commit that has changed these tables."""
        self._commits += 1
        self._tables.update(dict.fromkeys(tables, self._commits))

    def rise_all(self) -> None:
        """Record that all rows were made again."""
        self._all += 1


class CachedRows(SqliteRows):
    """The committed rows. Short results of scans are cached until their table changes.

    A query costs many times as much as one dictionary, and most messages do not change the tables that a send
    looks at. Other queries use the writer's connection while it is free: it still has the pages of its last
    commit, which another connection would have to read again.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        versions: TableVersions,
        writing: sqlite3.Connection,
        in_use: threading.Lock,
    ) -> None:
        """`writing` is the writer's connection. Its user holds the lock `in_use`, for a whole transaction."""
        super().__init__(connection)
        self._versions = versions
        self._written = SqliteRows(writing)
        self._in_use = in_use
        self._scans: dict[tuple[object, ...], tuple[tuple[int, int], list[tuple[str, bytes]]]] = {}

    def get(self, table: str, key: str) -> bytes | None:
        # Without waiting, here and below: a commit may take long, and the event loop must not wait for it.
        if not self._in_use.acquire(blocking=False):
            return super().get(table, key)
        try:
            return self._written.get(table, key)
        finally:
            self._in_use.release()

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        # Before the query: a commit during it makes the cached result invalid.
        version = self._versions.of(table)
        request = (table, prefix, after, limit, reverse)
        cached = self._scans.get(request)
        if cached is not None and cached[0] == version:
            # Copied, here and below, because a caller may change the list that it receives.
            return cached[1].copy()
        if self._in_use.acquire(blocking=False):
            try:
                found = self._written.scan(table, prefix, after=after, limit=limit, reverse=reverse)
            finally:
                self._in_use.release()
        else:
            found = super().scan(table, prefix, after=after, limit=limit, reverse=reverse)
        if len(found) <= _LIMIT_CACHED_ROWS and sum(len(value) for _, value in found) <= _LIMIT_CACHED_BYTES:
            if len(self._scans) >= _LIMIT_REMEMBERED:
                self._scans.clear()
            self._scans[request] = version, found.copy()
        return found


class BatchRows(SqliteRows):
    """The writer's view: the rows of the file with the changes of the batch on top.

    Changes stay in memory until a scan or the end of the batch, so that a row that changes a thousand times
    in a batch is written once. Only the writer writes, so a row that it has read is valid until it changes it
    or rolls back; a bounded number of such rows is cached.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.tables: set[str] = set()
        """The tables that the open transaction has changed."""
        self._changed: dict[tuple[str, str], bytes | None] = {}
        self._remembered: dict[tuple[str, str], bytes | None] = {}

    def get(self, table: str, key: str) -> bytes | None:
        row_key = (table, key)
        if row_key in self._changed:
            return self._changed[row_key]
        if row_key not in self._remembered:
            self._remembered[row_key] = super().get(table, key)
        return self._remembered[row_key]

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        # SQLite orders and limits the rows, so the pending ones must be among them.
        self.flush()
        return super().scan(table, prefix, after=after, limit=limit, reverse=reverse)

    def change(self, changes: Iterable[Change]) -> None:
        """Accept changes; they reach the file with the next flush."""
        for table, key, value in changes:
            self._changed[table, key] = value

    def flush(self) -> None:
        """Write the pending changes into the open transaction."""
        if not self._changed:
            return
        kept = [(table, key, value) for (table, key), value in self._changed.items() if value is not None]
        gone = [row_key for row_key, value in self._changed.items() if value is None]
        insert_many(self._connection, "INSERT OR REPLACE INTO state (tbl, key, value)", kept)
        if gone:
            self._connection.executemany("DELETE FROM state WHERE tbl = ? AND key = ?", gone)
        self.tables.update(map(_table_of, self._changed))
        if len(self._remembered) > _LIMIT_REMEMBERED:
            self._remembered.clear()
        # From here on `get` reads the cache again, so the cache must have the new values.
        for row_key in self._remembered.keys() & self._changed.keys():
            self._remembered[row_key] = self._changed[row_key]
        self._changed.clear()

    def forget(self) -> None:
        """Drop everything that is not in the file, as after a rollback."""
        self.tables.clear()
        self._changed.clear()
        self._remembered.clear()


def insert_many(connection: sqlite3.Connection, head: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows with few, long statements.

    Each step of a statement releases the interpreter's lock and must get it back from the event loop: one
    step for many rows is several times as fast next to a busy loop.
    """
    for some in in_pieces(rows, ROWS_AT_ONCE):
        marks = f"({', '.join('?' * len(some[0]))})"
        if len(some) == ROWS_AT_ONCE:
            values = [value for row in some for value in row]
            connection.execute(f"{head} VALUES {', '.join([marks] * ROWS_AT_ONCE)}", values)
        else:
            # Only two statement texts are used, so that they stay prepared.
            connection.executemany(f"{head} VALUES {marks}", some)


def in_pieces(items: Sequence[_T], size: int) -> Iterator[list[_T]]:
    """Split a sequence into lists of `size`; the last one may be shorter."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def prefix_end(prefix: str) -> str | None:
    """Return the first text above all that begin with the prefix, or None."""
    # The last code point has no successor, so the character before it must be raised instead.
    stem = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    # Surrogates cannot be encoded as UTF-8, so they cannot be the parameter of a statement.
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)


# --------------------
# Find large contents that are lost and events that cannot be read. Changes nothing.

_NAMES: Final = "SELECT DISTINCT blob FROM events WHERE blob IS NOT NULL ORDER BY seq"
_AFTER: Final = f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT 256"  # noqa: S608 - a constant


def count_blobs(path: Path, blobs: Blobs) -> BlobCount:
    """Read every blob of the log. Return how many there are, and which are lost. Call it in a thread."""
    with closing(connect_reader(path)) as connection:
        names = [name for (name,) in connection.execute(_NAMES).fetchall()]
    return BlobCount(len(names), [name for name in names if blobs.read(name) is None])


def count_unreadable(path: Path, blobs: Blobs) -> int:
    """Read the log and return how many events cannot be read. Call it in a thread."""
    count = seq = 0
    with closing(connect_reader(path)) as connection:
        # Page by page: with one long statement the write-ahead log could not start again, and would grow.
        while rows := connection.execute(_AFTER, (seq,)).fetchall():
            count += len(rows) - sum(1 for _ in readable_events(rows, blobs))
            seq = rows[-1][0]
    return count


# --------------------
# The full-text index and the index of terms: add events to both, or remove events from both.


def read_indexed(connection: sqlite3.Connection) -> int:
    """Return the seq of the last indexed event; 0 if no event is indexed.

    Later events are in neither index.
    """
    row = connection.execute("SELECT value FROM meta WHERE key = 'indexed'").fetchone()
    return 0 if row is None else int(row[0])


def add_to_indexes(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Add events to both indexes, in the open transaction."""
    texts, terms = _indexed(events)
    insert_many(connection, "INSERT INTO events_fts (rowid, text)", texts)
    insert_many(connection, "INSERT INTO events_terms (rowid, terms)", terms)


def remove_from_indexes(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Remove indexed events from both indexes, in the open transaction.

    FTS5 needs the old words for that. Those of a lost blob are not known any more and stay: they lead to a
    seq without an event.
    """
    texts, terms = _indexed([event for event in events if event.missing_blob is None])
    head = "INSERT INTO {0} ({0}, rowid, {1}) VALUES ('delete', ?, ?)"
    connection.executemany(head.format("events_fts", "text"), texts)
    connection.executemany(head.format("events_terms", "terms"), terms)


def add_archived_conversations(connection: sqlite3.Connection, events: Iterable[Event]) -> None:
    """Add the conversations that show archived events to the index of terms, in the open transaction.

    An event whose blob is lost is left out,
    because its words have stayed in the index.
    """
    terms = [
        (event.seq, " ".join(map(term_of, words)))
        for event in events
        if event.missing_blob is None and (words := conversation_words(event))
    ]
    insert_many(connection, "INSERT INTO events_terms (rowid, terms)", terms)


def read_unplaced(connection: sqlite3.Connection) -> int:
    """Return the seq up to which an older version archived events, whose conversations are not indexed."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'unplaced'").fetchone()
    return 0 if row is None else int(row[0])


def _indexed(events: Sequence[Event]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    # As in the view `events_text`, in which an event without a text has no row. FTS5's integrity check
    # compares the index with this view.
    texts = [(event.seq, text) for event in events if (text := indexed_text(event.payload))]
    return texts, [(event.seq, indexed_terms(event)) for event in events]
