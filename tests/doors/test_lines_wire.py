"""Lines of JSON: cut out of a stream, read as requests, and written as answers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.lines_wire import (
    LineReader,
    SendOp,
    Whoami,
    answer_line,
    error_line,
    op_from_json,
    push_line,
    req_of,
)
from palaver.errors import BadRequest, UnknownRecipient

LIMIT = 20

texts = st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"").strip())


@given(st.lists(texts), st.lists(st.integers(min_value=0, max_value=25)))
def test_lines_come_out_as_they_went_in_however_the_stream_is_cut(
    lines: list[bytes], sizes: list[int]
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader = LineReader(LIMIT)
    received: list[bytes | None] = []
    for size in sizes:
        received += reader.feed(stream[:size])
        stream = stream[size:]
    received += reader.feed(stream)

    assert received == [line if len(line) <= LIMIT else None for line in lines if line]
    assert reader.rest() == b""


def test_what_follows_in_a_line_that_is_too_long_is_no_line_of_its_own() -> None:
    reader = LineReader(LIMIT)

    received = [*reader.feed(b"x" * 21), *reader.feed(b'{"op":"send"}'), *reader.feed(b"more\nnext\nha")]

    assert received == [None, b"next"]
    assert reader.rest() == b"ha"


def test_a_line_is_read_as_the_request_it_names() -> None:
    op = op_from_json(b'{"op":"send","req":7,"text":"hello","to":["@nova"]}')

    assert op == SendOp(req=7, text="hello", to=("@nova",))
    assert op_from_json(b'{"op":"whoami"}') == Whoami(req=0)


@given(st.binary(max_size=60) | st.text().map(str.encode))
def test_any_line_is_a_request_or_a_refusal(line: bytes) -> None:
    try:
        op_from_json(line)
    except BadRequest:
        assert isinstance(req_of(line), int)


@pytest.mark.parametrize(
    ("line", "number"),
    [(b'{"req": 5}', 5), (b'{"req": "5"}', 0), (b"[]", 0), (b"\xff", 0), (b"[" * 10_000, 0), (b"{}", 0)],
)
def test_the_number_of_a_request_that_cannot_be_read_is_found_where_there_is_one(
    line: bytes, number: int
) -> None:
    assert req_of(line) == number


def decoded(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_answer_a_refusal_and_a_push_are_one_line_each() -> None:
    refusal = UnknownRecipient({"@nowa": ["nova"]})

    assert decoded(answer_line(7, {"text": "a\nb"})) == {"req": 7, "ok": {"text": "a\nb"}}
    assert decoded(push_line("event", {"req": 7})) == {"push": "event", "req": 7}
    assert decoded(error_line(7, refusal)) == {
        "req": 7,
        "error": "unknown_recipient",
        "message": str(refusal),
        "details": {"unmatched": {"@nowa": ["nova"]}},
    }


def test_a_refusal_without_fields_has_no_details() -> None:
    refusal = BadRequest("so it is")

    assert decoded(error_line(0, refusal)) == {"req": 0, "error": "bad_request", "message": "so it is"}
