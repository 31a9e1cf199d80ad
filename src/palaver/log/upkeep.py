"""What the log's file needs now and then: words indexed, the journal taken over, room laid out.

All of it can wait for a pause, up to a limit. Whoever calls has the writing connection to itself.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Final

from palaver.log.words import LIMIT_BEHIND, Words

_PAGES_WHEN_IDLE: Final = 1_000
_PAGES_AT_MOST: Final = 4_000
"""How long the write-ahead log may grow until it is copied into the file: at the next pause, or at once."""
WAL_BYTES: Final = _PAGES_AT_MOST * 4_120

_PAGES_OF_A_BATCH: Final = 10
_PAGES_OF_AN_EVENT: Final = 2


class Upkeep:
    """Counts what is written, and says and does what has to be done about it."""

    def __init__(self, connection: sqlite3.Connection, words: Words, lay_out: Callable[[], None]) -> None:
        """`lay_out` prepares the files for speed; it is called once, at the first pause."""
        self._connection = connection
        self._words = words
        self._lay_out: Callable[[], None] | None = lay_out
        self._lay_out_again = lay_out
        self._pages = 0

    # May be asked from any thread.

    @property
    def is_urgent(self) -> bool:
        """Something cannot wait for a pause any more."""
        return self._words.behind >= LIMIT_BEHIND or self._pages >= _PAGES_AT_MOST

    @property
    def is_wanted(self) -> bool:
        """Something is to be done at the next pause."""
        return self._lay_out is not None or self._pages >= _PAGES_WHEN_IDLE or bool(self._words.behind)

    # Needs the connection.

    def written(self, events: int) -> None:
        """A batch was written, or something of that size."""
        self._pages += _PAGES_OF_A_BATCH + _PAGES_OF_AN_EVENT * events

    def emptied(self) -> None:
        """Take in that the write-ahead log was cut to nothing: at the next pause it is laid out anew."""
        self._pages = 0
        self._lay_out = self._lay_out_again

    def do_what_is_urgent(self) -> None:
        """Do what cannot wait for a pause any more."""
        if self._words.behind >= LIMIT_BEHIND:
            self._index_quietly()
        if self._pages >= _PAGES_AT_MOST:
            self.checkpoint()

    def do_all(self) -> int:
        """Do what can wait for a pause."""
        self._index_quietly()
        if self._pages >= _PAGES_WHEN_IDLE:
            self.checkpoint()
        if self._lay_out is not None:
            with contextlib.suppress(OSError):  # No room: commits are a little slower, and that is all.
                self._lay_out()
            self._lay_out = None
        return 0

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file."""
        self._pages = 0
        with contextlib.suppress(sqlite3.Error):  # No room, or a reader: there will be another time.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def index(self) -> int:
        """Index what is behind, and count the pages; whoever searches is told when that fails."""
        count = self._words.behind
        if count:
            self._words.catch_up()
            self._pages += _PAGES_OF_A_BATCH + count
        return count

    def _index_quietly(self) -> None:
        with contextlib.suppress(
            sqlite3.Error, OSError
        ):  # No room: a search will say so, or a later time do.
            self.index()
