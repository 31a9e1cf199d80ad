"""Damage of the log's file: unreadable pages, and acknowledged events that are missing.

Missing events are detected at a start, by the highest seq in a separate file, and recorded in the log's file.
"""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from palaver.log.storage import connect_reader

_LIMIT_SHOWN: Final = 3
_KEY: Final = "lost"

_decode: Final = msgspec.json.Decoder(list[tuple[int, int]]).decode


def note_lost(connection: sqlite3.Connection, highest: int, last: int) -> str:
    """Record that the file ends below the highest committed seq. Return a sentence about it.

    The missing seqs are not used again. Returns an empty text if no event is missing.
    """
    if highest <= last:
        return ""
    ranges = [*_lost(connection), (last + 1, highest)]
    connection.execute("BEGIN IMMEDIATE")
    try:
        encoded = msgspec.json.encode(ranges).decode()
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (_KEY, encoded))
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (highest,))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return _sentence(last + 1, highest)


def forget_lost(connection: sqlite3.Connection) -> None:
    """Delete the record of missing events: a person has read it."""
    connection.execute("DELETE FROM meta WHERE key = ?", (_KEY,))


def find_damage(path: Path) -> list[str]:
    """Read the whole file, and return a sentence for each problem. Call it in a thread."""
    try:
        with contextlib.closing(connect_reader(path)) as connection:
            rows = connection.execute(f"PRAGMA quick_check({_LIMIT_SHOWN})").fetchall()
            found = [f"{path.name} is damaged: {said}" for (said,) in rows if said != "ok"]
            return found + [_sentence(first, last) for first, last in _lost(connection)]
    except (sqlite3.Error, UnicodeError) as error:
        return [f"{path.name} is damaged: {error}"]


def _lost(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_KEY,)).fetchone()
    return [] if row is None else _decode(row[0])


def _sentence(first: int, last: int) -> str:
    events = f"event #{first} is" if first == last else f"events #{first} to #{last} are"
    return f"{events} missing: the write-ahead log was lost or damaged"
