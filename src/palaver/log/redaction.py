"""Remove texts from the SQLite log permanently: from rows, the word index, blobs and free pages.

Freed pages, the write-ahead log and older parts of the index still contain removed bytes. So `redact_rows`
merges the index into one part, rewrites the file, and empties the write-ahead log. Commits wait meanwhile.
`archive.py` removes the texts from archives.
"""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from palaver.errors import BadRequest, StorageFailed
from palaver.log.api import Containing, Scrub
from palaver.log.archive import ArchiveFile
from palaver.log.records import (
    COLUMNS,
    Blobs,
    EventRow,
    add_to_indexes,
    decode_event_row,
    encode_event_row,
    read_indexed,
    readable_events,
    remove_from_indexes,
)
from palaver.log.storage import connect_reader
from palaver.protocol.envelope import Event, decode_event

LIMIT_FOUND: Final = 10_000
"""Events that one search returns at most."""

_FINISHED_KEY: Final = "redacted"
_UNFINISHED_KEY: Final = "redacted_unfinished"
"""Keys of the table `meta`: the seq of the last finished record, and the seqs that could not be redacted."""

_decode_seqs: Final = msgspec.json.Decoder(tuple[int, ...]).decode

_SELECT: Final = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - a constant
_BY_SEQ: Final = f"{_SELECT} WHERE seq = ?"


def redact_rows(connection: sqlite3.Connection, blobs: Blobs, seqs: Sequence[int], scrub: Scrub) -> int:
    """Replace events in the log, and return how many there were. Belongs to the writer's thread."""
    old = [row for seq in seqs for row in connection.execute(_BY_SEQ, (seq,)).fetchall()]
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
        for index in ("events_fts", "events_terms"):
            connection.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")  # noqa: S608 - constants
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA secure_delete = OFF")
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise StorageFailed(
            "the log is in use, so the removed text may still be in its files; redact it again"
        )
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
    *_, payload, blob, _, _, _ = encode_event_row(scrubbed, None, blobs)
    connection.execute("UPDATE events SET payload = ?, blob = ? WHERE seq = ?", (payload, blob, event.seq))


def _remove_unused_blobs(connection: sqlite3.Connection, blobs: Blobs) -> None:
    """Remove the files of payloads that no event has, also those that a crash left.

    Payloads are written on this thread only, so none of them waits for its event.
    """
    used = {name for (name,) in connection.execute("SELECT blob FROM events WHERE blob IS NOT NULL")}
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
    statement = f"{_SELECT} WHERE {condition} ORDER BY seq LIMIT {LIMIT_FOUND}"
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
