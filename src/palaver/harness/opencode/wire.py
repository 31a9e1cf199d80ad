"""The protocol of the OpenCode 1.18 server: paths, bodies, events, messages. Pure.

Only the fields in use are read and all others ignored, because a newer OpenCode may send more. A permission
is granted once or rejected; nothing here can grant it permanently.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote

import msgspec

from palaver.harness.base import is_usage_limit
from palaver.harness.hooks import USED_UP, as_list, as_map, one_line, text_in

HEALTH: Final = "/global/health"
EVENTS: Final = "/event"
SESSIONS: Final = "/session"
STATUSES: Final = "/session/status"
PERMISSIONS: Final = "/permission"
QUESTIONS: Final = "/question"
SELECT: Final = "/tui/select-session"
NOT_FOUND: Final = 404


class NotSent(OSError):
    """The connection failed: nothing was sent."""


class Lost(OSError):
    """The request was sent and no complete response came: its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response, without its headers: nothing here depends on them."""

    status: int

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


_KEY: Final = "palaver"
"""The metadata field that carries the key of a text from us."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySettings:
    """The agent, model and variant that a session uses. OpenCode chooses empty ones itself."""

    agent: str = ""
    provider: str = ""
    model: str = ""
    variant: str = ""


AS_IT_LIKES: Final = ReplySettings()


@dataclass(frozen=True, slots=True)
class OpenCodeEvent:
    """One event of the server."""

    type: str
    about: Mapping[str, object]


def prompt_path(session: str) -> str:
    """The path for sending a text to a session without waiting for the reply."""
    # With no safe characters a slash is escaped too, so an id cannot select another path of the server.
    return f"{SESSIONS}/{quote(session, safe='')}/prompt_async"


def session_path(session: str) -> str:
    """The path of a session."""
    return f"{SESSIONS}/{quote(session, safe='')}"


def messages_path(session: str, limit: int) -> str:
    """The path of the last messages of a session."""
    return f"{SESSIONS}/{quote(session, safe='')}/message?limit={limit}"


def reply_path(request: str) -> str:
    """The path for the decision on one permission request."""
    return f"{PERMISSIONS}/{quote(request, safe='')}/reply"


def reply_body(*, is_allowed: bool) -> bytes:
    """Encode the user's decision on one request: allow once, or reject."""
    if is_allowed:
        return _encode({"reply": "once"})
    return _encode({"reply": "reject", "message": "A person denied it."})


def prompt_body(text: str, key: str, manner: ReplySettings) -> bytes:
    """Encode a text for a session. It keeps the agent and model of the session, and so its permissions."""
    body: dict[str, object] = {"parts": [{"type": "text", "text": text, "metadata": {_KEY: key}}]}
    if manner.agent:
        body["agent"] = manner.agent
    if manner.provider and manner.model:
        body["model"] = {"providerID": manner.provider, "modelID": manner.model}
    if manner.variant:
        body["variant"] = manner.variant
    return _encode(body)


def session_body(manner: ReplySettings) -> bytes:
    """Encode the settings of a new session."""
    return _encode({"agent": manner.agent} if manner.agent else {})


def select_body(session: str) -> bytes:
    """Encode the session that the terminal UI must show."""
    return _encode({"sessionID": session})


def json_from_bytes(data: bytes) -> object:
    """Decode a response; None if it is not JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def event_from_bytes(data: bytes) -> OpenCodeEvent | None:
    """Decode one event; None if it is malformed."""
    found = as_map(json_from_bytes(data))
    kind = found.get("type")
    return OpenCodeEvent(kind, as_map(found.get("properties"))) if isinstance(kind, str) else None


def events_in_messages(found: object) -> Iterator[OpenCodeEvent]:
    """Yield the messages of a session as the events that would report them.

    So messages that were missed are applied by the same code as those that are received.
    """
    for message in as_list(found):
        info = as_map(message.get("info"))
        session = info.get("sessionID")
        yield OpenCodeEvent("message.updated", {"sessionID": session, "info": info})
        for part in as_list(message.get("parts")):
            yield OpenCodeEvent("message.part.updated", {"sessionID": session, "part": part})


def key_of(part: Mapping[str, object]) -> str:
    """Return the key of a text from us; empty for any other part."""
    return text_in(as_map(part.get("metadata")), _KEY)


def manner_of(info: Mapping[str, object]) -> ReplySettings:
    """Return the agent, model and variant of a message or a session."""
    model = as_map(info.get("model"))
    variant = text_in(model, "variant") or text_in(info, "variant")
    return ReplySettings(
        agent=text_in(info, "agent"),
        provider=text_in(model, "providerID"),
        model=text_in(model, "modelID", "id"),
        variant="" if variant == "default" else variant,
    )


# --------------------
# Detect usage limits of a provider in the reports of OpenCode. Pure: the current time is a parameter.
#
# OpenCode retries a few times by itself, with growing pauses or when the provider says, and then fails with
# an error. A short rate limit does not count as a usage limit.

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
class UsageLimit:
    """A reached usage limit and its end; 0 if the end is unknown."""

    ends_ms: int = 0

    @property
    def detail(self) -> str:
        """The limit as the detail of an agent's status, with its end rounded up to a minute."""
        if not self.ends_ms:
            return USED_UP
        end = datetime.fromtimestamp(-(-self.ends_ms // _MINUTE_MS) * _MINUTE_MS / 1000, UTC)
        return f"{USED_UP}, resets {end:%b} {end.day}, {end:%Y %H:%M} (UTC)"


def limit_in_retry(status: Mapping[str, object], now_ms: int) -> UsageLimit | None:
    """Return the usage limit that OpenCode's retry waits for; None if it is a short wait."""
    wait_ms = _number(status.get("next")) - now_ms
    attempt = min(max(_number(status.get("attempt")), 1), 10)
    # OpenCode's own pauses double with each attempt: only a longer one was named by the provider.
    is_named = wait_ms > _FIRST_PAUSE_MS * 2 ** (attempt - 1) + _SLACK_MS
    is_limit = _says_so(text_in(status, "message")) or as_map(status.get("action")).get("reason") in _REASONS
    if not is_limit and not (is_named and wait_ms > LONG_WAIT_MS):
        return None
    return UsageLimit(_valid_time_ms(now_ms + wait_ms) if is_named else 0)


def limit_in_error(error: Mapping[str, object], now_ms: int) -> UsageLimit | None:
    """Return the usage limit in the error of a failed turn; None for any other error."""
    about = as_map(error.get("data"))
    says_so = _says_so(f"{text_in(about, 'message')} {text_in(about, 'responseBody')}")
    wait_ms = _wait_ms(as_map(about.get("responseHeaders")), now_ms)
    is_slowed = about.get("statusCode") == _TOO_MANY and wait_ms > LONG_WAIT_MS
    if not says_so and not is_slowed and about.get("statusCode") != _PAYMENT:
        return None
    return UsageLimit(_valid_time_ms(now_ms + wait_ms) if wait_ms else 0)


def error_text(error: Mapping[str, object]) -> str:
    """Return an error as one line of text."""
    text = text_in(as_map(error.get("data")), "message") or text_in(error, "name")
    return one_line(f"error: {text}" if text else "error")


def _says_so(text: str) -> bool:
    return bool(_WORDS.search(text)) or is_usage_limit(text)


def _wait_ms(headers: Mapping[str, object], now_ms: int) -> int:
    """Return the wait that a provider requires, in milliseconds; 0 if it names no time."""
    exact, rough = text_in(headers, "retry-after-ms"), text_in(headers, "retry-after")
    try:
        if exact:
            return max(0, int(float(exact)))
        # `retry-after` is a number of seconds or a date, which the code below reads.
        return max(0, int(float(rough) * 1000)) if rough else 0
    # A date is not a number, and `int` raises OverflowError for `inf`.
    except (ValueError, OverflowError):
        pass
    try:
        return max(0, int(parsedate_to_datetime(rough).timestamp() * 1000) - now_ms)
    except (ValueError, OverflowError):
        return 0


def _valid_time_ms(ms: int) -> int:
    return ms if 0 < ms < _LATEST_MS else 0


def _number(value: object) -> int:
    # The comparison also excludes NaN and infinity, for which `int` raises an error.
    return int(value) if isinstance(value, int | float) and abs(value) < _LATEST_MS * 2 else 0


# --------------------
# The inputs of running OpenCode tool calls, so that the user sees what a permission is for. Pure.
#
# A permission request refers to a tool call, often without its input. The input of a call counts as unknown
# if it is not certain: if the call has ended, was dropped for newer ones, or shares its id with another
# call.

_LIMIT_INPUTS: Final = 100
"""Inputs to remember per session; when full, the oldest is dropped."""
_LIMIT_CALLS: Final = 10_000
"""Calls to remember by id, with or without an input; when full, the oldest is dropped."""
_RUNNING: Final = "running"
_PENDING: Final = "pending"
"""The model is still writing the input."""

CallName = tuple[str, str]
"""The id of its message, and the id that the model gave the call."""


class Calls:
    """The calls of one session."""

    def __init__(self) -> None:
        self._inputs: dict[CallName, Mapping[str, object] | None] = {}
        """None if the input is not certain, or the call has ended."""

    def take(self, part: Mapping[str, object]) -> None:
        """Apply a message part that is a tool call."""
        name = text_in(part, "messageID"), text_in(part, "callID")
        state = as_map(part.get("state"))
        status, given = state.get("status"), state.get("input")
        if not all(name) or status == _PENDING:
            return
        is_whole = status == _RUNNING and isinstance(given, dict)
        # Models may use an id twice. Then a request could refer to either call, and the user might approve
        # the other one.
        is_same = name not in self._inputs or self._inputs[name] == given
        self._inputs[name] = as_map(given) if is_whole and is_same else None
        known = [one for one, value in self._inputs.items() if value is not None]
        # The call keeps its entry without an input, so that a second call with this id is still noticed.
        if len(known) > _LIMIT_INPUTS:
            self._inputs[known[0]] = None
        if len(self._inputs) > _LIMIT_CALLS:
            del self._inputs[next(iter(self._inputs))]

    def input_of(self, name: CallName) -> Mapping[str, object] | None:
        """Return the input of a call; None if it is not certain."""
        return self._inputs.get(name)

    def clear(self) -> None:
        """Forget all calls: the session is idle."""
        self._inputs.clear()
