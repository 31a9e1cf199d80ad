"""The content of a hook in one form for all harnesses, and functions to read it. Pure."""

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from palaver.protocol.events import AgentState
from palaver.protocol.text import exact

LIMIT_DETAIL: Final = 200
"""Characters of a detail, which describes what an agent is doing or is asked."""
LIMIT_COMMAND: Final = 1000

# Characters that must not be in an event's text, and line ends: a detail is one line.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class HookStep(enum.Enum):
    """The position of a hook in a conversation, seen from the model.

    Between two requests to the model come the results of all tools that it called, one by one, and then, if
    the harness has such a hook, all of them together.
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
    """A session starts here and takes no text: its instructions are added to its first prompt."""
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
    """It may be a hook of such a sub-agent: nothing in it shows whose hook it is."""
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
    name, _, behind = event.partition(":")
    if name == "permission_decision":
        return DECISIONS.get(behind or detail, (_ACTIVE, THINKING))
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
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
