"""Sessions named in the `_meta` of a call."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.hooks import call_in_meta, session_in_arguments, session_in_meta

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "meta",
    [
        {"threadId": "t-1"},
        {"x-codex-turn-metadata": {"thread_id": "t-1", "session_id": "s-1"}},
        {"x-codex-turn-metadata": {"session_id": "t-1", "turn_id": "9"}},
        {"x-codex-turn-metadata": json.dumps({"session_id": "t-1"})},
        {"palaver/session": "t-1"},
    ],
)
def test_session_is_found_in_each_known_field(meta: dict[str, object]) -> None:
    assert session_in_meta(meta) == "t-1"


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"progressToken": 1},
        {"threadId": 7},
        {"threadId": ""},
        {"threadId": "x" * 257},
        {"x-codex-turn-metadata": "{not json"},
        {"x-codex-turn-metadata": "[1]"},
    ],
)
def test_meta_without_a_session_has_no_session(meta: dict[str, object] | None) -> None:
    assert session_in_meta(meta) == ""


@given(
    st.dictionaries(
        st.sampled_from(["threadId", "x-codex-turn-metadata", "palaver/session"]) | st.text(), _json
    )
)
def test_any_meta_can_be_read(meta: dict[str, object]) -> None:
    assert isinstance(session_in_meta(meta), str)


def test_claude_call_id_is_read_from_the_meta() -> None:
    assert call_in_meta({"claudecode/toolUseId": "toolu_1", "progressToken": 2}) == "toolu_1"
    assert [call_in_meta(meta) for meta in (None, {}, {"claudecode/toolUseId": 7})] == ["", "", ""]


def test_session_is_removed_from_the_arguments() -> None:
    assert session_in_arguments({"text": "hello", "palaver_session": "ses_1"}) == ("ses_1", {"text": "hello"})
    assert session_in_arguments({"text": "hello", "palaver_session": 7}) == ("", {"text": "hello"})
    assert session_in_arguments({"text": "hello"}) == ("", {"text": "hello"})
    assert session_in_arguments(None) == ("", None)
