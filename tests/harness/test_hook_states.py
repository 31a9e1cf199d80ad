"""The agent state that each hook implies."""

import pytest

from palaver.harness.hooks import HOOK_STATES, hook_state
from palaver.protocol.events import AgentState

ACTIVE, BLOCKED, IDLE = AgentState.ACTIVE, AgentState.BLOCKED, AgentState.IDLE


@pytest.mark.parametrize(
    ("event", "state", "reason"),
    [
        ("SessionStart", IDLE, ""),
        ("UserPromptSubmit", ACTIVE, "thinking"),
        ("PreToolUse", ACTIVE, "tool_use"),
        ("PostToolUse", ACTIVE, "thinking"),
        ("PostToolUseFailure", ACTIVE, "thinking"),
        ("PermissionRequest", BLOCKED, "permission_review"),
        ("permission_decision:ask_user", BLOCKED, "permission"),
        ("permission_decision:allow", ACTIVE, "tool_use"),
        ("permission_decision:deny", ACTIVE, "thinking"),
        ("permission_decision:ask", ACTIVE, "thinking"),
        ("permission_decision:anything", ACTIVE, "thinking"),
        ("PreCompact", ACTIVE, "compacting"),
        ("Stop", IDLE, ""),
        ("Interrupt", IDLE, ""),
        ("SessionEnd", AgentState.EXITED, "session_end"),
        ("BeforeAgent", ACTIVE, "thinking"),
        ("BeforeTool", ACTIVE, "tool_use"),
        ("AfterTool", ACTIVE, "thinking"),
        ("AfterAgent", IDLE, ""),
        ("PreCompress", ACTIVE, "compacting"),
    ],
)
def test_event_sets_the_state(event: str, state: AgentState, reason: str) -> None:
    assert hook_state(event) == (state, reason)


def test_decision_may_be_separate_from_the_event() -> None:
    assert hook_state("permission_decision", "ask_user") == (BLOCKED, "permission")


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("permission_prompt", (BLOCKED, "permission")),
        ("ToolPermission", (BLOCKED, "permission")),
        ("idle_prompt", (IDLE, "")),
        ("auth_success", None),
        ("", None),
    ],
)
def test_notification_counts_by_its_type(kind: str, found: tuple[AgentState, str] | None) -> None:
    assert hook_state("Notification", kind) == found


@pytest.mark.parametrize("event", ["", "FileChanged", "stop", "Stop2"])
def test_unknown_event_sets_no_state(event: str) -> None:
    assert event not in HOOK_STATES
    assert hook_state(event) is None
