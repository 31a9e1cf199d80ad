"""Read the hooks of Claude Code 2.1 and write replies to them. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from palaver.harness.base import is_usage_limit
from palaver.harness.hooks import (
    COMPACTING,
    LIMIT_COMMAND,
    SESSION_END,
    THINKING,
    USED_UP,
    HookNews,
    HookStep,
    hook_state,
    one_line,
    text_in,
)
from palaver.protocol.events import AgentState

STEPS: Final[Mapping[str, HookStep]] = {
    "SessionStart": HookStep.START,
    "UserPromptSubmit": HookStep.PROMPT,
    "PreToolUse": HookStep.CALL,
    "PostToolUse": HookStep.RESULT,
    "PostToolUseFailure": HookStep.RESULT,
    "PostToolBatch": HookStep.BATCH,
    "Stop": HookStep.TURN_END,
    "SessionEnd": HookStep.END,
    "SubagentStart": HookStep.START,
    "SubagentStop": HookStep.TURN_END,
}

CONTEXT_EVENTS: Final = frozenset(
    {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolBatch", "SubagentStart"}
)
"""Hooks that can add text to the next request to the model."""

EVENTS: Final = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "PermissionRequest",
    "PermissionDenied",
    "Notification",
    "PreCompact",
    "PostCompact",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "SubagentStart",
    "SubagentStop",
)
"""The hooks that are set up."""

_SUBAGENT_END: Final = "SubagentStop"
_EDITS: Final = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
_WHAT: Final = ("command", "file_path", "notebook_path", "pattern", "url", "query", "description", "prompt")
_LIMIT_PROMPT: Final = 64 * 1024
_LATE: Final = frozenset({"permission_prompt"})
"""Kinds of notification that arrive seconds after the hook with the same news, maybe too late."""
_RESETS: Final = re.compile(
    r"\bresets?\s+(?:at\s+)?((?:[A-Z][a-z]{2,8}\s+\d{1,2},?\s+(?:at\s+)?)?\d{1,2}(?::\d{2})?"
    r"\s?(?:[ap]m\b)?(?:\s?\([\w/+-]+\))?)",
    re.IGNORECASE,
)


def read_claude_hook(event: str, data: Mapping[str, object]) -> HookNews:
    """Read the input of a hook. A field that is missing or has another type counts as empty."""
    tool, arguments = text_in(data, "tool_name"), data.get("tool_input")
    given: Mapping[str, object] = arguments if isinstance(arguments, Mapping) else {}
    state, detail = _state(event, data, tool, given)
    limit = _usage_limit(event, data)
    if limit is not None:
        # The hook alone would mean that the agent is idle, and messages would be delivered to an agent that
        # cannot work.
        state, detail = AgentState.BLOCKED, f"{USED_UP}, resets {limit}" if limit else USED_UP
    return HookNews(
        event=event,
        step=STEPS.get(event, HookStep.ASIDE),
        session=one_line(text_in(data, "session_id")),
        source=text_in(data, "source"),
        state=state,
        detail=detail,
        tool=one_line(tool) if event == "PreToolUse" else "",
        command=one_line(text_in(given, "command"), LIMIT_COMMAND) if event == "PreToolUse" else "",
        file=_edited(event, tool, given),
        transcript=_transcript(data),
        cwd=text_in(data, "cwd"),
        agent_id=one_line(text_in(data, "agent_id")),
        agent_type=text_in(data, "agent_type"),
        call=one_line(text_in(data, "tool_use_id")),
        is_over=event == _SUBAGENT_END,
        is_alone=event == "Stop" and _is_alone(data.get("background_tasks")),
        prompt=text_in(data, "prompt")[:_LIMIT_PROMPT] if event == "UserPromptSubmit" else "",
        permission={"tool": tool, "input": given} if event == "PermissionRequest" else None,
        result_of={"tool": tool, "input": given} if STEPS.get(event) is HookStep.RESULT else None,
        stop_active=data.get("stop_hook_active") is True,
        is_usage_limit=limit is not None,
        resets=limit or "",
    )


def claude_answer(event: str, context: str, block_reason: str) -> Mapping[str, object] | None:
    """Return the reply to a hook, or None. A context for a hook that takes none is dropped."""
    if block_reason and event in ("Stop", _SUBAGENT_END):
        return {"decision": "block", "reason": block_reason}
    if context and event in CONTEXT_EVENTS:
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}
    return None


def _state(
    event: str, data: Mapping[str, object], tool: str, given: Mapping[str, object]
) -> tuple[AgentState | None, str]:
    kind = text_in(data, "notification_type")
    if event == "Notification" and kind in _LATE:
        return None, ""
    if event == "PostToolBatch":
        return AgentState.ACTIVE, THINKING
    if event == "SessionStart" and text_in(data, "source") == "compact":
        # The turn goes on or the agent is idle: the next hook shows which.
        return None, ""
    # A person ran `/compact`: no turn follows. An automatic compaction is a part of a turn that goes on.
    if event == "PostCompact" and text_in(data, "trigger") == "manual":
        return AgentState.IDLE, ""
    found = hook_state(event, kind)
    # No state: the process may continue with another session (`/clear`), or report its end itself.
    if found is None or event == "SessionEnd":
        return None, SESSION_END if event == "SessionEnd" else ""
    state, reason = found
    what = one_line(f"{tool}: {text_in(given, *_WHAT)}" if text_in(given, *_WHAT) else tool)
    if event == "PreToolUse" and tool:
        return state, what
    if event == "PermissionRequest":
        return state, f"permission: {what}" if what else "permission"
    if event == "PreCompact":
        return state, COMPACTING
    return state, reason


def _transcript(data: Mapping[str, object]) -> str:
    """Return the transcript file. A sub-agent's file is in a folder next to that of its session."""
    whole, agent = text_in(data, "transcript_path"), text_in(data, "agent_id")
    if not agent:
        return whole
    expected = f"{whole.removesuffix('.jsonl')}/subagents/agent-{agent}.jsonl" if whole else ""
    return text_in(data, "agent_transcript_path") or expected


def _is_alone(tasks: object) -> bool:
    """Whether a session that ends its turn lists its background tasks and no sub-agent is among them."""
    return isinstance(tasks, list) and not any(
        isinstance(task, Mapping) and task.get("type") == "subagent" for task in tasks
    )


def _edited(event: str, tool: str, given: Mapping[str, object]) -> str:
    if event != "PreToolUse" or tool not in _EDITS:
        return ""
    return one_line(text_in(given, "file_path", "notebook_path"), LIMIT_COMMAND)


def _usage_limit(event: str, data: Mapping[str, object]) -> str | None:
    """Return when a usage limit resets, empty if the time is not given; None if no limit is reached."""
    error = text_in(data, "error") if event == "StopFailure" else ""
    text = f"{text_in(data, 'error_details')} {text_in(data, 'last_assistant_message')}"
    found = _RESETS.search(text)
    # A `rate_limit` without these words is only a temporary slowdown.
    if error == "billing_error" or (error == "rate_limit" and (found or is_usage_limit(text))):
        return one_line(found[1]) if found else ""
    return None
