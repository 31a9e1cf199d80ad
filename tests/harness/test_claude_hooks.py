"""Parsing of Claude Code hooks; the inputs are from version 2.1.325."""

from typing import Any

import pytest

from palaver.harness.claude.hooks import CONTEXT_EVENTS, EVENTS, STEPS, claude_answer, read_claude_hook
from palaver.harness.hooks import HookNews, HookStep
from palaver.protocol.events import AgentState

COMMON = {"session_id": "1f3d72b3", "transcript_path": "/t.jsonl", "cwd": "/work"}
BASH = {"tool_name": "Bash", "tool_input": {"command": "echo a\nb", "description": "x"}}
EDIT = {"tool_name": "Edit", "tool_input": {"file_path": "/a/b.py", "old_string": "x"}}


def read(event: str, **fields: Any) -> HookNews:
    return read_claude_hook(event, {**COMMON, "hook_event_name": event, **fields})


def test_every_hook_has_session_transcript_and_directory() -> None:
    news = read("SessionStart", source="startup")

    assert (news.session, news.transcript, news.cwd) == ("1f3d72b3", "/t.jsonl", "/work")
    assert (news.step, news.source, news.state) == (HookStep.START, "startup", AgentState.IDLE)


def test_tool_call_has_tool_and_command() -> None:
    news = read("PreToolUse", **BASH)

    assert (news.state, news.detail) == (AgentState.ACTIVE, "Bash: echo a b")
    assert (news.tool, news.command, news.file) == ("Bash", "echo a b", "")
    assert news.step is HookStep.CALL


def test_edit_names_its_file_and_a_read_does_not() -> None:
    edit = read("PreToolUse", **EDIT)
    look = read("PreToolUse", tool_name="Read", tool_input={"file_path": "/a/b.py"})

    assert (edit.file, edit.detail) == ("/a/b.py", "Edit: /a/b.py")
    assert (look.file, look.detail) == ("", "Read: /a/b.py")


def test_finished_edit_names_no_file() -> None:
    assert read("PostToolUse", **EDIT).file == ""


def test_permission_request_names_the_tool_and_command() -> None:
    news = read("PermissionRequest", **BASH)

    assert (news.state, news.detail) == (AgentState.BLOCKED, "permission: Bash: echo a b")
    assert news.permission == {"tool": "Bash", "input": BASH["tool_input"]}
    assert read("PermissionRequest").detail == "permission"


@pytest.mark.parametrize(
    ("event", "fields", "state", "detail"),
    [
        ("UserPromptSubmit", {"prompt": "x"}, AgentState.ACTIVE, "thinking"),
        ("PostToolBatch", {}, AgentState.ACTIVE, "thinking"),
        ("PreToolUse", {}, AgentState.ACTIVE, "tool_use"),
        ("PreToolUse", {"tool_name": "Plan"}, AgentState.ACTIVE, "Plan"),
        ("PreCompact", {"trigger": "auto"}, AgentState.ACTIVE, "compacting"),
        ("SessionStart", {"source": "compact"}, None, ""),
        ("PostCompact", {"trigger": "auto"}, AgentState.ACTIVE, "thinking"),
        ("PostCompact", {"trigger": "manual"}, AgentState.IDLE, ""),
        ("Stop", {}, AgentState.IDLE, ""),
        ("StopFailure", {"error": "server_error"}, AgentState.IDLE, ""),
        ("StopFailure", {"error": "rate_limit"}, AgentState.IDLE, ""),
        ("StopFailure", {"error": "billing_error"}, AgentState.BLOCKED, "usage limit"),
        ("SessionEnd", {"reason": "other"}, None, "session_end"),
        ("Notification", {"notification_type": "permission_prompt"}, None, ""),
        ("Notification", {"notification_type": "idle_prompt"}, AgentState.IDLE, ""),
        ("Notification", {"notification_type": "auth_success"}, None, ""),
        ("ConfigChange", {}, None, ""),
    ],
)
def test_hook_sets_the_state(
    event: str, fields: dict[str, str], state: AgentState | None, detail: str
) -> None:
    news = read(event, **fields)

    assert (news.state, news.detail) == (state, detail)


@pytest.mark.parametrize(
    ("error", "resets"),
    [
        ("You've hit your session limit · resets 3pm (UTC)", "3pm (UTC)"),
        ("limit reached, resets at 15:00", "15:00"),
        ("weekly limit · resets Nov 20, 9:30am (Europe/Paris)", "Nov 20, 9:30am (Europe/Paris)"),
        ("You've hit your usage limit", ""),
    ],
)
def test_usage_limit_blocks_and_has_its_reset_time(error: str, resets: str) -> None:
    news = read("StopFailure", error="rate_limit", last_assistant_message=error)

    assert news.state is AgentState.BLOCKED
    assert (news.is_usage_limit, news.resets) == (True, resets)
    assert news.detail == (f"usage limit, resets {resets}" if resets else "usage limit")


def test_prompt_and_sub_agent_fields_are_read() -> None:
    news = read("UserPromptSubmit", prompt="do it", agent_id="a1", agent_type="reviewer")

    assert (news.prompt, news.agent_id, news.agent_type) == ("do it", "a1", "reviewer")
    assert news.step is not HookStep.TURN_END
    assert news.step in (HookStep.PROMPT, HookStep.BATCH)


def test_stop_delayed_by_a_hook_is_marked() -> None:
    assert read("Stop", stop_hook_active=True).stop_active
    assert not read("Stop", stop_hook_active="true").stop_active
    assert read("Stop").step is HookStep.TURN_END


def test_context_is_sent_only_with_events_that_accept_it() -> None:
    taken = {event for event in (*EVENTS, "PostModelSwitch") if claude_answer(event, "hello", "")}

    assert taken == CONTEXT_EVENTS
    assert claude_answer("PostToolUse", "hello", "") == {
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "hello"}
    }


def test_only_the_end_of_a_turn_can_be_blocked() -> None:
    assert claude_answer("Stop", "", "go on") == {"decision": "block", "reason": "go on"}
    assert claude_answer("PostToolUse", "", "go on") is None
    assert claude_answer("Stop", "hello", "") is None


def test_every_step_is_an_installed_hook() -> None:
    assert set(STEPS) <= set(EVENTS)


def test_sub_agent_start_takes_context_and_its_stop_can_be_blocked() -> None:
    start = read("SubagentStart", agent_id="a1", agent_type="reviewer")
    end = read("SubagentStop", agent_id="a1", agent_type="reviewer", stop_hook_active=True)

    assert (start.step, start.is_over, start.state) == (HookStep.START, False, None)
    assert (end.step, end.is_over, end.state, end.stop_active) == (HookStep.TURN_END, True, None, True)
    assert claude_answer("SubagentStart", "hello", "") == {
        "hookSpecificOutput": {"hookEventName": "SubagentStart", "additionalContext": "hello"}
    }
    assert claude_answer("SubagentStop", "", "go on") == {"decision": "block", "reason": "go on"}


@pytest.mark.parametrize(
    ("event", "tasks", "is_alone"),
    [
        ("Stop", [], True),
        ("Stop", [{"id": "b", "type": "shell"}, 7], True),
        ("Stop", [{"id": "a1", "type": "subagent", "status": "running"}], False),
        ("Stop", None, False),
        ("Stop", "none", False),
        ("SubagentStop", [], False),
    ],
)
def test_turn_end_reports_whether_sub_agents_run(event: str, tasks: object, is_alone: bool) -> None:
    assert read(event, background_tasks=tasks).is_alone is is_alone


def test_sub_agent_has_its_own_transcript_next_to_its_session() -> None:
    whole = {"transcript_path": "/p/s1.jsonl"}

    assert read("PreToolUse", **whole).transcript == "/p/s1.jsonl"
    assert read("PreToolUse", **whole, agent_id="a1").transcript == "/p/s1/subagents/agent-a1.jsonl"
    assert read("SubagentStop", **whole, agent_id="a1", agent_transcript_path="/x").transcript == "/x"
    assert read("PreToolUse", transcript_path="", agent_id="a1").transcript == ""


def test_tool_call_has_its_id() -> None:
    assert read("PreToolUse", tool_name="Bash", tool_use_id="toolu_1").call == "toolu_1"
