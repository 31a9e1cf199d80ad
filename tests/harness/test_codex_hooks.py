"""Parsing of Codex hooks."""

import pytest

from palaver.harness.codex.hooks import EVENTS
from palaver.harness.hooks import HookStep
from palaver.harness.registry import hook_answer_object, read_hook
from palaver.protocol.events import AgentState


def test_shell_call_is_read() -> None:
    news = read_hook(
        "codex",
        "PreToolUse",
        {"session_id": "t1", "turn_id": "x", "tool_name": "Bash", "tool_input": {"command": "ls"}},
    )

    assert news is not None
    assert (news.step, news.session, news.command) == (HookStep.CALL, "t1", "ls")
    assert (news.state, news.detail) == (AgentState.ACTIVE, "Bash: ls")


def test_permission_request_is_read() -> None:
    news = read_hook("codex", "PermissionRequest", {"tool_name": "Bash", "tool_input": {"command": "rm x"}})

    assert news is not None
    assert (news.state, news.detail) == (AgentState.BLOCKED, "permission: Bash: rm x")


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"])
def test_context_is_returned_in_the_form_of_codex(event: str) -> None:
    reply = hook_answer_object("codex", event, context="mail")

    assert reply == {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "mail"}}


def test_turn_end_is_blocked_with_a_reason() -> None:
    assert hook_answer_object("codex", "Stop", block_reason="mail") == {
        "decision": "block",
        "reason": "mail",
    }


@pytest.mark.parametrize("event", ["PermissionRequest", "SessionEnd", "PreCompact", "PostToolBatch"])
def test_hook_that_takes_no_context_gets_none(event: str) -> None:
    assert hook_answer_object("codex", event, context="mail", block_reason="") == {}


def test_every_installed_event_is_understood() -> None:
    assert all(read_hook("codex", event, {}) is not None for event in EVENTS)
