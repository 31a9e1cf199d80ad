"""Permission requests as text, and the decisions returned to a harness."""

import pytest

from palaver.harness.hooks import permission_answer, permission_text


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("Bash", {"command": "ls -l", "description": "look"}, "Bash: ls -l"),
        ("Edit", {"file_path": "/a", "old_string": "x"}, "Edit: /a"),
        ("task", {"patterns": ["general"], "input": {"prompt": "delete it"}}, "task: delete it"),
        ("Odd", {"depth": 3}, 'Odd: {"depth": 3}'),
        ("Plain", {}, "Plain"),
    ],
)
def test_request_is_described_in_one_line(tool: str, given: dict[str, object], words: str) -> None:
    assert permission_text(tool, given) == words


def test_claude_gets_allow_or_deny() -> None:
    yes = permission_answer("claude", "PermissionRequest", is_allowed=True, message="")
    no = permission_answer("claude", "PermissionRequest", is_allowed=False, message="not now")

    assert yes == {
        "hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
    }
    assert no["hookSpecificOutput"] == {
        "hookEventName": "PermissionRequest",
        "decision": {"behavior": "deny", "message": "not now"},
    }


@pytest.mark.parametrize(
    ("harness", "event"),
    [("codex", "PermissionRequest"), ("gemini", "Notification"), ("opencode", "x"), ("claude", "Stop")],
)
def test_event_that_takes_no_decision_gets_none(harness: str, event: str) -> None:
    assert permission_answer(harness, event, is_allowed=True, message="") == {}
