"""`pal events`: read, search, wait for and follow the log. Does not change the ledger."""

import asyncio
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from palaver.doors.argv.call import EXIT_NOTHING, Call
from palaver.doors.argv.doubts import doubt_names, doubt_types
from palaver.doors.argv.event_line import event_line
from palaver.doors.argv.filters import query_from
from palaver.doors.argv.follower import following
from palaver.doors.argv.parsed import Parsed
from palaver.doors.argv.table_log import DEFAULT_EVENTS
from palaver.errors import UsageError
from palaver.log.follow import follow
from palaver.log.pages import pages, place_before_newest
from palaver.model.query import Query

_PAGE: Final = 1000
_FILTERS: Final = (
    *("--type", "--agent", "--from", "--to", "--mention", "--target", "--thread", "--room", "--intent"),
    *("--file", "--status", "--search"),
)
_ALL_SHOWN: Final = b"shown"
"""The token of a wait whose events were all shown."""


async def events(call: Call) -> int:
    """Show the stored events that pass the filters; with --wait or --follow wait for new ones."""
    query = await _query(call, call.parsed)
    await doubt_names(call, (*query.agents, *query.senders))
    await doubt_types(call, query.types)
    if call.parsed.has("--all") or call.parsed.has("--after"):
        _tell_of_archive(call, query)
    if call.parsed.has("--wait"):
        return await _wait(call, query)
    if call.parsed.has("--follow"):
        return await _follow(call, query)
    if call.parsed.has("--archived"):
        await _read_all(call, query)
    else:
        shown = await _read(call, query)
        if query.last is not None and shown < query.last and _can_be_archived(call.parsed):
            _tell_of_archive(call, query)
    return 0


async def _read(call: Call, query: Query) -> int:
    """Show the events in the log, page by page; return how many were shown."""
    shown = 0
    if query.last is not None and query.last > _PAGE:
        end = call.services.log.last() + 1 if query.before is None else query.before
        after = await place_before_newest(call.services.log, query, query.last)
        query = replace(query, after=after, before=end, last=None)
    while found := await call.services.log.read(query):
        for event in found:
            await call.write(event_line(call, event))
        shown += len(found)
        if query.last is not None or len(found) < query.limit:
            break
        query = replace(query, after=found[-1].seq)
    return shown


async def _read_all(call: Call, query: Query) -> None:
    """Show the archived events, then those in the log."""
    async with aclosing(pages(call.services.log, query)) as found:
        async for page in found:
            for event in page:
                await call.write(event_line(call, event))


def _can_be_archived(parsed: Parsed) -> bool:
    """Return whether a filter is given that archived events could match. SQL never reads archives."""
    return any(map(parsed.has, _FILTERS)) and not parsed.has("--sql")


def _tell_of_archive(call: Call, query: Query) -> None:
    archived = call.services.log.archived()
    if query.after < archived:
        where = call.services.home / "archive"
        call.warn(f"events up to #{archived} are archived in {where}; --archived shows them too")


async def _wait(call: Call, query: Query) -> int:
    """Show the next events. A client that lost the daemon continues from where it began, without a gap."""
    if call.asked.resume == _ALL_SHOWN:
        return 0
    timeout_s = call.parsed.duration_s("--wait")
    async with following(call, query) as follower:
        place = await follower.begin()
        async with aclosing(follow(call.services.log, query, after=place, with_archives=True)) as pages:
            try:
                async with asyncio.timeout(timeout_s):
                    with call.connection.waiting():
                        found = await anext(pages, None)
            except TimeoutError:
                found = None
        if found is None:
            return EXIT_NOTHING
        await follower.show(found, _ALL_SHOWN)
        await follower.flushed()
    return 0


async def _follow(call: Call, query: Query) -> int:
    """Show new events until the client ends. After SIGTERM or SIGHUP, flush them and print the cursor."""
    async with following(call, query) as follower:
        with call.connection.ending_gently():
            place = await follower.begin()
            async with aclosing(follow(call.services.log, query, after=place, with_archives=True)) as pages:
                while True:
                    with call.connection.waiting():
                        found = await anext(pages, None)
                    if found is None:
                        break
                    await follower.show(found)
        await follower.flushed()
        if call.connection.is_asked_to_end and follower.flushed_place is not None:
            call.say_cursor(follower.flushed_place)
    return 0


async def _query(call: Call, parsed: Parsed) -> Query:
    if parsed.has("--archived") and parsed.has("--sql"):
        raise UsageError("--sql reads only the log: it cannot be combined with --archived")
    if (parsed.has("--follow") or parsed.has("--wait")) and (parsed.has("--search") or parsed.has("--sql")):
        raise UsageError("--search and --sql cannot be combined with --wait or --follow")
    if parsed.has("--consumer") and not (parsed.has("--follow") or parsed.has("--wait")):
        raise UsageError("--consumer requires --follow or --wait")
    last = parsed.number("--last")
    if last is None and not any(map(parsed.has, ("--all", "--archived", "--after", "--follow"))):
        last = DEFAULT_EVENTS
    return await query_from(call, last=last, limit=_PAGE)
