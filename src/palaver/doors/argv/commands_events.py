"""`pal events`: reading, searching, waiting for and following the log. Follows places, and changes no ledger."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from palaver.doors.argv.call import Call
from palaver.doors.argv.parse import Parsed
from palaver.doors.argv.style import safe, truncate
from palaver.doors.argv.table_log import DEFAULT_EVENTS
from palaver.errors import UsageError
from palaver.links.doorstep import Doorstep
from palaver.log.follow import follow
from palaver.model.envelope import Event, encode_event
from palaver.model.message import readable_text
from palaver.model.query import Query

EXIT_NOTHING: Final = 3
_PAGE: Final = 1000


async def events(call: Call, doorstep: Doorstep) -> int:
    """Read the log; with --wait or --follow also what is yet to come."""
    parsed = call.parsed
    query = _query(call, parsed)
    resumed = _resumed(call)
    if resumed is not None:
        return await _go_on(call, query, after=resumed)
    if parsed.has("--wait"):
        after = query.after if parsed.has("--after") else call.services.log.last()
        return await _wait(call, query, after)
    if not parsed.has("--follow"):
        await _read(call, query)
        return 0
    start = call.services.log.last()
    if parsed.has("--after") or parsed.has("--all"):
        return await _go_on(call, query, after=query.after)
    if parsed.has("--last"):
        await _read(call, query)
    return await _go_on(call, query, after=start)


async def _read(call: Call, query: Query) -> None:
    """Show what is there, page by page when it is everything."""
    while True:
        found = await call.services.log.read(query)
        for event in found:
            await _show(call, event)
        if query.last is not None or len(found) < query.limit:
            return
        query = replace(query, after=found[-1].seq)


async def _wait(call: Call, query: Query, after: int) -> int:
    timeout_s = call.parsed.duration_s("--wait")
    try:
        async with asyncio.timeout(timeout_s):
            async for found in follow(call.services.log, replace(query, last=None), after=after):
                for event in found:
                    await _show(call, event)
                return 0
    except TimeoutError:
        return EXIT_NOTHING
    return 0


async def _go_on(call: Call, query: Query, after: int) -> int:
    async for found in follow(call.services.log, replace(query, last=None), after=after):
        for event in found:
            await _show(call, event)
    return 0


async def _show(call: Call, event: Event) -> None:
    token = str(event.seq).encode() if call.parsed.has("--follow") else b""
    is_stream = call.parsed.has("--follow") or call.parsed.has("--wait")
    if call.is_json or (is_stream and call.is_json_stream):
        await call.connection.write(encode_event(event) + b"\n", token)
    else:
        await call.connection.write((_line(call, event) + "\n").encode("utf-8", "backslashreplace"), token)


def _line(call: Call, event: Event) -> str:
    paint = call.paint
    to = f" → {', '.join(event.to)}" if event.to else ""
    text = safe(readable_text(event))
    plain = f"#{event.seq} {call.clock_time(event.ts)} {event.type} {safe(event.sender + to)}: "
    if call.width is not None:
        text = truncate(text, max(20, call.width - len(plain)))
    return (
        f"{paint.bold(f'#{event.seq}')} {paint.dim(call.clock_time(event.ts))} {paint.green(event.type)} "
        f"{paint.cyan(safe(event.sender))}{safe(to)}: {text}"
    )


def _resumed(call: Call) -> int | None:
    """Where a follower that lost the daemon goes on."""
    token = call.asked.resume
    return int(token) if token is not None and token.isdigit() and len(token) <= 15 else None


def _query(call: Call, parsed: Parsed) -> Query:
    if (parsed.has("--follow") or parsed.has("--wait")) and (parsed.has("--search") or parsed.has("--sql")):
        raise UsageError("--search and --sql look back: they cannot stand with --wait or --follow")
    last = parsed.number("--last")
    if last is None and not parsed.has("--all") and not parsed.has("--after") and not parsed.has("--follow"):
        last = DEFAULT_EVENTS
    return Query(
        types=tuple(parsed.values("--type")),
        agents=tuple(parsed.values("--agent")),
        senders=tuple(parsed.values("--from")),
        to=tuple(parsed.values("--to")),
        mentions=tuple(parsed.values("--mention")),
        targets=tuple(parsed.values("--target")),
        threads=tuple(parsed.values("--thread")),
        rooms=tuple(parsed.values("--room")),
        intents=tuple(parsed.values("--intent")),
        files=tuple(parsed.values("--file")),
        statuses=tuple(parsed.values("--status")),
        after=parsed.number("--after") or 0,
        before=parsed.number("--before"),
        since=_moment(call, parsed, "--since"),
        until=_moment(call, parsed, "--until"),
        search=parsed.value("--search") or "",
        sql=parsed.value("--sql") or "",
        last=last,
        limit=_PAGE,
    )


def _moment(call: Call, parsed: Parsed, name: str) -> int | None:
    """Read a time: so long ago (10m), or a date with or without a time, in the caller's zone."""
    given = parsed.value(name)
    if given is None:
        return None
    try:
        seconds = parsed.duration_s(name)
    except UsageError:
        seconds = None
    if seconds is not None:
        return call.services.clock.now_ms() - int(seconds * 1000)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise UsageError(f"{name} needs a time such as 10m (ago) or 2026-03-01T09:00, not {given!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=call.zone) if call.zone is not None else moment.astimezone()
    return int(moment.astimezone(UTC).timestamp() * 1000)
