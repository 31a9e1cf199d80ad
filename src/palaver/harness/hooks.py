"""Hooks of harnesses as the bus reads them, and the usage limits that their texts report. Pure."""

import enum
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from palaver.protocol.agents import Agent
from palaver.protocol.events import AgentState
from palaver.protocol.text import exact

# --------------------
# Read from a harness's text when a usage limit resets. Pure: the time is a parameter.

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
"""Fewest digits of a Unix time in seconds. A shorter number may be an hour of the day."""
_UNIX_DIGITS_MOST: Final = 11
_MINUTE_MS: Final = 60_000
_JUST_PAST: Final = timedelta(minutes=10)
"""A time of day may have passed this long ago and still be meant: a screen or a hook may report it late."""
_LATEST_MS: Final = 4_102_444_800_000
"""The year 2100. A later time is an error."""
_NEAR_MS: Final = 2 * _MINUTE_MS
"""A limit that ends sooner keeps its text: a full date is useful only if it is read much later."""
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
    # `astimezone(None)` converts to the zone of this machine.
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
    # There is no such time or day, such as 25:00 or February 30.
    except (ValueError, OverflowError):
        return None
    return int(reset_at.timestamp() * 1000)


def _dated(reset_at: datetime, now: datetime, year: str | None, month: int, day: int) -> datetime:
    """Return the time on that day. Raises ValueError if there is no such day."""
    if year:
        return reset_at.replace(year=int(year), month=month, day=day)
    # A text without a year may be read on the other side of a new year. February 29 is missing in most
    # years.
    near: list[datetime] = []
    for candidate in (now.year - 1, now.year, now.year + 1):
        with suppress(ValueError):
            near.append(reset_at.replace(year=candidate, month=month, day=day))
    return min(near, key=lambda one: abs(one - now))


def _next(reset_at: datetime, now: datetime) -> datetime:
    """Return the first such time of day that is not over, or has only just passed."""
    # Begin with yesterday: shortly after midnight, a time of late evening has only just passed.
    reset_at -= timedelta(days=1)
    while reset_at + _JUST_PAST < now:
        reset_at += timedelta(days=1)
    return reset_at


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    # The text becomes the path of a zone file: a folder such as `America` raises OSError, and a path outside
    # the zone files ValueError.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def is_limit(detail: str) -> bool:
    """Whether a status detail reports a usage limit."""
    return _LIMIT.match(detail) is not None


def is_limited(agent: Agent) -> bool:
    """Return whether an agent is blocked by a usage limit."""
    return not agent.left and agent.state == AgentState.BLOCKED and is_limit(agent.detail)


def limit_ends_ms(detail: str, since_ms: int) -> int | None:
    """Return when the usage limit in a status detail ends; None if the detail names no valid time.

    The text is that of the harness; a long number is a Unix time in seconds, and `in 90s` counts from
    `since_ms`. Other times are relative to `since_ms` too: `3pm` is the one next to it.
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
    """Whether the time is relative (`in 90s`), so that the same text means a later time if reported later."""
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
    # Rounded up, so that the text never names a time before the actual end.
    reset_at = datetime.fromtimestamp(-(-ends_ms // _MINUTE_MS) * _MINUTE_MS / 1000, UTC)
    month, half = _MONTHS[reset_at.month - 1].capitalize(), "am" if reset_at.hour < _NOON else "pm"
    clock = f"{reset_at.hour % _NOON or _NOON}:{reset_at.minute:02}{half}"
    return f"{USED_UP}, resets {month} {reset_at.day}, {reset_at.year}, {clock} (UTC)"


# --------------------
# The content of a hook in one form for all harnesses, and functions to read it. Pure.

LIMIT_DETAIL: Final = 200
"""Characters of a detail, which describes what an agent is doing or is asked."""
LIMIT_COMMAND: Final = 1000

# Characters that must not be in an event's text, and line ends: a detail is one line.
# Some change the direction of the text, and could show a permission request as another command.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class HookStep(enum.Enum):
    """The position of a hook in a conversation, seen from the model.

    Between two requests to the model come the results of all tools that it called, one by one, and then, if
    the harness has such a hook, all of them together. The steps exist to prove that a text was read: a text
    that was added at one step is in the request that follows, and a later reply of the model proves it.
    """

    START = "start"
    """A session begins, or continues after its context was compacted."""
    PROMPT = "prompt"
    """The model receives a prompt: a request follows that contains it."""
    CALL = "call"
    """The model has replied and calls a tool. Another tool of the same reply may have run before."""
    RESULT = "result"
    """A tool has ended. Others of the same reply may still run."""
    BATCH = "batch"
    """Every tool of a reply has ended: a request follows that contains the results."""
    TURN_END = "turn_end"
    """The model has replied and calls no more tools."""
    END = "end"
    """The session has ended."""
    ASIDE = "aside"
    """Any other hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookNews:
    """The content of one hook. Fields without information are empty."""

    event: str
    step: HookStep = HookStep.ASIDE
    session: str = ""
    source: str = ""
    """Why a session starts: `startup`, `resume`, `clear`, `compact`."""
    is_deaf: bool = False
    """A session starts here, but its harness ignores a text in the reply: the first prompt must carry it."""
    state: AgentState | None = None
    """None: the hook does not show what the agent is doing."""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""
    """The file that is being changed; a file that is only read is not named here."""
    transcript: str = ""
    cwd: str = ""
    agent_id: str = ""
    """Set inside a sub-agent: the conversation is the sub-agent's, not the session's."""
    agent_type: str = ""
    delegates: int = 0
    """1 when a tool starts that is a sub-agent whose own hooks carry no mark, -1 when it ends."""
    is_unmarked: bool = False
    """Nothing in the hook shows whether it is of the session or of a sub-agent that `delegates` counted."""
    call: str = ""
    """The harness's id of the tool call."""
    is_over: bool = False
    """A sub-agent ends with this hook, unless the reply makes it continue."""
    is_alone: bool = False
    """No sub-agent of the session runs any more."""
    prompt: str = ""
    is_new: bool = False
    """The session had no agent before this hook, and must receive its name."""
    is_woken: bool = False
    """The harness starts a process with this session that can wake it."""
    permission: Mapping[str, object] | None = None
    """The tool use that a person is asked to allow."""
    result_of: Mapping[str, object] | None = None
    """The tool that has ended, with its input: a permission request for it is settled."""
    is_failed: bool = False
    """The turn has ended without a reply, and the harness has removed its last prompt from the conversation.

    Other texts that were added in the turn may be lost."""
    can_overlap: bool = False
    """The harness may work on a second prompt at the same time, and then does not report the end of this."""
    stop_active: bool = False
    """The turn goes on only because a hook wanted it."""
    is_usage_limit: bool = False
    resets: str = ""
    """When the usage limit resets, in the harness's words."""


def one_line(text: str, limit: int = LIMIT_DETAIL) -> str:
    """Return a text as it may be in an event: one short line without invisible characters."""
    shown = exact(_UNFIT.sub(" ", text)).strip()
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def text_in(data: Mapping[str, object], *names: str) -> str:
    """Return the first of the named members that is a non-empty string; empty if there is no such member."""
    for name in names:
        if isinstance(value := data.get(name), str) and value:
            return value
    return ""


def as_map(value: object) -> Mapping[str, object]:
    """Return an object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Mapping[str, object]]:
    """Return the objects of a list; an empty list for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_number(value: object) -> int:
    """Return a whole number; 0 for any other value."""
    return value if isinstance(value, int) else 0


# --------------------
# The agent state after each hook. Pure: tables and their lookup.

THINKING: Final = "thinking"
TOOL_USE: Final = "tool_use"
PERMISSION: Final = "permission"
QUESTION: Final = "question"
REVIEW: Final = "permission_review"
COMPACTING: Final = "compacting"
SESSION_END: Final = "session_end"
USED_UP: Final = "usage limit"
"""How a detail begins when a usage limit is reached and no person is asked anything."""
USED_UP_ASKED: Final = f"{USED_UP}: "
"""How a detail begins when a person is asked what to do about a usage limit."""

_ACTIVE: Final = AgentState.ACTIVE

HOOK_STATES: Final[Mapping[str, tuple[AgentState, str]]] = {
    # Claude Code and Codex
    "SessionStart": (AgentState.IDLE, ""),
    "UserPromptSubmit": (_ACTIVE, THINKING),
    "PreToolUse": (_ACTIVE, TOOL_USE),
    "PostToolUse": (_ACTIVE, THINKING),
    "PostToolUseFailure": (_ACTIVE, THINKING),
    "PermissionRequest": (AgentState.BLOCKED, REVIEW),
    "PermissionDenied": (_ACTIVE, THINKING),
    "PreCompact": (_ACTIVE, COMPACTING),
    "PostCompact": (_ACTIVE, THINKING),
    "Stop": (AgentState.IDLE, ""),
    "StopFailure": (AgentState.IDLE, ""),
    "Interrupt": (AgentState.IDLE, ""),
    "SessionEnd": (AgentState.EXITED, SESSION_END),
    # Gemini CLI
    "BeforeAgent": (_ACTIVE, THINKING),
    "BeforeTool": (_ACTIVE, TOOL_USE),
    "AfterTool": (_ACTIVE, THINKING),
    "AfterAgent": (AgentState.IDLE, ""),
    "PreCompress": (_ACTIVE, COMPACTING),
}
"""State and reason after each event. Other events do not change the state."""

DECISIONS: Final[Mapping[str, tuple[AgentState, str]]] = {
    "ask_user": (AgentState.BLOCKED, PERMISSION),
    "allow": (_ACTIVE, TOOL_USE),
    "deny": (_ACTIVE, THINKING),
}
"""State after a decision about a permission; any other decision means that the agent is thinking."""

NOTIFICATIONS: Final[Mapping[str, tuple[AgentState, str]]] = {
    "permission_prompt": (AgentState.BLOCKED, PERMISSION),
    "ToolPermission": (AgentState.BLOCKED, PERMISSION),
    "elicitation_dialog": (AgentState.BLOCKED, QUESTION),
    "idle_prompt": (AgentState.IDLE, ""),
}


def hook_state(event: str, detail: str = "") -> tuple[AgentState, str] | None:
    """Return state and reason after an event; None if it does not change the state.

    `detail` is the decision of a `permission_decision`, which may also follow a colon in the event, or the
    kind of a `Notification`.
    """
    name, _, decision = event.partition(":")
    if name == "permission_decision":
        return DECISIONS.get(decision or detail, (_ACTIVE, THINKING))
    if name == "Notification":
        return NOTIFICATIONS.get(detail)
    return HOOK_STATES.get(name)


# --------------------
# Describe permission requests, and write the decision as a hook's reply. Pure.
#
# Only Claude Code is known to accept a decision from a hook instead of its dialog. Codex and OpenCode receive
# decisions through their servers, without a hook; every other harness asks its own user at its own terminal.

_EVENT: Final = "PermissionRequest"
_WHAT: Final = ("command", "file_path", "filepath", "notebook_path", "url", "query", "pattern", "prompt")
ANSWERABLE: Final = frozenset({"claude"})
"""The harnesses that accept a decision from a hook."""


def permission_text(tool: str, given: Mapping[str, object]) -> str:
    """Describe a request: the tool and its target, or its whole input if the target is unknown."""
    inner = given.get("input")
    what = text_in(given, *_WHAT) or (text_in(inner, *_WHAT) if isinstance(inner, dict) else "")
    what = what or (json.dumps(given, ensure_ascii=False, default=str) if given else "")
    return f"{tool}: {what}" if what else tool


def permission_answer(harness: str, event: str, *, is_allowed: bool, message: str) -> dict[str, object]:
    """Return a hook's reply for a decision; empty if the hook cannot carry one."""
    if harness not in ANSWERABLE or event != _EVENT:
        return {}
    decision: dict[str, object] = {"behavior": "allow" if is_allowed else "deny"}
    if message and not is_allowed:
        decision["message"] = message
    return {"hookSpecificOutput": {"hookEventName": _EVENT, "decision": decision}}


# --------------------
# Find the session that a harness names in the `_meta` of an MCP call. Pure.
#
# It matters if one process runs several sessions that share one server. Only keys in the table are read.

META_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "codex": (
        ("threadId",),
        ("x-codex-turn-metadata", "thread_id"),
        ("x-codex-turn-metadata", "session_id"),
    ),
    "": (("palaver/session",),),
}
"""The paths of the session key for each harness, most reliable first; last, the path for any other program.

A string on the path may contain JSON.
"""

SESSION_ARGUMENT: Final = "palaver_session"
_CALL: Final = "claudecode/toolUseId"
_LIMIT_KEY: Final = 256


def session_in_meta(meta: Mapping[str, object] | None) -> str:
    """Return the session that a call names; empty if it names none."""
    if not meta:
        return ""
    for paths in META_KEYS.values():
        for path in paths:
            if found := _at(meta, path):
                return found
    return ""


def call_in_meta(meta: Mapping[str, object] | None) -> str:
    """Return Claude Code's id of a tool call; empty if there is no id. Its hooks show whose call it is."""
    return _at(meta, (_CALL,)) if meta else ""


def session_in_arguments(arguments: Mapping[str, object] | None) -> tuple[str, dict[str, object] | None]:
    """Return the session named in the arguments of a call, and the arguments without it.

    A plugin of OpenCode can change only the arguments of a call.
    """
    if arguments is None or SESSION_ARGUMENT not in arguments:
        return "", None if arguments is None else dict(arguments)
    rest = {name: value for name, value in arguments.items() if name != SESSION_ARGUMENT}
    return _at(arguments, (SESSION_ARGUMENT,)), rest


def _at(meta: Mapping[str, object], path: tuple[str, ...]) -> str:
    value: object = meta
    for word in path:
        value = _opened(value).get(word)
    return value if isinstance(value, str) and 0 < len(value) <= _LIMIT_KEY else ""


def _opened(value: object) -> Mapping[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        # The caller controls this text. Deeply nested JSON raises RecursionError, and must not end the
        # server.
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
