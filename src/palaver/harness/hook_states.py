"""The agent state after each hook. Pure: tables and their lookup."""

from collections.abc import Mapping
from typing import Final

from palaver.model.delivery import AgentState

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
