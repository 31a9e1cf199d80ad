"""WebSocket frames: they round-trip however they are split or masked; anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.holder.websocket import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    Frame,
    WebSocketFrameReader,
    accept_for,
    frame_to_bytes,
    handshake,
    split_answer,
)

KEY = b"0123456789abcdef"
FRAMES = st.builds(
    lambda kind, data, times: Frame(kind, data * times),
    st.sampled_from([TEXT, CLOSE, PING, PONG]),
    st.binary(max_size=60),
    st.sampled_from([1, 2, 126, 2000]),
)


def answer(accept: bytes = accept_for(KEY), status: bytes = b"101 Switching Protocols") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nsec-websocket-ACCEPT:  " + accept + b"\r\n\r\n"


@given(st.lists(FRAMES, max_size=5), st.binary(min_size=4, max_size=4), st.integers(1, 5000))
def test_frames_round_trip(frames: list[Frame], mask: bytes, step: int) -> None:
    data = b"".join(frame_to_bytes(frame, mask) for frame in frames)
    reader = WebSocketFrameReader()

    read = [frame for at in range(0, len(data), step) for frame in reader.feed(data[at : at + step])]

    assert read == frames


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_frame_of_every_length_encoding_is_read(size: int) -> None:
    frame = Frame(TEXT, b"x" * size)

    assert list(WebSocketFrameReader().feed(frame_to_bytes(frame))) == [frame]


def test_client_masks_its_frames() -> None:
    written = frame_to_bytes(Frame(TEXT, b"hello"), b"\x01\x02\x03\x04")

    assert written[1] & 0x80
    assert b"hello" not in written


def test_fragments_are_joined_around_control_frames() -> None:
    reader = WebSocketFrameReader()
    first, ping, last = b"\x01\x03one", b"\x89\x01!", b"\x80\x03two"

    assert list(reader.feed(first + ping + last)) == [Frame(PING, b"!"), Frame(TEXT, b"onetwo")]


@pytest.mark.parametrize("data", [b"\x80\x01x", b"\x01\x01x\x81\x01y", b"\xc1\x00", b"\x83\x00"])
def test_invalid_frame_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        list(WebSocketFrameReader().feed(data))


def test_oversized_message_is_refused_before_it_arrives() -> None:
    reader = WebSocketFrameReader(limit_bytes=100)

    with pytest.raises(BadRequest, match="larger than 100"):
        list(reader.feed(b"\x81\x7f" + (101).to_bytes(8, "big")))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reader = WebSocketFrameReader()

    try:
        frames = list(reader.feed(data))
    except BadRequest:
        return

    assert all(len(frame.data) <= len(data) for frame in frames)


def test_handshake_response_is_complete_with_its_header() -> None:
    data = answer() + b"rest"

    assert handshake(KEY).endswith(b"\r\n\r\n")
    assert split_answer(data[:20], KEY) is None
    assert split_answer(data, KEY) == b"rest"


@pytest.mark.parametrize(
    "data", [answer(b"another"), answer(status=b"200 OK"), b"\r\n\r\n", b"hello\r\n\r\n", b"x" * 20_000]
)
def test_invalid_handshake_response_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        split_answer(data, KEY)
