"""The filters that commands over the log share, read from a command line: a query, and moments in time."""

from datetime import UTC, datetime

from palaver.doors.argv.call import Call
from palaver.errors import UsageError
from palaver.model.query import Query


def files_from(call: Call) -> tuple[str, ...]:
    """Read the file filter: each path as it was written, and as it is from here."""
    given = call.parsed.values("--file")
    return tuple(dict.fromkeys([*given, *map(call.absolute, given)]))


def query_from(call: Call, *, last: int | None = None, limit: int) -> Query:
    """Read every filter of a command that has them all."""
    parsed = call.parsed
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
        files=files_from(call),
        statuses=tuple(parsed.values("--status")),
        after=parsed.number("--after") or 0,
        before=parsed.number("--before"),
        since=moment_from(call, "--since"),
        until=moment_from(call, "--until"),
        search=parsed.value("--search") or "",
        sql=parsed.value("--sql") or "",
        last=last,
        limit=limit,
    )


def moment_from(call: Call, name: str) -> int | None:
    """Read a time: so long ago (10m), or a date with or without a time, in the caller's zone."""
    given = call.parsed.value(name)
    if given is None:
        return None
    try:
        seconds = call.parsed.duration_s(name)
    except UsageError:
        seconds = None
    if seconds is not None:
        return call.services.clock.now_ms() - int(seconds * 1000)
    try:
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=call.zone) if call.zone is not None else moment.astimezone()
        return int(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{name} needs a time such as 10m (ago) or 2026-03-01T09:00, not {given!r}"
        ) from None
