"""The pump's frames, and ids found in what is no message."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.argv.wire import FrameReader
from palaver.doors.mcp.pump_wire import (
    END_BYTES,
    call_key,
    error_line,
    has_half_pair,
    has_id,
    id_of,
    id_of_ends,
    line_frame,
    numbered,
)
from palaver.errors import BadRequest

_ids = st.integers(-(10**17), 10**17) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _ends(line: bytes) -> bytes:
    return line[:END_BYTES] + line[-END_BYTES:]


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_a_numbered_line_survives_being_written_and_read_back(number: int, line: bytes) -> None:
    ((kind, payload),) = FrameReader().feed(line_frame(number, line))

    assert (kind, *numbered(payload)) == (b"L", number, line)


def test_the_same_line_of_the_same_client_has_the_same_key_and_no_other_has_it() -> None:
    keys = {call_key(client * 16, number) for client in (b"a", b"b") for number in (1, 2) for _ in range(2)}

    assert sorted(map(len, keys)) == [16, 16, 16, 16]


def test_a_line_without_a_number_is_refused() -> None:
    with pytest.raises(BadRequest):
        numbered(b"abc")


def test_an_error_is_one_line_of_json_rpc() -> None:
    line = error_line("a", -32700, "no")

    assert line.endswith(b"\n")
    assert json.loads(line) == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32700, "message": "no"}}


@given(_ids, st.booleans())
def test_the_id_of_a_line_that_is_too_long_is_found_at_either_end(id: str | int, is_first: bool) -> None:
    head: dict[str, object] = {"jsonrpc": "2.0", "id": id}
    body: dict[str, object] = {"method": "tools/call", "params": {"id": 99, "x": "y" * 3 * END_BYTES}}
    line = json.dumps({**head, **body} if is_first else {**body, **head}).encode()

    assert id_of_ends(_ends(line)) == id


@pytest.mark.parametrize(
    "line", [b"x" * 9000, b'{"params":{"id":1},' + b" " * 9000 + b"}", b'{"id":null' + b" " * 9000]
)
def test_a_long_line_without_an_id_has_none(line: bytes) -> None:
    assert id_of_ends(_ends(line)) is None


@pytest.mark.parametrize("padding", [b"", b" " * 9000])
def test_the_id_of_what_is_nested_too_deeply_is_found(padding: bytes) -> None:
    deep = b'"params":' + b"[" * 3000 + b"]" * 3000

    assert id_of(b'{"jsonrpc":"2.0","id":7,' + deep + padding + b"}") == 7
    assert id_of(b"{" + padding + deep + b',"id":"x"}') == "x"
    assert id_of(b"{" + padding + deep + b"}") is None


_odd_ids = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.sampled_from(["id", "method", "params"]), _odd_ids))
def test_whether_there_is_an_id_does_not_depend_on_what_it_is(message: dict[str, object]) -> None:
    assert has_id(json.dumps(message).encode()) == ("id" in message)


def test_a_long_id_that_is_no_text_is_none() -> None:
    assert id_of_ends(b'{"id":"\\q"' + b" " * 9000) is None


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"id":7}', 7),
        (b'{"id":"a"}', "a"),
        (b'{"id":true}', None),
        (b'{"id":[1]}', None),
        (b"{", None),
        (b"[]", None),
        (rb'{"id":7,"params":{"a":"\ud800b"}}', 7),
        (rb'{"id":"a","params":{"a":"\udc00"}}', "a"),
        (rb'{"id":"\ud800","params":{}}', None),
        (rb'["\ud800"]', None),
    ],
)
def test_the_id_of_a_line_that_is_no_message_is_found(line: bytes, id: object) -> None:
    assert id_of(line) == id


@given(st.text(max_size=9), st.characters(categories=["Cs"]), st.text(max_size=9))
def test_half_of_a_pair_is_found_wherever_it_stands(before: str, half: str, behind: str) -> None:
    line = json.dumps({"id": 7, "params": {"a": [before, {"b": before + half + behind}]}}).encode()

    assert has_half_pair(line)
    assert id_of(line) == 7


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_text_of_whole_characters_has_no_half_of_a_pair(value: object) -> None:
    assert not has_half_pair(json.dumps(value).encode())


@given(st.binary(max_size=200))
def test_no_bytes_break_the_search_for_an_id(line: bytes) -> None:
    assert isinstance(id_of(line), str | int | None)
    assert isinstance(id_of_ends(line), str | int | None)
    assert not has_half_pair(line)
