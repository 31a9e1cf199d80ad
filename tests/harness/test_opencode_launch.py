"""Starting OpenCode."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.opencode.launch import (
    CONTENT,
    PASSWORD,
    Began,
    is_one_turn,
    launch_arguments,
    launch_environment,
    read_arguments,
    resumed,
    too_old,
)

MCP = ("pal", "mcp")


@pytest.mark.parametrize(
    ("words", "began"),
    [
        ("", Began()),
        ("/some/project", Began()),
        ("-s ses_1", Began(session="ses_1")),
        ("--session=ses_1 --fork", Began(session="ses_1", is_fork=True)),
        ("-c", Began(is_continued=True)),
        ("--agent plan -m p/m/x", Began(agent="plan", provider="p", model="m/x")),
        ("--model m", Began()),
        ("--port 4096", Began(port=4096)),
        ("--port 99999999", Began()),
        ("--prompt -c", Began()),
        ("--prompt run", Began()),
        ("-- serve", Began(has_terminal=False, is_agent=False)),
        ("run hello", Began(has_terminal=False)),
        ("serve --port 1", Began(has_terminal=False, is_agent=False, port=1)),
        ("--help", Began(has_terminal=False, is_agent=False)),
        ("session list", Began(has_terminal=False, is_agent=False)),
        ("-s", Began()),
    ],
)
def test_arguments_are_read_as_opencode_reads_them(words: str, began: Began) -> None:
    assert read_arguments(words.split()) == began


@pytest.mark.parametrize(
    ("words", "is_it"),
    [
        ("run hello", True),
        ("--log-level DEBUG run hello --format json", True),
        ("run -i hello", False),
        ("run --interactive", False),
        ("--prompt run", False),
        ("serve", False),
        ("", False),
    ],
)
def test_only_a_run_ends_with_its_turn(words: str, is_it: bool) -> None:
    assert is_one_turn(words.split()) == is_it


@given(
    st.lists(
        st.sampled_from(["-s", "--port", "x", "-c", "--", "run", "--agent=plan", "", "=", "-"]), max_size=6
    )
)
def test_arguments_of_the_user_keep_their_order(words: list[str]) -> None:
    began = read_arguments(words)

    given = launch_arguments(words, began, 4096)

    assert list(given[len(given) - len(words) :]) == words
    assert began.port or given[:2] == ("--port", "4096")


def test_session_is_resumed_unless_another_is_named() -> None:
    assert resumed(("--agent", "plan"), "ses_1") == ("--session", "ses_1", "--agent", "plan")
    assert resumed(("-c",), "ses_1") == ("-c",)
    assert resumed(("-s", "ses_2"), "ses_1") == ("-s", "ses_2")
    assert resumed(("run", "x"), "ses_1") == ("run", "x")
    assert resumed((), "") == ()


def test_all_additions_are_in_the_environment() -> None:
    added = launch_environment({}, password="secret", mcp=MCP, instructions="/x/told.md")

    assert added[PASSWORD] == "secret"
    assert json.loads(added[CONTENT]) == {
        "mcp": {"palaver": {"type": "local", "command": ["pal", "mcp"], "enabled": True}},
        "instructions": ["/x/told.md"],
    }


def test_settings_of_the_user_are_kept() -> None:
    theirs = {"mcp": {"palaver": {"enabled": False}, "x": {}}, "instructions": ["mine.md"], "theme": "dark"}
    environment = {CONTENT: json.dumps(theirs), PASSWORD: "theirs"}

    added = launch_environment(environment, password="secret", mcp=MCP, instructions="/x/told.md")

    assert added[PASSWORD] == "theirs"
    assert json.loads(added[CONTENT]) == {**theirs, "instructions": ["mine.md", "/x/told.md"]}


@pytest.mark.parametrize("content", ["{", "[]", "7"])
def test_unreadable_settings_are_left_alone(content: str) -> None:
    added = launch_environment({CONTENT: content}, password="secret", mcp=MCP, instructions="")

    assert added == {PASSWORD: "secret"}


OLD = ("1.17.0", "1.17.11", "0.9.30")
NEW = ("1.17.18", "1.18.33", "2.0.0-beta", "")


@pytest.mark.parametrize("version", OLD + NEW)
def test_old_version_is_reported_with_the_oldest_supported_one(version: str) -> None:
    sentence = too_old(version)

    assert bool(sentence) is (version in OLD)
    assert ("1.17.18 or newer" in sentence) is (version in OLD)
