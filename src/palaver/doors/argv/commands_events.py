"""`pal events`: reads, searches, waits for and follows the log. Follows places, and changes no ledger."""

from contextlib import aclosing
from dataclasses import replace
from typing import Final

from palaver.doors.argv.call import EXIT_NOTHING, Call
from palaver.doors.argv.filters import query_from
from palaver.doors.argv.parse import Parsed
from palaver.doors.argv.style import safe, truncate
from palaver.doors.argv.table_log import DEFAULT_EVENTS
from palaver.errors import UsageError
from palaver.links.doorstep import Doorstep
from palaver.log.follow import follow
from palaver.log.pages import pages
from palaver.model.envelope import Event, encode_event
from palaver.model.message import MESSAGE
from palaver.model.query import Query
from palaver.model.summary import summary

_MESSAGE_SENT: Final = "message_sent"
_PAGE: Final = 1000
_ALL_SHOWN: Final = b"shown"
"""The token of a wait that is over."""


async def events(call: Call, doorstep: Doorstep) -> int:
    """Read the log; with --wait or --follow also what is yet to come."""
    query = _query(call, call.parsed)
    _tell_of_archive(call, query)
    if call.parsed.has("--wait"):
        return await _wait(call, query)
    if call.parsed.has("--follow"):
        return await _follow(call, query)
    if call.parsed.has("--archived"):
        await _read_all(call, query)
    else:
        await _read(call, query)
    return 0


async def _read(call: Call, query: Query) -> None:
    """Show what is there, page by page."""
    is_beginning = call.parsed.has("--follow")
    if query.last is not None and query.last > _PAGE:
        query = await _from_the_last(call, query, query.last)
    while found := await call.services.log.read(query):
        for event in found:
            await _show(call, event, _token(event.seq) if is_beginning else b"")
        if query.last is not None or len(found) < query.limit:
            return
        query = replace(query, after=found[-1].seq)


async def _read_all(call: Call, query: Query) -> None:
    """Show what is archived, and then what is there."""
    async with aclosing(pages(call.services.log, query)) as found:
        async for page in found:
            for event in page:
                await _show(call, event)


def _tell_of_archive(call: Call, query: Query) -> None:
    archived = call.services.log.archived()
    if query.after < archived and (call.parsed.has("--all") or call.parsed.has("--after")):
        where = call.services.home / "archive"
        call.warn(f"events up to #{archived} are archived in {where}; --archived shows them too")


async def _from_the_last(call: Call, query: Query, count: int) -> Query:
    """Find where the newest so many begin, walking back page by page; nothing is kept but the place."""
    end = call.services.log.last() + 1 if query.before is None else query.before
    first = end
    while count > 0:
        found = await call.services.log.read(replace(query, before=first, last=min(count, _PAGE)))
        if not found:
            break
        first = found[0].seq
        count -= len(found)
    return replace(query, after=max(query.after, first - 1), before=end, last=None)


async def _wait(call: Call, query: Query) -> int:
    """Show what comes next. A client that lost the daemon waits on from where it began, without a gap."""
    if call.asked.resume == _ALL_SHOWN:
        return 0
    start = _resumed(call)
    if start is None:
        start = query.after if call.parsed.has("--after") else call.services.log.last()
        await call.write(b"", _token(start))
    found = await call.first(replace(query, after=start, last=None), call.parsed.duration_s("--wait"))
    if found is None:
        return EXIT_NOTHING
    for event in found:
        await _show(call, event, _ALL_SHOWN if event is found[-1] else _token(event.seq))
    return 0


async def _follow(call: Call, query: Query) -> int:
    start = _resumed(call)
    if start is None:
        start = await _begin(call, query)
        await call.write(b"", _token(start))
    async with aclosing(follow(call.services.log, replace(query, last=None), after=start)) as pages:
        while True:
            with call.connection.waiting():
                found = await anext(pages, None)
            if found is None:
                return 0
            for event in found:
                await _show(call, event, _token(event.seq))


async def _begin(call: Call, query: Query) -> int:
    """Choose the place to follow from, and show what is asked for of the time before it."""
    if call.parsed.has("--after") or call.parsed.has("--all"):
        return query.after
    start = call.services.log.last()
    if query.last is not None:
        await _read(call, replace(query, before=min(query.before or start + 1, start + 1)))
    return start


async def _show(call: Call, event: Event, token: bytes = b"") -> None:
    is_stream = call.parsed.has("--follow") or call.parsed.has("--wait")
    types = call.parsed.values("--type")
    if event.type == MESSAGE and _MESSAGE_SENT in types and MESSAGE not in types:
        event = replace(event, type=_MESSAGE_SENT)  # Its other name, and the one that was asked for.
    if call.is_json or (is_stream and call.is_json_stream):
        data = encode_event(event) + b"\n"
    else:
        data = (_line(call, event) + "\n").encode("utf-8", "backslashreplace")
    await call.write(data, token)


def _token(place: int) -> bytes:
    return str(place).encode()


def _resumed(call: Call) -> int | None:
    """Where a client that lost the daemon goes on: behind what it has shown last."""
    token = call.asked.resume
    return int(token) if token is not None and token.isdigit() and len(token) <= 15 else None


def _line(call: Call, event: Event) -> str:
    paint = call.paint
    to = f" → {', '.join(event.to)}" if event.to else ""
    text = safe(summary(event))
    plain = f"#{event.seq} {call.clock_time(event.ts)} {safe(event.type)} {safe(event.sender + to)}: "
    if call.width is not None:
        text = truncate(text, max(20, call.width - len(plain)))
    place, moment = paint.bold(f"#{event.seq}"), paint.dim(call.clock_time(event.ts))
    sender, kind = paint.cyan(safe(event.sender)), paint.green(safe(event.type))
    return f"{place} {moment} {kind} {sender}{safe(to)}: {text}"


def _query(call: Call, parsed: Parsed) -> Query:
    if parsed.has("--archived") and parsed.has("--sql"):
        raise UsageError("--sql looks only at what is in the log: it cannot stand with --archived")
    if (parsed.has("--follow") or parsed.has("--wait")) and (parsed.has("--search") or parsed.has("--sql")):
        raise UsageError("--search and --sql look back: they cannot stand with --wait or --follow")
    last = parsed.number("--last")
    if last is None and not any(map(parsed.has, ("--all", "--archived", "--after", "--follow"))):
        last = DEFAULT_EVENTS
    return query_from(call, last=last, limit=_PAGE)
