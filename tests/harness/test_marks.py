"""Environment variables by which harnesses mark their child processes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.marks import MARKS, PRESENCE_MARKS, SEAT_MARK, SESSION_MARKS, harness_of, session_of

_SESSIONS = [(harness, name) for harness, names in SESSION_MARKS.items() for name in names]
_PRESENCES = [(harness, name) for harness, names in PRESENCE_MARKS.items() for name in names]


def test_marks_are_unique_and_the_seat_mark_is_not_a_harness_mark() -> None:
    assert sorted(MARKS) == sorted(name for _, name in [*_SESSIONS, *_PRESENCES])
    assert len(set(MARKS)) == len(MARKS)
    assert SEAT_MARK not in MARKS


@pytest.mark.parametrize(("harness", "name"), [*_SESSIONS, *_PRESENCES])
def test_each_mark_alone_names_its_harness(harness: str, name: str) -> None:
    assert harness_of({name: "1"}) == harness


@pytest.mark.parametrize(("harness", "name"), _SESSIONS)
def test_each_session_mark_alone_names_the_session(harness: str, name: str) -> None:
    assert session_of({name: "a1"}) == (harness, "a1")


@pytest.mark.parametrize("name", MARKS)
def test_empty_mark_is_ignored(name: str) -> None:
    assert harness_of({name: ""}) is None
    assert session_of({name: ""}) is None


def test_session_mark_wins_over_presence_mark() -> None:
    assert harness_of({"CLAUDECODE": "1", "CODEX_THREAD_ID": "t"}) == "codex"


@given(st.dictionaries(st.text(), st.text(min_size=1)))
def test_names_that_only_look_like_marks_are_ignored(entries: dict[str, str]) -> None:
    others = {f"{name}_TOKEN": value for name, value in entries.items()} | {"CLAUDE_API_KEY": "k"}

    assert harness_of(others) is None
    assert session_of(others) is None
