"""Maintenance of the log's file: indexing words, checkpointing the journal, preallocating space.

All of it can wait for a pause, up to a limit. The caller has exclusive use of the writing connection.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Final

from palaver.log.words import LIMIT_BEHIND, Words

_PAGES_WHEN_IDLE: Final = 1_000
_PAGES_AT_MOST: Final = 4_000
"""Pages of the write-ahead log before a checkpoint: at the next pause, or at once."""
WAL_BYTES: Final = _PAGES_AT_MOST * 4_120

_PAGES_OF_A_BATCH: Final = 10
_PAGES_OF_AN_EVENT: Final = 2


class Upkeep:
    """Counts written pages, and decides and does the maintenance that they need."""

    def __init__(self, connection: sqlite3.Connection, words: Words, lay_out: Callable[[], None]) -> None:
        """`lay_out` preallocates the files; it is called once, at the first pause."""
        self._connection = connection
        self._words = words
        self._lay_out: Callable[[], None] | None = lay_out
        self._lay_out_again = lay_out
        self._pages = 0

    # Usable from any thread.

    @property
    def is_urgent(self) -> bool:
        """Whether something cannot wait for a pause any more."""
        return self._words.behind >= LIMIT_BEHIND or self._pages >= _PAGES_AT_MOST

    @property
    def is_wanted(self) -> bool:
        """Whether something must be done at the next pause."""
        return self._lay_out is not None or self._pages >= _PAGES_WHEN_IDLE or bool(self._words.behind)

    # Needs the connection.

    def written(self, events: int) -> None:
        """Record that a batch was written, or something of that size."""
        self._pages += _PAGES_OF_A_BATCH + _PAGES_OF_AN_EVENT * events

    def emptied(self) -> None:
        """Record that the write-ahead log was truncated: it is preallocated again at the next pause."""
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
            # Disk full: commits are a little slower, without other effects.
            with contextlib.suppress(OSError):
                self._lay_out()
            self._lay_out = None
        return 0

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file."""
        self._pages = 0
        with contextlib.suppress(sqlite3.Error):  # Disk full, or a reader is active: it is tried again later.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def index(self) -> int:
        """Index missing events, and count the pages; a failure is raised to the search."""
        count = self._words.behind
        if count:
            self._words.catch_up()
            self._pages += _PAGES_OF_A_BATCH + count
        return count

    def _index_quietly(self) -> None:
        with contextlib.suppress(
            sqlite3.Error, OSError
        ):  # Disk full: a search reports it, or a later call succeeds.
            self.index()
