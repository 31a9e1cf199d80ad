"""Parse timeouts and format relative times for the room commands. Pure."""

import re
from typing import Final

from palaver.doors.argv.complaints import shown
from palaver.doors.argv.parsed import Parsed
from palaver.errors import UsageError

_TIMEOUT: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|)", re.ASCII)
_MS: Final = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def timeout_ms(parsed: Parsed, name: str) -> int | None:
    """Return the value of an option in milliseconds: `30`, `250ms`, `90s`, `5m`, `1h`. None if not given."""
    given = parsed.value(name)
    if given is None:
        return None
    found = _TIMEOUT.fullmatch(given)
    if found is None:
        raise UsageError(
            f"{name} requires a time such as 30 (seconds), 250ms, 90s, 5m or 1h, not {shown(given)}"
        )
    return int(found[1]) * _MS[found[2]]


def relative_time(delta_ms: int) -> str:
    """Format a time relative to now: `59s ago`, `in 2m`. Now is `in 1s`."""
    seconds = max(1, _rounded(abs(delta_ms), 1000))
    span = f"{seconds}s"
    for unit, size in _UNITS:
        if seconds >= size:
            span = f"{_rounded(seconds, size)}{unit}"
            break
    return f"{span} ago" if delta_ms < 0 else f"in {span}"


def _rounded(value: int, size: int) -> int:
    return (value + size // 2) // size
