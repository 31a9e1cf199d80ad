"""Code shared by all transcript readers."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.transcripts import Gathering, items, mapping, read_object, texts_in, time_ms, word
from palaver.protocol.transcript import LIMIT_DEPTH, ToolCall, TranscriptEntry

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_object_is_read_as_it_was_written(value: dict[str, object]) -> None:
    assert read_object(json.dumps(value).encode() + b"\n") == value


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_read_object_can_be_written_again(line: bytes) -> None:
    found = read_object(line)

    assert found is None or msgspec.json.decode(msgspec.json.encode(found)) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (rb'{"a":"x\ud83d"}', {"a": "x\ufffd"}),
        (b'{"a":"x\xc3"}', {"a": "x\ufffd"}),
        (b'{"a":NaN,"b":[1.5,"\\ud800"]}', {"a": None, "b": [1.5, "\ufffd"]}),
    ],
)
def test_invalid_characters_are_replaced(line: bytes, found: object) -> None:
    assert read_object(line) == found


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'"x"',
        b'{"a": "half wri',
        b'{"a": NaN, "b": ',
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"a":' * (LIMIT_DEPTH + 1) + b"1" + b"}" * (LIMIT_DEPTH + 1),
        b'{"x":NaN,"a":' + b'{"a":' * (LIMIT_DEPTH + 1) + b"1" + b"}" * (LIMIT_DEPTH + 2),
        b'{"a": nonsense}',
    ],
)
def test_line_without_an_object_is_ignored(line: bytes) -> None:
    assert read_object(line) is None


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("2026-11-15T11:44:26.054Z", 1794743066054),
        (1794743066054, 1794743066054),
        ("soon", 0),
        ("0001-01-01T00:00:00", 0),
        (True, 0),
        (-5, 0),
        (1 << 60, 0),
        (1.5, 0),
        (None, 0),
    ],
)
def test_time_is_a_text_or_a_number(value: object, ms: int) -> None:
    assert time_ms(value) == ms


def test_values_of_the_wrong_type_are_empty() -> None:
    assert (mapping([]), items({}), word(5), texts_in(7)) == ({}, [], "", "")
    assert texts_in(["a", {"text": "b"}, {"text": 5}, None]) == "a\nb"


def gathered(gathering: Gathering, *steps: object) -> list[TranscriptEntry]:
    """Run steps that return entries, and append the remaining entries."""
    found: list[TranscriptEntry] = []
    for step in steps:
        found += step(gathering)  # type: ignore[operator]  # each step is a function of the gathering
    return [*found, *gathering.rest()]


def call(key: str, *ids: str) -> object:
    tools = [(one, ToolCall(name=one)) for one in ids]
    return lambda gathering: list(gathering.assistant(key, "", tools, {"line": key}, 0))


def answer(call_id: str) -> object:
    return lambda gathering: list(
        gathering.answered(call_id, f"{call_id} done", is_error=False, whole={"line": call_id}, ts=0)
    )


def add_text(role: str, text: str) -> object:
    return lambda gathering: list(gathering.add_text(role, text, {}, 0))


def outline(entries: list[TranscriptEntry]) -> list[tuple[str, str, list[str | None]]]:
    return [(entry.role, entry.text, [tool.output for tool in entry.tools]) for entry in entries]


def test_results_are_matched_to_their_calls_in_any_order() -> None:
    found = gathered(Gathering(), call("m", "a", "b"), answer("b"), answer("a"))

    assert outline(found) == [("assistant", "", ["a done", "b done"])]
    assert found[0].whole == {"lines": [{"line": "m"}, {"line": "b"}, {"line": "a"}]}


def test_system_text_before_a_result_comes_after_it() -> None:
    found = gathered(
        Gathering(), call("m", "a"), add_text("system", "mail"), answer("a"), add_text("system", "end")
    )

    assert outline(found) == [("assistant", "", ["a done"]), ("system", "mail", []), ("system", "end", [])]


def test_user_text_ends_the_wait_for_a_result() -> None:
    found = gathered(Gathering(), call("m", "a"), add_text("user", "stop"), answer("a"))

    assert outline(found) == [("assistant", "", [None]), ("user", "stop", []), ("tool", "", ["a done"])]


def test_call_without_a_result_does_not_delay_entries_for_long() -> None:
    gathering = Gathering()
    list(gathering.assistant("m", "", [("a", ToolCall(name="a"))], {}, 0))

    given_out = [entry for n in range(100) for entry in gathering.add_text("system", str(n), {}, 0)]

    assert [entry.text for entry in given_out] == ["", *map(str, range(65)), *map(str, range(65, 100))]


def test_lines_with_the_same_key_are_one_turn() -> None:
    found = gathered(Gathering(), call("m", "a"), answer("a"), call("m", "b"), call("n"), answer("x"))

    assert outline(found) == [
        ("assistant", "", ["a done", None]),
        ("assistant", "", []),
        ("tool", "", ["x done"]),
    ]
