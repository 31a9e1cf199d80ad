"""A handoff is accepted unchanged, or refused with the name of the invalid field."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.domain.stick import LIMIT_HANDOFF_BYTES, checked_handoff
from palaver.errors import InvalidHandoff
from palaver.protocol.text import check_text

GOOD = {"status": "tests pass", "next_action": "review"}


def test_complete_handoff_with_unknown_keys_is_kept() -> None:
    handoff = {
        **GOOD,
        "artifacts": [
            "README.md",
            {"path": "src/a.py"},
            {"path": "src/a.py", "lines": [3, "7-9"], "note": "here", "more": None},
            {"path": "src/a.py", "lines": 3},
            {"path": "src/a.py", "lines": "3-7", "note": ""},
        ],
        "open_questions": ["why?"],
        "do_not": ["publish"],
        "mood": {"deep": [1, 2.5, None, True]},
    }

    assert checked_handoff(handoff) == handoff


@pytest.mark.parametrize(
    ("handoff", "field"),
    [
        ({}, "status"),
        ({"status": "x"}, "next_action"),
        ({"status": None, "next_action": "x"}, "status"),
        ({"status": 7, "next_action": "x"}, "status"),
        ({"status": "x", "next_action": "  "}, "next_action"),
        ({**GOOD, "artifacts": "a.py"}, "artifacts"),
        ({**GOOD, "artifacts": ["a.py", 7]}, "artifacts"),
        ({**GOOD, "artifacts": [""]}, "artifacts"),
        ({**GOOD, "artifacts": [{"lines": [1]}]}, "artifacts"),
        ({**GOOD, "artifacts": [{"path": "a.py", "lines": [True]}]}, "artifacts"),
        ({**GOOD, "artifacts": [{"path": "a.py", "lines": {"from": 1}}]}, "artifacts"),
        ({**GOOD, "artifacts": [{"path": "a.py", "note": 7}]}, "artifacts"),
        ({**GOOD, "open_questions": None}, "open_questions"),
        ({**GOOD, "open_questions": [{}]}, "open_questions"),
        ({**GOOD, "do_not": {"a": "b"}}, "do_not"),
        ({**GOOD, "do_not": ["x" * 50, ["y" * 50]]}, "do_not"),
        ({"status": "\x1b[2J", "next_action": "x"}, "status"),
        ({**GOOD, "mood": [{"deep": {"\x00": 1}}]}, "mood"),
        ({**GOOD, "more": "x" * LIMIT_HANDOFF_BYTES}, "content"),
        ({**GOOD, "more": "\ud800"}, "content"),
        ({**GOOD, "\x1b[2J": "x"}, "content"),
        ({**GOOD, "more": object()}, "content"),
        ({**GOOD, "more": {1: 2, (3,): 4}}, "content"),
    ],
)
def test_invalid_field_is_named(handoff: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidHandoff) as error:
        checked_handoff(handoff)

    assert error.value.field == field
    assert field in str(error.value)


def test_endless_handoff_is_refused() -> None:
    endless: dict[str, object] = dict(GOOD)
    endless["more"] = endless

    with pytest.raises(InvalidHandoff):
        checked_handoff(endless)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["status", "next_action", "artifacts", "open_questions", "do_not", "x"]) | st.text()


@given(st.dictionaries(keys, values))
def test_any_handoff_is_refused_or_survives_the_log_unchanged(given_: dict[str, object]) -> None:
    try:
        made = checked_handoff({**GOOD, **given_})
    except InvalidHandoff as error:
        check_text(str(error))
        return

    back = msgspec.json.decode(msgspec.json.encode(made))
    assert back == made
    assert list(back) == list(made)


def test_number_that_json_lacks_is_stored_as_null() -> None:
    assert checked_handoff({**GOOD, "more": math.nan})["more"] is None
