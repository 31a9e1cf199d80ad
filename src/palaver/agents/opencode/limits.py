"""When a provider says that no more may be used, as OpenCode passes it on. Pure: now is handed in.

OpenCode tries again by itself, a few times with growing pauses, or when the provider says; then it gives up
with an error. Being slowed down for a moment is no used-up allowance.
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
"""Who is sent away for longer than this has used up more than a moment's share."""
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
"""The year 2100: a moment behind it is no moment."""


@dataclass(frozen=True, slots=True)
class Limit:
    """An allowance that is used up, and when it is there again; 0 when nobody says."""

    ends_ms: int = 0

    @property
    def detail(self) -> str:
        """Give it as the state of an agent says it: to the minute, and never too early."""
        if not self.ends_ms:
            return USED_UP
        end = datetime.fromtimestamp(-(-self.ends_ms // _MINUTE_MS) * _MINUTE_MS / 1000, UTC)
        return f"{USED_UP}, resets {end:%b} {end.day}, {end:%Y %H:%M} (UTC)"


def limit_in_retry(status: Mapping[str, object], now_ms: int) -> Limit | None:
    """Read why OpenCode waits before it tries again; None when that will soon be over."""
    wait_ms = _number(status.get("next")) - now_ms
    attempt = min(max(_number(status.get("attempt")), 1), 10)
    is_named = wait_ms > _FIRST_PAUSE_MS * 2 ** (attempt - 1) + _SLACK_MS  # else it is OpenCode's own pause
    is_limit = _says_so(text_in(status, "message")) or as_map(status.get("action")).get("reason") in _REASONS
    if not is_limit and not (is_named and wait_ms > LONG_WAIT_MS):
        return None
    return Limit(_moment(now_ms + wait_ms) if is_named else 0)


def limit_in_error(error: Mapping[str, object], now_ms: int) -> Limit | None:
    """Read with what OpenCode gave up; None for any other error."""
    about = as_map(error.get("data"))
    says_so = _says_so(f"{text_in(about, 'message')} {text_in(about, 'responseBody')}")
    wait_ms = _wait_ms(as_map(about.get("responseHeaders")), now_ms)
    is_slowed = about.get("statusCode") == _TOO_MANY and wait_ms > LONG_WAIT_MS
    if not says_so and not is_slowed and about.get("statusCode") != _PAYMENT:
        return None
    return Limit(_moment(now_ms + wait_ms) if wait_ms else 0)


def error_text(error: Mapping[str, object]) -> str:
    """Say what went wrong, on one line."""
    said = text_in(as_map(error.get("data")), "message") or text_in(error, "name")
    return one_line(f"error: {said}" if said else "error")


def _says_so(said: str) -> bool:
    return bool(_WORDS.search(said)) or is_usage_limit(said)


def _wait_ms(headers: Mapping[str, object], now_ms: int) -> int:
    """Give how long a provider wants to be left alone; 0 when it does not say."""
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
