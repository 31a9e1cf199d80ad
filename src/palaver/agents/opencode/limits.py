"""Detect usage limits of a provider in the reports of OpenCode. Pure: the current time is a parameter.

OpenCode retries a few times by itself, with growing pauses or when the provider says, and then fails with an
error. A short rate limit does not count as a usage limit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from palaver.harness.hook_news import as_map, one_line, text_in
from palaver.harness.hook_states import USED_UP
from palaver.harness.profile import is_usage_limit

LONG_WAIT_MS: Final = 5 * 60_000
"""A required wait longer than this means that a usage limit is reached, not a short rate limit."""
_REASONS: Final = frozenset({"free_tier_limit", "account_rate_limit"})
_WORDS: Final = re.compile(
    r"exceeded your current quota|insufficient[ _]quota|quota (?:exceeded|exhausted)|usage (?:limit|exceeded)"
    r"|credit balance is too low|out of credits|insufficient (?:credits|balance|funds)|billing hard limit"
    r"|FreeUsageLimitError|GoUsageLimitError",
    re.IGNORECASE,
)
_FIRST_PAUSE_MS: Final = 2_500
_SLACK_MS: Final = 1_000
_TOO_MANY: Final = 429
_PAYMENT: Final = 402
_MINUTE_MS: Final = 60_000
_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100: later times are not plausible."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A reached usage limit and its end; 0 if the end is unknown."""

    ends_ms: int = 0

    @property
    def detail(self) -> str:
        """The limit as the detail of an agent's status, with its end rounded up to a minute."""
        if not self.ends_ms:
            return USED_UP
        end = datetime.fromtimestamp(-(-self.ends_ms // _MINUTE_MS) * _MINUTE_MS / 1000, UTC)
        return f"{USED_UP}, resets {end:%b} {end.day}, {end:%Y %H:%M} (UTC)"


def limit_in_retry(status: Mapping[str, object], now_ms: int) -> Limit | None:
    """Return the usage limit that OpenCode's retry waits for; None if it is a short wait."""
    wait_ms = _number(status.get("next")) - now_ms
    attempt = min(max(_number(status.get("attempt")), 1), 10)
    # Otherwise it is OpenCode's own pause.
    is_named = wait_ms > _FIRST_PAUSE_MS * 2 ** (attempt - 1) + _SLACK_MS
    is_limit = _says_so(text_in(status, "message")) or as_map(status.get("action")).get("reason") in _REASONS
    if not is_limit and not (is_named and wait_ms > LONG_WAIT_MS):
        return None
    return Limit(_moment(now_ms + wait_ms) if is_named else 0)


def limit_in_error(error: Mapping[str, object], now_ms: int) -> Limit | None:
    """Return the usage limit in the error of a failed turn; None for any other error."""
    about = as_map(error.get("data"))
    says_so = _says_so(f"{text_in(about, 'message')} {text_in(about, 'responseBody')}")
    wait_ms = _wait_ms(as_map(about.get("responseHeaders")), now_ms)
    is_slowed = about.get("statusCode") == _TOO_MANY and wait_ms > LONG_WAIT_MS
    if not says_so and not is_slowed and about.get("statusCode") != _PAYMENT:
        return None
    return Limit(_moment(now_ms + wait_ms) if wait_ms else 0)


def error_text(error: Mapping[str, object]) -> str:
    """Return an error as one line of text."""
    said = text_in(as_map(error.get("data")), "message") or text_in(error, "name")
    return one_line(f"error: {said}" if said else "error")


def _says_so(said: str) -> bool:
    return bool(_WORDS.search(said)) or is_usage_limit(said)


def _wait_ms(headers: Mapping[str, object], now_ms: int) -> int:
    """Return the wait that a provider requires, in milliseconds; 0 if it names no time."""
    exact, said = text_in(headers, "retry-after-ms"), text_in(headers, "retry-after")
    try:
        if exact:
            return max(0, int(float(exact)))
        return max(0, int(float(said) * 1000)) if said else 0
    except (ValueError, OverflowError):
        pass
    try:
        return max(0, int(parsedate_to_datetime(said).timestamp() * 1000) - now_ms)
    except (ValueError, OverflowError):
        return 0


def _moment(ms: int) -> int:
    return ms if 0 < ms < _LATEST_MS else 0


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < _LATEST_MS * 2 else 0
