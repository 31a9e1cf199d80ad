"""The frames of the pump, and ids found in invalid messages."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.thin import (
    END_BYTES,
    IN_USE,
    FrameReader,
    call_key,
    error_line,
    has_half_pair,
    has_id,
    id_of,
    id_of_ends,
    line_frame,
    numbered,
)

_ids = st.integers(-(10**17), 10**17) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _ends(line: bytes) -> bytes:
    return line[:END_BYTES] + line[-END_BYTES:]


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_numbered_line_survives_being_written_and_read_back(number: int, line: bytes) -> None:
    ((kind, payload),) = FrameReader().feed(line_frame(number, line))

    assert (kind, *numbered(payload)) == (b"L", number, line)


def test_request_key_is_unique_per_client_and_line() -> None:
    keys = {call_key(client * 16, number) for client in (b"a", b"b") for number in (1, 2) for _ in range(2)}

    assert sorted(map(len, keys)) == [16, 16, 16, 16]


def test_line_without_a_number_is_refused() -> None:
    with pytest.raises(BadRequest):
        numbered(b"abc")


def test_error_is_one_line_of_json_rpc() -> None:
    line = error_line("a", -32700, "no")

    assert line.endswith(b"\n")
    assert json.loads(line) == {"jsonrpc": "2.0", "id": "a", "error": {"code": -32700, "message": "no"}}


@given(_ids, st.booleans())
def test_id_of_an_oversized_line_is_found_at_either_end(id: str | int, is_first: bool) -> None:
    head: dict[str, object] = {"jsonrpc": "2.0", "id": id}
    body: dict[str, object] = {"method": "tools/call", "params": {"id": 99, "x": "y" * 3 * END_BYTES}}
    line = json.dumps({**head, **body} if is_first else {**body, **head}).encode()

    assert id_of_ends(_ends(line)) == id


@pytest.mark.parametrize(
    "line", [b"x" * 9000, b'{"params":{"id":1},' + b" " * 9000 + b"}", b'{"id":null' + b" " * 9000]
)
def test_long_line_without_an_id_has_no_id(line: bytes) -> None:
    assert id_of_ends(_ends(line)) is None


@pytest.mark.parametrize("padding", [b"", b" " * 9000])
def test_id_of_a_deeply_nested_message_is_found(padding: bytes) -> None:
    deep = b'"params":' + b"[" * 3000 + b"]" * 3000

    assert id_of(b'{"jsonrpc":"2.0","id":7,' + deep + padding + b"}") == 7
    assert id_of(b"{" + padding + deep + b',"id":"x"}') == "x"
    assert id_of(b"{" + padding + deep + b"}") is None


_odd_ids = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(st.sampled_from(["id", "method", "params"]), _odd_ids))
def test_presence_of_an_id_does_not_depend_on_its_value(message: dict[str, object]) -> None:
    assert has_id(json.dumps(message).encode()) == ("id" in message)


def test_long_id_with_invalid_text_is_ignored() -> None:
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
def test_id_of_an_invalid_message_is_found(line: bytes, id: object) -> None:
    assert id_of(line) == id


@given(st.text(max_size=9), st.characters(categories=["Cs"]), st.text(max_size=9))
def test_lone_surrogate_is_found_anywhere(before: str, half: str, behind: str) -> None:
    line = json.dumps({"id": 7, "params": {"a": [before, {"b": before + half + behind}]}}).encode()

    assert has_half_pair(line)
    assert id_of(line) == 7


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_valid_text_has_no_lone_surrogate(value: object) -> None:
    assert not has_half_pair(json.dumps(value).encode())


@given(st.binary(max_size=200))
def test_any_bytes_can_be_searched_for_an_id(line: bytes) -> None:
    assert isinstance(id_of(line), str | int | None)
    assert isinstance(id_of_ends(line), str | int | None)
    assert not has_half_pair(line)


def test_refused_line_is_answered_with_its_code_and_sentence() -> None:
    reply = json.loads(IN_USE.answer(7))

    assert (reply["id"], reply["error"]["code"]) == (7, IN_USE.code)
    assert reply["error"]["message"] == IN_USE.sentence


def test_line_nested_too_deeply_has_no_half_pair() -> None:
    limit = sys.getrecursionlimit()
    for depth in range(limit // 2, limit + 50):  # near the limit of encoding and decoding
        assert not has_half_pair(b"[" * depth + b"]" * depth)
