"""`pal recv --peek` and `--after`: show the caller's messages, once or continuously, and mark nothing."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from palaver.doors.argv.call import EXIT_NOTHING, Call
from palaver.doors.argv.mail_output import batches, count_rest, mail_filter, show
from palaver.doors.views import open_mail
from palaver.errors import UsageError
from palaver.log.follow import follow
from palaver.log.pages import pages
from palaver.model.envelope import Event
from palaver.model.query import Query

_LONGEST_TOKEN: Final = 15
_PAGE: Final = 1000


async def peek(call: Call, name: str, limit: int) -> int:
    """Show messages without marking them: the open ones, or with --after all messages after a seq."""
    parsed = call.parsed
    after, timeout_s = parsed.number("--after"), parsed.duration_s("--timeout")
    if parsed.has("--follow"):
        return await _follow(call, name, after, timeout_s)
    events: Sequence[Event] | None
    if after is None:
        events = open_mail(call.services, name, limit, mail_filter(call))
    else:
        events = await _all_behind(call, _behind(call, name, after, limit))
    if not events and (parsed.has("--wait") or timeout_s is not None):
        place = call.services.log.last() if after is None else after
        events = await call.first(_behind(call, name, place, limit), timeout_s)
        if events is None:
            return EXIT_NOTHING
    events = events[:limit]
    rest = count_rest(call, events) if after is None else 0
    for batch in batches(events):
        await show(call, batch, rest=rest if batch[-1] is events[-1] else 0)
    return 0


async def _follow(call: Call, name: str, after: int | None, timeout_s: float | None) -> int:
    """Show the messages after a seq as they arrive. After SIGTERM or SIGHUP, print the cursor.

    A client that reconnects continues after the last message that it had written out.
    """
    if after is None:
        raise UsageError(
            "say where it begins: pal recv --follow --after SEQ; without --peek it takes your mail"
        )
    shown = _Place(max(after, _resumed(call)))
    status = EXIT_NOTHING
    with call.connection.ending_gently(shown.place):
        query = _behind(call, name, shown.place, _PAGE)
        async with aclosing(follow(call.services.log, query, after=shown.place, with_archives=True)) as found:
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        with call.connection.waiting():
                            events = await anext(found)
                        for event in events:
                            token = str(event.seq).encode()
                            await show(call, [event], token, flushed=partial(shown.move, event.seq))
                        status = 0
            except TimeoutError:
                pass
    await call.connection.output.flushed()
    if call.connection.is_asked_to_end:
        call.say_cursor(shown.place)
        return 0
    return status


class _Place:
    """The seq up to which everything was written out."""

    def __init__(self, place: int) -> None:
        self.place = place

    def move(self, place: int) -> None:
        self.place = place


def _resumed(call: Call) -> int:
    """Return the seq up to which a reconnected client had written everything; 0 for a new client."""
    token = call.asked.resume
    return int(token) if token is not None and token.isdigit() and len(token) <= _LONGEST_TOKEN else 0


async def _all_behind(call: Call, query: Query) -> list[Event]:
    """Return the messages after a seq, archived or not, up to the limit."""
    found: list[Event] = []
    async with aclosing(pages(call.services.log, query)) as some:
        async for page in some:
            found += page
            if len(found) >= query.limit:
                break
    return found[: query.limit]


def _behind(call: Call, name: str, place: int, limit: int) -> Query:
    senders, threads = tuple(call.parsed.values("--from")), tuple(call.parsed.values("--thread"))
    return Query(targets=(name,), senders=senders, threads=threads, after=place, limit=limit)
