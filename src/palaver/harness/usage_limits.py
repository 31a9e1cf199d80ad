"""Read from a harness's text when a usage limit resets. Pure: the time is a parameter."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from palaver.harness.hooks import USED_UP
from palaver.protocol.agents import Agent
from palaver.protocol.events import AgentState

_RESET_TIME: Final = re.compile(
    r"(?:(?P<month>[A-Za-z]{3})[a-z]*\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?:(?P<year>\d{4}),?\s+)?"
    r"(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s?(?P<half>[ap]m)?(?:\s?\((?P<zone>[\w/+-]+)\))?",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(r"usage[ _]limit\b(?:(?:, resets| until) (?P<words>.{1,60})$)?", re.ASCII)
"""How a status detail begins that reports a usage limit, for every harness."""
_FROM_THEN: Final = re.compile(r"in (?P<seconds>\d{1,8})s", re.ASCII)
_UNIX_DIGITS: Final = 9
_UNIX_DIGITS_MOST: Final = 11
_MINUTE_MS: Final = 60_000
_JUST_PAST: Final = timedelta(minutes=10)
"""A time of day may have passed this long ago and still be meant: a screen or a hook may report it late."""
_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100. A later time is an error."""
_NEAR_MS: Final = 2 * _MINUTE_MS
_NOON: Final = 12
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def reset_at_ms(words: str, now_ms: int) -> int | None:
    """Return the time in ms that a text such as `3pm (UTC)` means; None if it has no time.

    Without a zone it is in the machine's own. Without a day it is the next time that the clock shows it, or
    the one that has just passed; without a year, the nearest one.
    """
    found = _RESET_TIME.fullmatch(words.strip())
    if found is None:
        return None
    now = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(_zone(found["zone"]))
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "pm" else 0)
    try:
        reset_at = now.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
        if found["month"]:
            month = _MONTHS.index(found["month"].lower()) + 1
            reset_at = _dated(reset_at, now, found["year"], month, int(found["day"]))
        else:
            reset_at = _next(reset_at, now)
    except (ValueError, OverflowError):
        return None
    return int(reset_at.timestamp() * 1000)


def _dated(reset_at: datetime, now: datetime, year: str | None, month: int, day: int) -> datetime:
    """Return the time on that day. Raises ValueError if there is no such day."""
    if year:
        return reset_at.replace(year=int(year), month=month, day=day)
    near: list[datetime] = []
    for candidate in (now.year - 1, now.year, now.year + 1):
        with suppress(ValueError):
            near.append(reset_at.replace(year=candidate, month=month, day=day))
    return min(near, key=lambda one: abs(one - now))


def _next(reset_at: datetime, now: datetime) -> datetime:
    """Return the first such time of day that is not over, or has only just passed."""
    reset_at -= timedelta(days=1)
    while reset_at + _JUST_PAST < now:
        reset_at += timedelta(days=1)
    return reset_at


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def is_limit(detail: str) -> bool:
    """Whether a status detail reports a usage limit."""
    return _LIMIT.match(detail) is not None


def is_limited(agent: Agent) -> bool:
    """Return whether an agent is blocked by a usage limit."""
    return not agent.left and agent.state == AgentState.BLOCKED and is_limit(agent.detail)


def limit_ends_ms(detail: str, since_ms: int) -> int | None:
    """Return when the usage limit in a status detail ends; None if it has no such time.

    The text is that of the harness; a long number is a Unix time in seconds, and `in 90s` counts from
    `since_ms`.
    """
    words = _words_of(detail)
    if words.isascii() and words.isdecimal() and _UNIX_DIGITS <= len(words) <= _UNIX_DIGITS_MOST:
        ends_ms: int | None = int(words) * 1000
    elif (wait := _FROM_THEN.fullmatch(words)) is not None:
        ends_ms = since_ms + int(wait["seconds"]) * 1000
    else:
        ends_ms = reset_at_ms(words, since_ms)
    return ends_ms if ends_ms is not None and 0 <= ends_ms < _LATEST_MS else None


def is_counted_from_then(detail: str) -> bool:
    """Whether the time is relative: the same text means another time whenever it is reported."""
    return _FROM_THEN.fullmatch(_words_of(detail)) is not None


def _words_of(detail: str) -> str:
    found = _LIMIT.match(detail)
    return (found["words"] if found is not None else None) or ""


def fix_limit(detail: str, now_ms: int) -> str:
    """Return a limit with its absolute day and minute, so that it can be read at any later time.

    A detail without a time, or with a near one, stays as it is. Seconds are rounded up.
    """
    ends_ms = limit_ends_ms(detail, now_ms)
    if ends_ms is None or ends_ms - now_ms < _NEAR_MS:
        return detail
    reset_at = datetime.fromtimestamp(-(-ends_ms // _MINUTE_MS) * _MINUTE_MS / 1000, UTC)
    month, half = _MONTHS[reset_at.month - 1].capitalize(), "am" if reset_at.hour < _NOON else "pm"
    clock = f"{reset_at.hour % _NOON or _NOON}:{reset_at.minute:02}{half}"
    return f"{USED_UP}, resets {month} {reset_at.day}, {reset_at.year}, {clock} (UTC)"
