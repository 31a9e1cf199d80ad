"""The full-text index, kept a little behind the events. Belongs to the writer's thread.

A single commit would pay more for its words than for everything else it writes. So they are indexed in
company: with the next large batch, at the next pause, or before somebody searches.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

from palaver.log.blobs import Blobs
from palaver.log.records import COLUMNS, readable_events, searched_text
from palaver.log.rows import insert_many

LIMIT_BEHIND: Final = 512
"""So many events may wait for the index before they are taken in at once."""

_EVENTS_AT_ONCE: Final = 1000
_BEHIND: Final = f"SELECT {COLUMNS} FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # noqa: S608 - a constant
_INSERT: Final = "INSERT INTO events_fts (rowid, text)"


class Words:
    """Knows how far the index reaches, and brings it up to the events."""

    def __init__(self, connection: sqlite3.Connection, blobs: Blobs, last: int) -> None:
        """`last` is the place of the newest event."""
        self._connection = connection
        self._blobs = blobs
        self._indexed = self._stored()
        self._last = last

    @property
    def behind(self) -> int:
        """How many places the index is behind. May be asked from any thread."""
        return self._last - self._indexed

    def written(self, last: int) -> None:
        """Events up to this place are in the log."""
        self._last = last

    def catch_up(self) -> None:
        """Take in what is behind, in a transaction of its own."""
        indexed = self._indexed
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self.take_in(self._last)
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            self._indexed = indexed
            raise

    def take_in(self, last: int) -> None:
        """Take in what is behind, up to a place, in the transaction that is open."""
        seq = self._indexed
        while records := self._connection.execute(_BEHIND, (seq, last, _EVENTS_AT_ONCE)).fetchall():
            events = readable_events(records, self._blobs)
            texts = [(event.seq, text) for event in events if (text := searched_text(event.payload))]
            insert_many(self._connection, _INSERT, texts)
            seq = records[-1][0]
        self._reach(last)

    def add(self, texts: Sequence[tuple[int, str]], last: int) -> None:
        """Take in the texts of a batch behind all that is indexed, in the transaction that is open."""
        insert_many(self._connection, _INSERT, texts)
        self._reach(last)

    def forget(self) -> None:
        """Read again how far the index reaches, as after a rollback."""
        self._indexed = self._stored()

    def _stored(self) -> int:
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'indexed'").fetchone()
        return 0 if row is None else int(row[0])

    def _reach(self, last: int) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('indexed', ?)", (str(last),)
        )
        self._indexed = last
