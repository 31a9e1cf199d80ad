"""Read everything that matches, page by page: first archived events, then those in the log."""

from collections.abc import AsyncGenerator, Sequence

from msgspec.structs import replace

from palaver.log.api import Log
from palaver.model.envelope import Event
from palaver.model.query import Query


async def pages(
    log: Log, query: Query, *, with_archives: bool = True
) -> AsyncGenerator[Sequence[Event], None]:
    """Yield the matching events that are stored by now, in seq order, never an empty page.

    Nothing is kept open between two pages, and events archived meanwhile are neither lost nor repeated.
    Raises BadQuery if an SQL condition has to be searched in an archive.
    """
    before = log.last() + 1 if query.before is None else min(query.before, log.last() + 1)
    query = replace(query, before=before, last=None)
    while query.after < before - 1:
        if with_archives and query.after < log.archived():
            page = await log.read_archived(query)
            found, place = page.events, page.place
        else:
            found = await log.read(query)
            if with_archives and query.after < log.archived():
                continue  # Some of it may have moved into an archive during the read.
            place = found[-1].seq if len(found) == query.limit else before
        if found:
            yield found
        query = replace(query, after=place)


async def place_before_newest(log: Log, query: Query, count: int) -> int:
    """Return the seq after which the newest `count` matching events in the log come; keep nothing else."""
    before = log.last() + 1 if query.before is None else query.before
    while count > 0:
        some = min(count, query.limit)
        found = await log.read(replace(query, before=before, last=some))
        if not found:
            break
        before = found[0].seq
        count -= len(found)
    return max(query.after, before - 1)
