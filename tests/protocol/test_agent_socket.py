"""Requests at an agent's socket: where they end, which are accepted, which are refused."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.test_viewer_frames import cut

from palaver.errors import BadRequest, MessageTooLarge
from palaver.protocol.agent_socket import (
    DATA,
    REQUEST_TYPES,
    AgentRequest,
    RequestReader,
    SocketReply,
    frame,
    is_size,
    refusal,
    reply_from_json,
    reply_to_json,
    request_from_json,
    request_to_json,
)
from palaver.protocol.message import PRIORITY_WORDS
from palaver.protocol.text import LIMIT_FRAME_BYTES

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
REQUESTS = st.builds(
    AgentRequest,
    type=st.sampled_from(REQUEST_TYPES),
    priority=st.none() | st.sampled_from(PRIORITY_WORDS),
    sender=TEXTS,
    body=TEXTS,
    raw=st.booleans(),
    cols=st.integers(0, 500),
    rows=st.integers(0, 500),
    message_id=TEXTS,
    event_name=TEXTS,
)


def read_one(pieces: list[bytes]) -> tuple[bytes, bytes] | None:
    """Read one request as a connection does; return it with the bytes that follow it."""
    reader = RequestReader()
    for index, piece in enumerate(pieces):
        if (found := reader.feed(piece)) is not None:
            line, rest = found
            return line, rest + b"".join(pieces[index + 1 :])
    return None


@given(REQUESTS)
def test_request_round_trips(request_: AgentRequest) -> None:
    assert request_from_json(request_to_json(request_).strip()) == request_


@given(
    REQUESTS,
    st.binary(max_size=40),
    st.lists(st.integers(0, 1000), max_size=6),
    st.sampled_from([b"", b"\n"]),
)
def test_request_ends_with_its_object_however_it_is_split(
    request_: AgentRequest, behind: bytes, cuts: list[int], end: bytes
) -> None:
    line = request_to_json(request_).strip()

    assert read_one(cut(line + end + behind, cuts)) == (line, end + behind)


@given(TEXTS)
def test_braces_quotes_and_backslashes_in_a_text_end_nothing(text: str) -> None:
    line = json.dumps({"type": "send", "body": text + '"}{\\', "payload": {"a": [{}]}}).encode()

    assert read_one([line + b"\nrest"]) == (line, b"\nrest")


@given(st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=6))
def test_any_bytes_end_with_their_line_at_the_latest(data: bytes, cuts: list[int]) -> None:
    line = b"x" + data.replace(b"\n", b" ")

    found = read_one(cut(line + b"\nrest", cuts))

    assert found is not None
    assert found[0] + found[1] == line + b"\nrest"


def test_attach_and_first_frame_in_one_write_are_both_read() -> None:
    line = request_to_json(AgentRequest(type="attach", cols=80, rows=24))

    found = read_one([line + frame(DATA, b"hello")])

    assert found == (line.strip(), b"\n" + frame(DATA, b"hello"))


def test_blank_lines_before_a_request_are_skipped() -> None:
    assert read_one([b"\r\n ", b'\n{"type":"status"}']) == (b'{"type":"status"}', b"")


def test_incomplete_request_is_returned_at_the_end_of_input() -> None:
    reader = RequestReader()
    assert reader.feed(b'{"type":') is None

    assert reader.end() == b'{"type":'


def test_oversized_request_is_refused() -> None:
    reader = RequestReader()

    with pytest.raises(MessageTooLarge):
        reader.feed(b'{"body":"' + bytes(LIMIT_FRAME_BYTES))


def test_unknown_type_is_named_in_the_error() -> None:
    with pytest.raises(BadRequest, match=r"^unknown request type: nope$"):
        request_from_json(b'{"type":"nope"}')


@pytest.mark.parametrize(
    "line", [b"", b"no", b"{}", b"[]", b'{"type":1}', b'{"type":', b"\xff\xfe", b"[" * 9999]
)
def test_unreadable_request_is_refused_with_a_sentence(line: bytes) -> None:
    with pytest.raises(BadRequest, match="the request cannot be read"):
        request_from_json(line)


@pytest.mark.parametrize("word", ["", "urgent", "Normal", "idle_first"])
def test_invalid_priority_is_named_in_the_error(word: str) -> None:
    line = json.dumps({"type": "send", "priority": word, "body": "x"}).encode()

    with pytest.raises(BadRequest, match=f"^invalid priority: {word}$"):
        request_from_json(line)


def test_priority_of_raw_keys_is_not_checked() -> None:
    assert request_from_json(b'{"type":"send","priority":"urgent","raw":true,"body":"y"}').raw is True


def test_unknown_keys_are_ignored() -> None:
    request = request_from_json(b'{"type":"send","body":"x","thread":"t","from":"luna"}')

    assert (request.body, request.sender) == ("x", "luna")


def test_reply_round_trips_with_the_expected_keys() -> None:
    reply = SocketReply(is_ok=True, message_id="01", message={"id": "01"}, agent={"name": "luna"})

    line = reply_to_json(reply)

    assert reply_from_json(line) == reply
    assert set(json.loads(line)) == {"ok", "message_id", "message", "agent"}


def test_refusal_is_not_ok_and_contains_the_reason() -> None:
    assert json.loads(refusal("no")) == {"ok": False, "error": "no"}


def test_unreadable_reply_is_refused() -> None:
    with pytest.raises(BadRequest, match="the response cannot be read"):
        reply_from_json(b"no")


@pytest.mark.parametrize(
    ("cols", "rows", "expected"),
    [
        (1, 5, True),
        (120, 40, True),
        (1, 3, True),
        (65535, 65535, True),
        (0, 24, False),
        (80, 2, False),
        (65536, 24, False),
        (80, -1, False),
        ("80", 24, False),
        (80, None, False),
    ],
)
def test_terminal_is_at_least_one_by_three(cols: object, rows: object, expected: bool) -> None:
    assert is_size(cols, rows) is expected


def test_hook_payload_is_kept_unchanged() -> None:
    request = request_from_json(b'{"type":"hook_event","event_name":"Stop","payload":{"a":1}}')

    assert msgspec.json.decode(request.payload) == {"a": 1}
