"""Reads outside the event loop: a few threads for queries, and one that waits for the SQL of callers.

Every read opens, finishes and closes its own statement; nothing stays open between two.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

from palaver.errors import ShuttingDown, StorageFailed, TooSlow
from palaver.log.blobs import Blobs
from palaver.log.files import LogFiles
from palaver.log.guard_process import GuardProcess
from palaver.log.records import readable_events
from palaver.log.select import check_search, statement_from, wanted
from palaver.log.storage import connect_reader
from palaver.model.envelope import Event
from palaver.model.query import Query, matches

_THREADS: Final = 2
_LIMIT_SQL_IN_LINE: Final = 8
_EVENTS_AT_ONCE: Final = 256
_BEHIND_ALL_PLACES: Final = 2**63 - 1


class Reader:
    """The reading threads, each with its own connection.

    Queries wait for a free thread. Of those with SQL one runs at a time and a few wait; more are refused with
    TooSlow.
    """

    def __init__(self, path: Path, blobs: Blobs, files: LogFiles, *, sql_limit_s: float) -> None:
        self._path = path
        self._files = files
        self._blobs = blobs
        self._connections: list[sqlite3.Connection] = []
        self._guard = GuardProcess(path, sql_limit_s)
        self._sql_in_line = 0
        self._is_closed = False
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="log reader")
        self._slow_thread = ThreadPoolExecutor(1, thread_name_prefix="log sql")

    async def read(self, query: Query) -> list[Event]:
        """Return matching events, in seq order."""
        if self._is_closed:
            raise ShuttingDown("the log is closed")
        self._files.check()
        check_search(query)
        if not query.sql:
            return await self._run(self._threads, self._find, query)
        if self._sql_in_line >= _LIMIT_SQL_IN_LINE:
            raise TooSlow("too many SQL conditions are waiting; try again")
        self._sql_in_line += 1
        try:
            return await self._run(self._slow_thread, self._find_with_sql, query)
        finally:
            self._sql_in_line -= 1

    async def close(self) -> None:
        """Let running queries finish, stop SQL conditions at once, and close the connections."""
        self._is_closed = True
        self._guard.stop()
        for threads in (self._threads, self._slow_thread):
            await asyncio.to_thread(threads.shutdown)
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    async def _run(
        self, threads: ThreadPoolExecutor, find: Callable[[Query], list[Event]], query: Query
    ) -> list[Event]:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, find, query)
        except (sqlite3.Error, OSError) as error:
            raise StorageFailed(f"the log could not be read: {error}") from error

    # The methods below belong to the threads.

    def _find(self, query: Query) -> list[Event]:
        with self._connection() as connection:
            return _in_place_order(query, self._matching(connection, query))

    def _find_with_sql(self, query: Query) -> list[Event]:
        with self._connection() as connection:
            return _in_place_order(query, self._matching_sql(connection, query))

    def _matching_sql(self, connection: sqlite3.Connection, query: Query) -> Generator[Event, None, None]:
        before = _BEHIND_ALL_PLACES if query.before is None else query.before
        is_newest_first = query.last is not None
        with contextlib.closing(
            self._guard.places(query.sql, after=query.after, before=before, is_newest_first=is_newest_first)
        ) as pieces:
            for places in pieces:
                yield from self._matching(connection, query, places)

    def _matching(
        self, connection: sqlite3.Connection, query: Query, among: list[int] | None = None
    ) -> Generator[Event, None, None]:
        statement, values = statement_from(query, among or ())
        with contextlib.closing(connection.execute(statement, values)) as cursor:
            while records := cursor.fetchmany(_EVENTS_AT_ONCE):
                for event in readable_events(records, self._blobs):
                    if matches(query, event):
                        yield event

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection to the calling thread; there are never more connections than threads."""
        connection = self._connections.pop() if self._connections else connect_reader(self._path)
        try:
            yield connection
        finally:
            self._connections.append(connection)


def _in_place_order(query: Query, found: Generator[Event, None, None]) -> list[Event]:
    """Return the wanted number of events, from the end at which the statement began, and drop the rest."""
    with contextlib.closing(found):
        events = list(islice(found, wanted(query)))
    return events if query.last is None else events[::-1]
