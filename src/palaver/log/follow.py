"""Follow the log: existing events, then new ones, without a gap or a repeat. Keeps no query open."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from msgspec.structs import replace

from palaver.log.api import ANY_EVENT, EventKey, Hear, Log
from palaver.protocol.envelope import Event, is_migrated
from palaver.protocol.query import Query, matches

_EVENTS_AT_ONCE: Final = 200


class Subscribing(Protocol):
    """Anything with the handlers of new events: a log, or the queries of the doors."""

    def subscribe(self, hear: Hear, types: Collection[EventKey] = ANY_EVENT) -> Callable[[], None]: ...


class HandlerSwitch:
    """A handler of new events that is called only while it is on, so that it costs nothing otherwise."""

    def __init__(self, log: Subscribing, hear: Hear, types: Collection[EventKey]) -> None:
        """It is off at first."""
        self._log = log
        self._hear = hear
        self._types = types
        self._remove: Callable[[], None] | None = None

    def turn(self, *, is_on: bool) -> None:
        """Add the handler, or remove it. Repeats have no effect."""
        if is_on and self._remove is None:
            self._remove = self._log.subscribe(self._hear, self._types)
        elif not is_on and self._remove is not None:
            self._remove()
            self._remove = None


@contextmanager
def news_of(log: Subscribing, types: Collection[EventKey] = ANY_EVENT) -> Iterator[asyncio.Event]:
    """Yield a signal that each new event of these types sets while the block runs."""
    news = asyncio.Event()
    stop = log.subscribe(lambda _: news.set(), types)
    try:
        yield news
    finally:
        stop()


async def follow(
    log: Log,
    query: Query,
    *,
    after: int,
    with_archives: bool = False,
    woken_by: Collection[EventKey] = ANY_EVENT,
) -> AsyncGenerator[Sequence[Event], None]:
    """Yield matching events above a seq, in seq order, until the iterator is closed; never an empty batch.

    Ends only if the query has an end (`before`) and the log has passed it. A slow reader continues from its
    own seq: nothing is buffered for it, and with archives it does not even miss events that left the log
    meanwhile. Close the iterator to stop being woken. `woken_by` has all types that the query selects.
    Migrated events are left out, because a follower must not act on history.
    """
    seq = max(after, query.after)
    # Subscribed before the first read, and cleared before each one: an event that is committed during a read
    # sets the signal, so it is not missed.
    with news_of(log, woken_by) as news:
        while not _is_over(query, seq):
            news.clear()
            if with_archives and seq < log.archived():
                found, seq = await _next_archived(log, query, seq)
            else:
                found, known = await _next(log, query, seq)
                if with_archives and seq < log.archived():
                    continue  # Some of it may have moved into an archive during the read.
                seq = known
            if now := [event for event in found if not is_migrated(event)]:
                yield now
            # Not before the last event: the signal for the events after this page may have been cleared
            # above.
            elif seq >= log.last() and not _is_over(query, seq):
                await news.wait()


async def _next_archived(log: Log, query: Query, seq: int) -> tuple[Sequence[Event], int]:
    page = await log.read_archived(replace(query, after=seq, last=None, limit=_EVENTS_AT_ONCE))
    return page.events, page.seq


def _is_over(query: Query, seq: int) -> bool:
    """Return whether the log is known up to the query's end."""
    return query.before is not None and seq >= query.before - 1


async def _next(log: Log, query: Query, seq: int) -> tuple[Sequence[Event], int]:
    """Return the next matching events above a seq, and the seq up to which the log is now known."""
    # Memory has no index of words and no SQL, so such queries always go to the storage.
    if not query.search and not query.sql:
        events = log.tail(seq, _EVENTS_AT_ONCE)
        if events is not None:
            known = events[-1].seq if events else seq
            # All of them are above the query's own seq, and reusing the same query avoids folding it again.
            return [event for event in events if matches(query, event)], known
    last = log.last()
    if seq >= last:
        return [], seq
    # Only up to here: events committed meanwhile belong to the next call.
    before = last + 1 if query.before is None else min(query.before, last + 1)
    asked = replace(query, after=seq, before=before, last=None, limit=_EVENTS_AT_ONCE)
    found = await log.read(asked)
    # A page that is not full has read everything: without this step, events that do not match would be read
    # again at each call.
    return found, found[-1].seq if len(found) == _EVENTS_AT_ONCE else before - 1


# --------------------
# Read everything that matches, page by page: first archived events, then those in the log.


async def pages(
    log: Log, query: Query, *, with_archives: bool = True
) -> AsyncGenerator[Sequence[Event], None]:
    """Yield the matching events that are stored by now, in seq order, never an empty page.

    Nothing is kept open between two pages, and events archived meanwhile are neither lost nor repeated.
    Raises BadQuery if an SQL condition has to be searched in an archive.
    """
    # The end is fixed at the start: with constant writes the pages would otherwise never end.
    before = log.last() + 1 if query.before is None else min(query.before, log.last() + 1)
    query = replace(query, before=before, last=None)
    while query.after < before - 1:
        if with_archives and query.after < log.archived():
            page = await log.read_archived(query)
            found, seq = page.events, page.seq
        else:
            found = await log.read(query)
            if with_archives and query.after < log.archived():
                continue  # Some of it may have moved into an archive during the read.
            seq = found[-1].seq if len(found) == query.limit else before
        if found:
            yield found
        query = replace(query, after=seq)


async def seq_before_newest(log: Log, query: Query, count: int) -> int:
    """Return the seq after which the newest `count` matching events in the log come.

    Reads page by page and keeps no event, so that a large `count` needs no memory.
    """
    before = log.last() + 1 if query.before is None else query.before
    while count > 0:
        some = min(count, query.limit)
        found = await log.read(replace(query, before=before, last=some))
        if not found:
            break
        before = found[0].seq
        count -= len(found)
    return max(query.after, before - 1)
