"""Read the hooks of Gemini CLI 0.61 and write replies to them. Pure.

Gemini CLI calls no hook between the results of several tools and the request that contains them. So a text
that was added to a result is known to have been read only when the turn ends. The hooks of its sub-agents
look like those of the session. The only difference is that they are called while the sub-agent tool runs.

Two prompts that are entered at nearly the same time run at the same time, and Gemini CLI calls `AfterAgent`
only for the second. If a turn fails or is stopped, Gemini CLI removes its last prompt from the conversation.
"""

from collections.abc import Mapping
from typing import Final

from palaver.harness.hooks import LIMIT_COMMAND, HookNews, HookStep, as_map, hook_state, one_line, text_in
from palaver.protocol.events import AgentState

STEPS: Final[Mapping[str, HookStep]] = {
    "SessionStart": HookStep.START,
    "BeforeAgent": HookStep.PROMPT,
    "BeforeTool": HookStep.CALL,
    "AfterTool": HookStep.RESULT,
    "AfterAgent": HookStep.TURN_END,
    "SessionEnd": HookStep.END,
}

CONTEXT_EVENTS: Final = frozenset({"SessionStart", "BeforeAgent", "AfterTool"})
"""Hooks that can add text to the next request to the model."""

EVENTS: Final = (
    "SessionStart",
    "BeforeAgent",
    "BeforeTool",
    "AfterTool",
    "AfterAgent",
    "Notification",
    "SessionEnd",
)
"""The hooks that are set up.

`PreCompress` is not one of them: it is called before every turn, compressed or not.
"""

SUBAGENT_TOOL: Final = "invoke_agent"
"""The tool that runs a sub-agent."""
_DELEGATES: Final = {"BeforeTool": 1, "AfterTool": -1}
_NO_ANSWER: Final = "[no response text]"
"""The reply of a turn in which the model wrote nothing: most often the request failed."""
_OWN_PROMPT: Final = "[System: You successfully executed a tool but returned an empty response."
"""Beginning of the prompt that Gemini CLI writes itself, also while it asks a person about a loop."""
_EDITS: Final = frozenset({"replace", "write_file", "edit"})
_WHAT: Final = (
    "command",
    "file_path",
    "path",
    "dir_path",
    "pattern",
    "url",
    "query",
    "prompt",
    "description",
)
_LIMIT_PROMPT: Final = 64 * 1024


def read_gemini_hook(event: str, data: Mapping[str, object]) -> HookNews:
    """Read the input of a hook. A field that is missing or has another type counts as empty."""
    tool, given = text_in(data, "tool_name"), as_map(data.get("tool_input"))
    state, detail = _state(event, data, tool, given)
    is_call = event == "BeforeTool"
    # A failed turn does not prove that anything was read, and it is not kept going.
    is_failed = event == "AfterAgent" and text_in(data, "prompt_response") == _NO_ANSWER
    # A turn that such a prompt begins often fails at once, so no message may go with it.
    is_own = event == "BeforeAgent" and text_in(data, "prompt").startswith(_OWN_PROMPT)
    return HookNews(
        event=event,
        step=HookStep.ASIDE if is_failed or is_own else STEPS.get(event, HookStep.ASIDE),
        is_failed=is_failed,
        can_overlap=event == "BeforeAgent",
        session=one_line(text_in(data, "session_id")),
        source=text_in(data, "source"),
        is_deaf=event == "SessionStart" and text_in(data, "source") == "clear",
        state=state,
        detail=detail,
        tool=one_line(tool) if is_call else "",
        command=one_line(text_in(given, "command"), LIMIT_COMMAND) if is_call else "",
        file=one_line(text_in(given, "file_path"), LIMIT_COMMAND) if is_call and tool in _EDITS else "",
        delegates=_DELEGATES.get(event, 0) if tool == SUBAGENT_TOOL else 0,
        is_unmarked=True,
        transcript=text_in(data, "transcript_path"),
        cwd=text_in(data, "cwd"),
        prompt=text_in(data, "prompt")[:_LIMIT_PROMPT] if event == "BeforeAgent" else "",
        permission=_permission(event, data),
        stop_active=data.get("stop_hook_active") is True,
    )


def gemini_answer(event: str, context: str, block_reason: str) -> Mapping[str, object] | None:
    """Return the reply to a hook, or None. A context for a hook that takes none is dropped."""
    if block_reason and event == "AfterAgent":
        return {"decision": "block", "reason": block_reason}
    if context and event in CONTEXT_EVENTS:
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}
    return None


def _state(
    event: str, data: Mapping[str, object], tool: str, given: Mapping[str, object]
) -> tuple[AgentState | None, str]:
    found = hook_state(event, text_in(data, "notification_type"))
    # The end is seen better elsewhere, and `PreCompress` is called before every turn.
    if found is None or event in (
        "SessionEnd",
        "PreCompress",
    ):
        return None, ""
    state, reason = found
    what = text_in(given, *_WHAT)
    if event == "BeforeTool" and tool:
        return state, one_line(f"{tool}: {what}" if what else tool)
    if event == "Notification" and state is AgentState.BLOCKED:
        return state, one_line(f"permission: {_asked(data)}")
    return state, reason


def _asked(data: Mapping[str, object]) -> str:
    details = as_map(data.get("details"))
    return text_in(details, "command", "filePath", "file_path", "title") or text_in(data, "message")


def _permission(event: str, data: Mapping[str, object]) -> Mapping[str, object] | None:
    if event != "Notification" or text_in(data, "notification_type") != "ToolPermission":
        return None
    return {
        "tool": text_in(as_map(data.get("details")), "toolName", "type"),
        "input": as_map(data.get("details")),
    }
