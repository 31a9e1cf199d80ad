"""The full-text index, updated later than the events. Belongs to the writer's thread.

Indexing the words of a single commit would cost more than all its other writes. So they are indexed together:
with the next large batch, at the next pause, or before a search.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

from palaver.log.blobs import Blobs
from palaver.log.records import COLUMNS, readable_events, searched_text
from palaver.log.rows import insert_many

LIMIT_BEHIND: Final = 512
"""Events that may wait for the index before they are indexed at once."""

_EVENTS_AT_ONCE: Final = 1000
_BEHIND: Final = f"SELECT {COLUMNS} FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"  # noqa: S608 - a constant
_INSERT: Final = "INSERT INTO events_fts (rowid, text)"


class Words:
    """Knows the last indexed seq, and brings the index up to date."""

    def __init__(self, connection: sqlite3.Connection, blobs: Blobs, last: int) -> None:
        """`last` is the seq of the newest event."""
        self._connection = connection
        self._blobs = blobs
        self._indexed = self._stored()
        self._last = last

    @property
    def behind(self) -> int:
        """The number of seqs that are not indexed. Usable from any thread."""
        return self._last - self._indexed

    def written(self, last: int) -> None:
        """Record that events up to this seq are in the log."""
        self._last = last

    def catch_up(self) -> None:
        """Index missing events, in a separate transaction."""
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
        """Index missing events up to a seq, in the open transaction."""
        seq = self._indexed
        while records := self._connection.execute(_BEHIND, (seq, last, _EVENTS_AT_ONCE)).fetchall():
            events = readable_events(records, self._blobs)
            texts = [(event.seq, text) for event in events if (text := searched_text(event.payload))]
            insert_many(self._connection, _INSERT, texts)
            seq = records[-1][0]
        self._reach(last)

    def add(self, texts: Sequence[tuple[int, str]], last: int) -> None:
        """Index the texts of a batch, after all indexed events, in the open transaction."""
        insert_many(self._connection, _INSERT, texts)
        self._reach(last)

    def forget(self) -> None:
        """Read the last indexed seq again, as after a rollback."""
        self._indexed = self._stored()

    def _stored(self) -> int:
        row = self._connection.execute("SELECT value FROM meta WHERE key = 'indexed'").fetchone()
        return 0 if row is None else int(row[0])

    def _reach(self, last: int) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('indexed', ?)", (str(last),)
        )
        self._indexed = last
