"""The folded rows in SQLite: as any connection reads them, and as the writer does within a batch."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from palaver.log.api import Change

_T = TypeVar("_T")

ROWS_AT_ONCE: Final = 64
"""Rows that one statement handles in a large batch."""
_LIMIT_REMEMBERED: Final = 4096
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)

_GET: Final = "SELECT value FROM state WHERE tbl = ? AND key = ?"
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
        behind = _ABOVE_ALL_TEXT if end is None else end
        return self._connection.execute(_SCAN[reverse], (table, first, behind, limit)).fetchall()


class BatchRows(SqliteRows):
    """The writer's view: the rows of the file with the changes of the batch on top.

    Changes stay in memory until a scan or the end of the batch, so that a row that changes a thousand times
    in a batch is written once. Only the writer writes, so a row that it has read is valid until it changes it
    or rolls back; a bounded number of such rows is cached.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._changed: dict[tuple[str, str], bytes | None] = {}
        self._remembered: dict[tuple[str, str], bytes | None] = {}

    def get(self, table: str, key: str) -> bytes | None:
        place = (table, key)
        if place in self._changed:
            return self._changed[place]
        if place not in self._remembered:
            self._remembered[place] = super().get(table, key)
        return self._remembered[place]

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
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
        gone = [place for place, value in self._changed.items() if value is None]
        insert_many(self._connection, "INSERT OR REPLACE INTO state (tbl, key, value)", kept)
        self._connection.executemany("DELETE FROM state WHERE tbl = ? AND key = ?", gone)
        if len(self._remembered) > _LIMIT_REMEMBERED:
            self._remembered.clear()
        for place in self._remembered.keys() & self._changed.keys():
            self._remembered[place] = self._changed[place]
        self._changed.clear()

    def forget(self) -> None:
        """Drop everything that is not in the file, as after a rollback."""
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
    stem = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return stem[:-1] + chr(following)
