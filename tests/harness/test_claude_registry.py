"""The session file of a running Claude Code, and the hook states that it corrects."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.claude.output import (
    LIMIT_COMPACTING_MS,
    Registered,
    Rest,
    can_end_unreported,
    corrected,
    read_registered,
    registry_path,
)
from palaver.protocol.events import AgentState


def written(**fields: object) -> bytes:
    """Return the file as version 2.1.325 writes it."""
    return json.dumps(
        {"pid": 7, "sessionId": "s1", "kind": "interactive", "entrypoint": "cli", **fields}
    ).encode()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"status": "idle"}, Registered(rest=Rest.RESTING)),
        ({"status": "shell"}, Registered(rest=Rest.RESTING)),
        ({"status": "busy"}, Registered(rest=Rest.BUSY)),
        (
            {"status": "waiting", "waitingFor": "permission prompt"},
            Registered(rest=Rest.WAITING, waits_for="permission prompt"),
        ),
        ({"status": "waiting", "waitingFor": None}, Registered(rest=Rest.WAITING)),
        ({"status": "dreaming"}, None),
        ({}, None),
        ({"status": "idle", "pid": 8}, None),
        ({"status": 3}, None),
    ],
)
def test_session_file_is_read(fields: dict[str, object], found: Registered | None) -> None:
    assert read_registered(written(**fields), 7) == found


@given(st.binary(max_size=200))
def test_invalid_session_file_is_ignored(content: bytes) -> None:
    assert read_registered(content, 7) is None


def test_session_file_is_next_to_the_transcripts_of_a_hook() -> None:
    reported = "/x/projects/mine/.claude/projects/-x/s1.jsonl"

    assert registry_path(reported, "/home/me", 7) == "/x/projects/mine/.claude/sessions/7.json"
    assert registry_path("", "/home/me", 7) == "/home/me/.claude/sessions/7.json"


RESTING, BUSY = Registered(rest=Rest.RESTING), Registered(rest=Rest.BUSY)
WAITING = Registered(rest=Rest.WAITING, waits_for="permission prompt")


@pytest.mark.parametrize(
    ("state", "detail", "since_ms", "found", "reported"),
    [
        ("active", "thinking", 0, RESTING, (AgentState.IDLE, "")),
        ("blocked", "permission: Write: x", 0, RESTING, (AgentState.IDLE, "")),
        ("idle", "", 0, RESTING, None),
        ("active", "compacting", LIMIT_COMPACTING_MS - 1, RESTING, None),
        ("active", "compacting", LIMIT_COMPACTING_MS, RESTING, (AgentState.IDLE, "")),
        ("active", "thinking", 0, BUSY, None),
        ("blocked", "permission: Bash: make", 0, BUSY, (AgentState.ACTIVE, "tool_use")),
        ("idle", "", 0, BUSY, (AgentState.ACTIVE, "thinking")),
        ("active", "thinking", 0, WAITING, (AgentState.BLOCKED, "permission prompt")),
        ("active", "thinking", 0, Registered(rest=Rest.WAITING), (AgentState.BLOCKED, "a question")),
        ("blocked", "permission: Write: x", 0, WAITING, None),
    ],
)
def test_only_outdated_states_are_corrected(
    state: str, detail: str, since_ms: int, found: Registered, reported: tuple[AgentState, str] | None
) -> None:
    assert corrected(state, detail, since_ms, found) == reported


@pytest.mark.parametrize("state", ["idle", "active"])
def test_busy_means_nothing_while_a_sub_agent_may_be_working(state: str) -> None:
    assert corrected(state, "", 0, BUSY, has_subagents=True) is None
    assert corrected("blocked", "permission", 0, BUSY, has_subagents=True) == (AgentState.ACTIVE, "tool_use")


def test_only_states_that_can_end_without_a_hook_are_checked() -> None:
    assert [state for state in AgentState if can_end_unreported(state)] == [
        AgentState.ACTIVE,
        AgentState.BLOCKED,
    ]
