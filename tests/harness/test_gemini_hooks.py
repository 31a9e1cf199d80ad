"""Parsing of Gemini CLI hooks, and the replies to them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.gemini.hooks import CONTEXT_EVENTS, EVENTS, read_gemini_hook
from palaver.harness.hooks import HookStep
from palaver.harness.registry import hook_answer_object, read_hook
from palaver.protocol.events import AgentState

BASE = {"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/x"}


def test_tool_call_has_its_command_and_changed_file() -> None:
    shell = read_gemini_hook(
        "BeforeTool", {**BASE, "tool_name": "run_shell_command", "tool_input": {"command": "make\ntest"}}
    )
    edit = read_gemini_hook("BeforeTool", {"tool_name": "write_file", "tool_input": {"file_path": "/x/y"}})
    look = read_gemini_hook("BeforeTool", {"tool_name": "read_file", "tool_input": {"file_path": "/x/y"}})
    after = read_gemini_hook("AfterTool", {"tool_name": "write_file", "tool_input": {"file_path": "/x/y"}})

    assert (shell.session, shell.step, shell.state) == ("s1", HookStep.CALL, AgentState.ACTIVE)
    assert (shell.tool, shell.command) == ("run_shell_command", "make test")
    assert shell.detail == "run_shell_command: make test"
    assert (edit.file, look.file, after.file) == ("/x/y", "", "")
    assert (after.step, after.detail) == (HookStep.RESULT, "thinking")


def test_permission_request_names_the_command() -> None:
    details = {"type": "exec", "command": "touch x", "rootCommand": "touch"}

    news = read_gemini_hook(
        "Notification", {"notification_type": "ToolPermission", "message": "allow?", "details": details}
    )

    assert (news.state, news.detail) == (AgentState.BLOCKED, "permission: touch x")
    assert news.permission == {"tool": "exec", "input": details}
    assert read_gemini_hook("Notification", {"notification_type": "Other"}).state is None


@pytest.mark.parametrize(
    ("event", "step"),
    [
        ("SessionStart", HookStep.START),
        ("BeforeAgent", HookStep.PROMPT),
        ("AfterAgent", HookStep.TURN_END),
        ("SessionEnd", HookStep.END),
        ("BeforeModel", HookStep.ASIDE),
    ],
)
def test_each_hook_is_a_step_of_a_conversation(event: str, step: HookStep) -> None:
    assert read_gemini_hook(event, BASE).step is step


def test_prompt_and_extended_turn_are_read() -> None:
    assert read_gemini_hook("BeforeAgent", {"prompt": "do it"}).prompt == "do it"
    assert read_gemini_hook("AfterAgent", {"stop_hook_active": True}).stop_active
    assert not read_gemini_hook("AfterAgent", {}).stop_active


@pytest.mark.parametrize("event", ["PreCompress", "SessionEnd"])
def test_hook_without_evidence_sets_no_state(event: str) -> None:
    assert read_gemini_hook(event, BASE).state is None


@pytest.mark.parametrize("event", EVENTS)
def test_context_is_returned_only_to_hooks_that_accept_it(event: str) -> None:
    reply = hook_answer_object("gemini", event, context="mail")

    if event in CONTEXT_EVENTS:
        assert reply == {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "mail"}}
    else:
        assert reply == {}


def test_turn_end_is_blocked_with_a_reason() -> None:
    reply = hook_answer_object("gemini", "AfterAgent", block_reason="mail")

    assert reply == {"decision": "block", "reason": "mail"}
    assert hook_answer_object("gemini", "BeforeTool", block_reason="mail") == {}


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
NAMES = st.sampled_from(
    ["session_id", "tool_name", "tool_input", "details", "notification_type", "prompt", "source"]
)


@given(st.sampled_from(EVENTS), st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=2)))
def test_any_hook_input_can_be_read(event: str, data: dict[str, object]) -> None:
    news = read_hook("gemini", event, json.dumps(data).encode())

    assert news is not None
    assert "\n" not in news.detail


def test_delegation_tool_marks_the_start_and_end_of_a_sub_agent() -> None:
    call = {"tool_name": "invoke_agent", "tool_input": {"agent_name": "codebase_investigator"}}

    assert read_gemini_hook("BeforeTool", call).delegates == 1
    assert read_gemini_hook("AfterTool", call).delegates == -1
    assert read_gemini_hook("Notification", call).delegates == 0
    assert read_gemini_hook("BeforeTool", {"tool_name": "read_file"}).delegates == 0
    assert read_gemini_hook("BeforeTool", {"tool_name": "read_file"}).is_unmarked


def test_turn_without_a_response_proves_nothing_but_ends() -> None:
    failed = read_gemini_hook("AfterAgent", {"prompt_response": "[no response text]"})
    answered = read_gemini_hook("AfterAgent", {"prompt_response": "well"})

    assert (failed.step, failed.state, failed.is_failed) == (HookStep.ASIDE, AgentState.IDLE, True)
    assert (answered.step, answered.state, answered.is_failed) == (HookStep.TURN_END, AgentState.IDLE, False)


def test_prompt_of_the_program_itself_carries_nothing() -> None:
    text = "[System: You successfully executed a tool but returned an empty response. Please analyze it.]"
    own = read_gemini_hook("BeforeAgent", {"prompt": text})
    other = read_gemini_hook("BeforeAgent", {"prompt": f"what does {text} mean?"})

    assert (own.step, own.state) == (HookStep.ASIDE, AgentState.ACTIVE)
    assert other.step is HookStep.PROMPT


def test_only_a_cleared_session_takes_no_text_at_its_start() -> None:
    assert read_gemini_hook("SessionStart", {"source": "clear"}).is_deaf
    assert not read_gemini_hook("SessionStart", {"source": "startup"}).is_deaf
    assert not read_gemini_hook("BeforeAgent", {"source": "clear"}).is_deaf
