"""HTTP responses and events, read from pieces of any size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.holder.http_client import AnswerReader, BadAnswer, EventReader, basic_auth, request_to_bytes

BODIES = st.binary(max_size=200)
CUTS = st.lists(st.integers(min_value=1, max_value=17), min_size=1, max_size=30)


def _pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    pieces, place, number = [], 0, 0
    while place < len(data):
        size = cuts[number % len(cuts)]
        pieces.append(data[place : place + size])
        place, number = place + size, number + 1
    return pieces


def _read(data: bytes, cuts: list[int]) -> tuple[AnswerReader, bytes]:
    reader = AnswerReader()
    return reader, b"".join(reader.feed(piece) for piece in _pieces(data, cuts))


@given(BODIES, CUTS)
def test_body_with_a_length_is_read_from_any_pieces(body: bytes, cuts: list[int]) -> None:
    reader, found = _read(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body), cuts)

    assert found == body
    assert reader.is_done
    assert reader.head is not None
    assert reader.head.is_ok


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), CUTS)
def test_chunked_body_is_read_from_any_pieces(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    data += b"".join(b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"

    reader, found = _read(data, cuts)

    assert found == b"".join(chunks)
    assert reader.is_done


def test_body_without_a_length_extends_to_the_end() -> None:
    reader, found = _read(b"HTTP/1.1 200 OK\r\n\r\nall of it", [5])

    assert found == b"all of it"
    assert not reader.is_done

    reader.end()

    assert reader.is_done


def test_response_without_a_body_is_complete_at_once() -> None:
    reader, found = _read(b"HTTP/1.1 204 No Content\r\n\r\n", [100])

    assert reader.is_done
    assert found == b""
    assert reader.feed(b"more") == b""


def test_informational_response_is_skipped() -> None:
    reader, found = _read(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", [7]
    )

    assert found == b"no"
    assert reader.head is not None
    assert reader.head.status == 404
    assert not reader.head.is_ok


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: lots\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_unreadable_response_is_refused(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        AnswerReader().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    ],
)
def test_truncated_response_is_refused(data: bytes) -> None:
    reader = AnswerReader()
    reader.feed(data)

    with pytest.raises(BadAnswer):
        reader.end()


@given(st.binary(max_size=300), CUTS)
def test_garbage_raises_only_bad_answer(data: bytes, cuts: list[int]) -> None:
    try:
        _read(data, cuts)
    except BadAnswer:
        return


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), min_size=1), max_size=5), CUTS
)
def test_events_are_read_from_any_pieces(texts: list[str], cuts: list[int]) -> None:
    data = "".join(f": a comment\nid: 1\ndata: {text}\n\n" for text in texts).encode()
    reader = EventReader()

    found = [event for piece in _pieces(data, cuts) for event in reader.feed(piece)]

    assert found == [text.encode() for text in texts]


def test_event_of_several_lines_is_one_event() -> None:
    assert list(EventReader().feed(b"data: one\r\ndata:two\r\n\r\n\n")) == [b"one\ntwo"]


@pytest.mark.parametrize("whole", [True, False])
def test_oversized_event_is_skipped_and_the_next_is_read(whole: bool) -> None:
    reader = EventReader(limit_bytes=20)
    long = b"data: " + b"x" * 100 + b"\n\n"
    pieces = [long] if whole else [long[:50], long[50:]]

    found = [event for piece in [*pieces, b"data: short\n\n"] for event in reader.feed(piece)]

    assert found == [b"short"]


def test_request_contains_its_length_and_closes_the_connection() -> None:
    written = request_to_bytes("POST", "/x", "127.0.0.1:80", {"Authorization": basic_auth("a", "b")}, b"{}")

    head, _, body = written.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /x HTTP/1.1"
    assert {"Host: 127.0.0.1:80", "Connection: close", "Content-Length: 2"} <= set(lines)
    assert "Authorization: Basic YTpi" in lines
    assert json.loads(body) == {}
    assert b"Content-Length" not in request_to_bytes("GET", "/x", "h", {})
