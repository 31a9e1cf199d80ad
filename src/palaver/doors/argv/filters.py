"""Parse the filters that commands on the log share: a query, and points in time."""

from datetime import UTC, datetime
from typing import Final

from palaver.doors.argv.call import Call
from palaver.doors.argv.commands_rooms import named_room
from palaver.doors.argv.complaints import shown
from palaver.errors import UsageError
from palaver.log.fold_rooms import find_past_room
from palaver.model.query import Query

_SELF: Final = "self"
_ANY: Final = "any"


def files_from(call: Call) -> tuple[str, ...]:
    """Return the file filter: each path as given, and as an absolute path."""
    given = call.parsed.values("--file")
    return tuple(dict.fromkeys([*given, *map(call.absolute, given)]))


def targets_from(call: Call) -> tuple[str, ...]:
    """Return the filter by recipient: `self` is the caller, and `any` means no filter."""
    given = _targets(call)
    if _ANY in given or concerns_from(call):
        return ()
    return tuple(call.caller.name if name == _SELF else name for name in given)


def concerns_from(call: Call) -> str:
    """Return the caller if `self` is the only target in a room: then all events that concern it match."""
    return call.caller.name if _targets(call) == [_SELF] and call.parsed.values("--room") else ""


def _targets(call: Call) -> list[str]:
    return [name.removeprefix("@").lower() for name in call.parsed.values("--target")]


async def rooms_from(call: Call) -> tuple[str, ...]:
    """Return the filter by room: an id, a path, or the short name of an open room or of one closed room.

    Raises `AmbiguousRecipient` when several rooms have the name, and `RoomNotFound`.
    """
    rows = call.services.log.rows
    named = [await named_room(call, word) for word in call.parsed.values("--room")]
    return tuple(find_past_room(rows, word).id for word in named)


async def query_from(call: Call, *, last: int | None = None, limit: int) -> Query:
    """Return the query of a command that has all filters."""
    parsed = call.parsed
    return Query(
        types=tuple(parsed.values("--type")),
        agents=tuple(parsed.values("--agent")),
        senders=tuple(parsed.values("--from")),
        to=tuple(parsed.values("--to")),
        mentions=tuple(parsed.values("--mention")),
        targets=targets_from(call),
        concerns=concerns_from(call),
        threads=tuple(parsed.values("--thread")),
        rooms=await rooms_from(call),
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
    """Return a time: an age (10m), or a date with or without a time, in the caller's time zone."""
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
            f"{name} requires a time such as 10m (ago) or 2026-03-01T09:00, not {shown(given)}"
        ) from None
