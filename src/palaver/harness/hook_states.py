"""What the hooks of the harnesses say about an agent's state. Pure: a table, and how it is read."""

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
"""How it begins when an allowance is used up: nobody is asked anything then."""
USED_UP_ASKED: Final = f"{USED_UP}: "
"""How it begins where a person is asked what to do about that."""

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
"""State and reason after each event. What is not here says nothing about the state."""

DECISIONS: Final[Mapping[str, tuple[AgentState, str]]] = {
    "ask_user": (AgentState.BLOCKED, PERMISSION),
    "allow": (_ACTIVE, TOOL_USE),
    "deny": (_ACTIVE, THINKING),
}
"""After a decision about a permission; any other decision means that the agent thinks on."""

NOTIFICATIONS: Final[Mapping[str, tuple[AgentState, str]]] = {
    "permission_prompt": (AgentState.BLOCKED, PERMISSION),
    "ToolPermission": (AgentState.BLOCKED, PERMISSION),
    "elicitation_dialog": (AgentState.BLOCKED, QUESTION),
    "idle_prompt": (AgentState.IDLE, ""),
}


def hook_state(event: str, detail: str = "") -> tuple[AgentState, str] | None:
    """Give state and reason after an event, or None when it says nothing.

    `detail` is the decision for `permission_decision`, which may also stand behind a colon in the event
    itself, and the kind of a `Notification`.
    """
    name, _, behind = event.partition(":")
    if name == "permission_decision":
        return DECISIONS.get(behind or detail, (_ACTIVE, THINKING))
    if name == "Notification":
        return NOTIFICATIONS.get(detail)
    return HOOK_STATES.get(name)
