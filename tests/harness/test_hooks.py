"""Hooks of all harnesses: unreadable input is ignored, and nothing raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.hooks import HookStep, one_line
from palaver.harness.registry import HOOKED, hook_answer_object, read_hook
from palaver.protocol.text import check_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        *("session_id", "tool_name", "tool_input", "prompt", "source", "error", "agent_id"),
        *("stop_hook_active", "notification_type", "last_assistant_message"),
    ]
)
EVENTS = st.sampled_from(["SessionStart", "PreToolUse", "Stop", "StopFailure", "Notification", "Other"])


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff{}", b"[" * 100_000])
def test_input_that_is_not_an_object_is_ignored(data: bytes) -> None:
    assert read_hook("claude", "Stop", data) is None


@pytest.mark.parametrize(("harness", "event"), [("nobody", "Stop"), ("claude", ""), ("claude", "x" * 65)])
def test_unknown_harness_or_invalid_event_is_ignored(harness: str, event: str) -> None:
    assert read_hook(harness, event, b"{}") is None


@given(EVENTS, st.dictionaries(FIELDS, JSON))
def test_any_hook_input_can_be_read_and_stored(event: str, data: dict[str, object]) -> None:
    news = read_hook("claude", event, json.dumps(data).encode())

    assert news is not None
    for text in (news.detail, news.tool, news.command, news.file, news.session):
        check_text(text, "a word", 4096)
        assert "\n" not in text


@given(st.text(), st.integers(1, 50))
def test_one_line_is_short_and_valid_text(text: str, limit: int) -> None:
    shown = one_line(text, limit)

    assert len(shown) <= limit
    check_text(shown)


def test_reply_is_empty_unless_the_hook_accepts_it() -> None:
    assert hook_answer_object("claude", "Stop", block_reason="go on")["decision"] == "block"
    assert hook_answer_object("claude", "Stop") == {}
    assert hook_answer_object("claude", "SessionEnd", context="x") == {}
    assert hook_answer_object("nobody", "Stop", block_reason="x") == {}


def test_every_harness_reads_the_start_of_a_session() -> None:
    for harness in HOOKED:
        news = read_hook(harness, "SessionStart", b'{"session_id":"s"}')

        assert news is not None
        assert (news.step, news.session) == (HookStep.START, "s")
