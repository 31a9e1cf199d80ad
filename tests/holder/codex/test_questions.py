"""Questions of Codex to a person: only those shown in full can be answered remotely."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.codex.threads import CodexMessage, decision, question_of

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
CHANGE = {"type": "fileChange", "id": "i", "changes": [{"path": "/a.py", "diff": "+x"}, {"path": "/b.py"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def codex_message(method: str, **params: object) -> CodexMessage:
    return CodexMessage(id=7, method=method, params={"threadId": "one", **params})


def test_command_is_shown_with_its_folder_and_reason() -> None:
    command = "/bin/bash -lc 'rm x'"
    params = {"command": command, "cwd": "/src", "reason": "to see", "itemId": "i", "turnId": "t"}

    found = question_of(codex_message(COMMAND, **params, environmentId=None), {})

    assert (found.id, found.session, found.tool, found.text) == (7, "one", "Bash", "rm x")
    assert found.given == {"command": command, "cwd": "/src", "reason": "to see"}


def test_program_that_is_not_a_shell_stays_in_the_shown_command() -> None:
    command = "/tmp/evil -c 'ls -l'"

    found = question_of(codex_message(COMMAND, command=command), {})

    assert (found.text, found.given["command"]) == (command, command)


@given(st.text(min_size=1))
def test_shown_command_is_unchanged(command: str) -> None:
    assert question_of(codex_message(COMMAND, command=command), {}).given["command"] == command


def test_file_change_is_shown_with_every_line() -> None:
    found = question_of(codex_message(FILES, reason="more room", itemId="i"), CHANGE)

    assert (found.tool, found.text) == ("apply_patch", "/a.py, /b.py")
    assert found.given["changes"] == CHANGE["changes"]
    assert found.given["reason"] == "more room"


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        (COMMAND, {"reason": "to\nsee"}, "to see"),
        (COMMAND, {"command": "ls", "kind": "stdin"}, "ls"),
        (COMMAND, {"command": "ls", "availableDecisions": ["cancel"]}, "ls"),
        (FILES, {"reason": "a change that nobody has seen"}, "a change that nobody has seen"),
        ("mcpServer/elicitation/request", {"serverName": "s", "message": "May it?"}, "May it?"),
        ("mcpServer/elicitation/request", {"serverName": "s"}, "s"),
        ("item/permissions/requestApproval", {"reason": "a folder"}, "a folder"),
        ("item/tool/requestUserInput", {}, ""),
    ],
)
def test_question_that_is_not_shown_in_full_is_left_to_the_terminal(
    method: str, params: dict[str, object], text: str
) -> None:
    found = question_of(codex_message(method, **params), {})

    assert not found.is_answerable
    assert found.text == text


def test_approval_is_for_one_time_and_denial_lets_the_turn_continue() -> None:
    assert decision(is_allowed=True) == {"decision": "accept"}
    assert decision(is_allowed=False) == {"decision": "decline"}


@given(st.sampled_from([COMMAND, FILES, "?"]), st.dictionaries(st.text(max_size=12), JSON, max_size=4), JSON)
def test_any_question_is_readable(method: str, params: dict[str, object], changes: object) -> None:
    found = question_of(
        CodexMessage(id=1, method=method, params=params), {"type": "fileChange", "changes": changes}
    )

    assert found.is_answerable == bool(found.tool)
    assert "\n" not in found.text
