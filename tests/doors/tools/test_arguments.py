"""Validation of tool arguments."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.tools import TOOLS, Param, Tool, checked_arguments
from palaver.errors import BadRequest

TOOL = Tool(
    name="try_out",
    group="rooms",
    help="",
    params=(
        Param(name="text"),
        Param(name="texts", kind="texts", optional=True),
        Param(name="number", kind="number", optional=True),
        Param(name="flag", kind="flag", optional=True),
        Param(name="object", kind="object", optional=True),
        Param(name="choice", optional=True, choices=("a", "b")),
    ),
)

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_valid_arguments_are_unchanged() -> None:
    given: dict[str, object] = {
        "text": "a",
        "texts": ["b", "c"],
        "number": -1,
        "flag": False,
        "object": {"x": None},
        "choice": "b",
    }

    assert checked_arguments(TOOL, given) == given


def test_empty_list_is_left_to_the_tool() -> None:
    assert checked_arguments(TOOL, {"text": "a", "texts": []}) == {"text": "a", "texts": []}


def test_null_is_left_out_and_a_whole_float_is_a_number() -> None:
    assert checked_arguments(TOOL, {"text": "a", "number": 5.0, "flag": None}) == {"text": "a", "number": 5}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (None, "try_out requires text (a string)"),
        ({"text": None}, "try_out requires text"),
        ({"text": 1}, "text of try_out must be a string"),
        ({"text": "\ud800"}, "text of try_out must be a string"),
        ({"text": "a", "texts": ["b", 1]}, "a string or a list of strings"),
        ({"text": "a", "number": 1.5}, "a whole number"),
        ({"text": "a", "number": True}, "a whole number"),
        ({"text": "a", "number": 2**60}, "a whole number"),
        ({"text": "a", "flag": 1}, "true or false"),
        ({"text": "a", "object": []}, "an object"),
        ({"text": "a", "choice": "c"}, "one of a, b"),
        ({"text": "a", "other": 1}, "has no parameter 'other'; it takes text, texts"),
    ],
)
def test_invalid_arguments_are_refused_with_the_expected_type(
    arguments: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        checked_arguments(TOOL, arguments)

    assert words in str(refused.value)


@given(st.sampled_from(TOOLS), st.dictionaries(st.text(max_size=12), _json, max_size=4), st.data())
def test_any_object_is_accepted_or_refused(tool: Tool, wild: dict[str, object], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from([param.name for param in tool.params] or ["x"])))
    arguments = {**wild, **{name: data.draw(_json) for name in chosen}}

    found: dict[str, object] = {}
    with suppress(BadRequest):
        found = checked_arguments(tool, arguments)

    assert set(found) <= {param.name for param in tool.params}
