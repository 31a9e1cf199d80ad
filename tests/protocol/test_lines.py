"""Lines of JSON: split from a stream, parsed as requests, and written as replies."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.lines.examples import LEAST, MOST

from palaver.errors import BadRequest, OtherError, RateLimited, UnknownRecipient
from palaver.protocol.lines import (
    LineReader,
    Op,
    SendOp,
    WhoamiOp,
    answer_line,
    error_line,
    error_object,
    op_from_json,
    op_to_json,
    push_line,
    req_of,
    screen_digest,
)

LIMIT = 20

texts = st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"").strip())


@given(st.lists(texts), st.lists(st.integers(min_value=0, max_value=25)))
def test_lines_survive_any_split_of_the_stream(lines: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader = LineReader(LIMIT)
    received: list[bytes | None] = []
    for size in sizes:
        received += reader.feed(stream[:size])
        stream = stream[size:]
    received += reader.feed(stream)

    assert received == [line if len(line) <= LIMIT else None for line in lines if line]
    assert reader.rest() == b""


def test_rest_of_an_oversized_line_is_not_a_line() -> None:
    reader = LineReader(LIMIT)

    received = [*reader.feed(b"x" * 21), *reader.feed(b'{"op":"send"}'), *reader.feed(b"more\nnext\nha")]

    assert received == [None, b"next"]
    assert reader.rest() == b"ha"


def test_line_is_parsed_as_the_request_it_names() -> None:
    op = op_from_json(b'{"op":"send","req":7,"text":"hello","to":["@nova"]}')

    assert op == SendOp(req=7, text="hello", to=("@nova",))
    assert op_from_json(b'{"op":"whoami"}') == WhoamiOp(req=0)


@pytest.mark.parametrize(("op", "line"), LEAST + MOST)
def test_request_survives_being_written_and_read_back(op: Op, line: bytes) -> None:
    assert op_from_json(line) == msgspec.structs.replace(op, req=7)
    assert op_to_json(7, op) == line


@pytest.mark.parametrize(
    "line",
    [
        b'{"op":"ack","messages":[-1]}',
        b'{"op":"events","after":1000000000000000}',
        b'{"op":"send","text":"x","expires_ms":-1}',
        b'{"op":"tool","tool":"x","key":"short"}',
        b'{"op":"hold","pid":0}',
        b'{"op":"hold","pid":1,"cols":65536}',
        b'{"op":"lane","kind":"x","outcomes":[{"messages":[-1],"answer":"seen"}]}',
        b'{"op":"accompany","harness":"","session":"x"}',
        b'{"op":"whoami","color":"blue"}',
    ],
)
def test_invalid_request_is_refused(line: bytes) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        op_from_json(line)


@given(st.binary(max_size=60) | st.text().map(str.encode))
def test_any_line_is_a_request_or_an_error(line: bytes) -> None:
    try:
        op_from_json(line)
    except BadRequest:
        assert isinstance(req_of(line), int)


@pytest.mark.parametrize(
    ("line", "number"),
    [(b'{"req": 5}', 5), (b'{"req": "5"}', 0), (b"[]", 0), (b"\xff", 0), (b"[" * 10_000, 0), (b"{}", 0)],
)
def test_number_of_an_unreadable_request_is_found_if_present(line: bytes, number: int) -> None:
    assert req_of(line) == number


def decoded(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found: dict[str, Any] = json.loads(line)
    return found


def test_reply_error_and_push_are_one_line_each() -> None:
    refusal = UnknownRecipient({"@nowa": ["nova"]})

    assert decoded(answer_line(7, {"text": "a\nb"})) == {"req": 7, "ok": {"text": "a\nb"}}
    assert decoded(push_line("event", {"req": 7})) == {"push": "event", "req": 7}
    assert decoded(error_line(7, refusal)) == {
        "req": 7,
        "error": "unknown_recipient",
        "message": str(refusal),
        "details": {"unmatched": {"@nowa": ["nova"]}},
    }


def test_error_without_fields_has_no_details() -> None:
    refusal = BadRequest("so it is")

    assert decoded(error_line(0, refusal)) == {"req": 0, "error": "bad_request", "message": "so it is"}


def test_error_object_has_the_fields_of_the_error_once() -> None:
    refusal = UnknownRecipient({"@nowa": ["nova"]})

    shown = error_object(refusal)

    assert shown == {
        "error": "unknown_recipient",
        "message": str(refusal),
        "details": {"unmatched": {"@nowa": ["nova"]}},
    }
    assert list(shown) == ["error", "message", "details"]
    assert error_object(BadRequest("so it is")) == {"error": "bad_request", "message": "so it is"}


def test_error_fields_never_replace_code_or_message() -> None:
    held = RateLimited(42, "too many answers")
    strange = OtherError("odd", "so it is", {"error": 1, "details": 2, "message": 3, "more": 4})

    assert error_object(held)["message"] == str(held)
    assert error_object(held)["details"] == {"message": 42, "reason": "too many answers"}
    assert error_object(strange) == {
        "error": "odd",
        "message": "so it is",
        "details": {"error": 1, "details": 2, "message": 3, "more": 4},
    }


def test_digest_of_a_screen_differs_with_its_text() -> None:
    assert screen_digest("one") == screen_digest("one") != screen_digest("two")
    assert len(screen_digest("\udcff")) == 32
