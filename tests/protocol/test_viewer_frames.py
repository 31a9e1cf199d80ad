"""Frames after `attach`: they round-trip however they are split; oversized ones are refused by the header."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest, MessageTooLarge
from palaver.protocol.agent_socket import (
    CONTROL,
    DATA,
    Frame,
    ViewerFrameReader,
    control_from_bytes,
    control_to_bytes,
    data_frames,
    frame,
)
from palaver.protocol.text import LIMIT_FRAME_BYTES

FRAMES = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6).filter(
    lambda frames: not frames or frames[0][0] not in b"\r\n"
)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """Split bytes at the given offsets."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def read_all(pieces: list[bytes], first: bytes = b"") -> list[Frame]:
    reader = ViewerFrameReader(first)
    return [found for piece in pieces for found in reader.feed(piece)]


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=8))
def test_frames_round_trip_wherever_they_are_split(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(frame(kind, payload) for kind, payload in frames)

    assert read_all(cut(data, cuts)) == frames


@given(FRAMES, st.integers(0, 1000))
def test_bytes_read_after_the_request_are_not_lost(frames: list[Frame], cut_at: int) -> None:
    data = b"".join(frame(kind, payload) for kind, payload in frames)
    first, rest = cut(data, [cut_at])

    assert read_all([rest], first) == frames


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("cut_at", range(4))
def test_line_end_of_the_request_is_skipped_whenever_it_arrives(end: bytes, cut_at: int) -> None:
    data = end + frame(DATA, b"hello")

    assert read_all(cut(data, [cut_at])) == [(DATA, b"hello")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("000000000568656c6c6f", (DATA, b"hello")), ("0100000000", (CONTROL, b""))],
)
def test_frames_have_the_expected_bytes(raw: str, expected: Frame) -> None:
    assert read_all([bytes.fromhex(raw)]) == [expected]
    assert frame(*expected) == bytes.fromhex(raw)


@pytest.mark.parametrize("raw", ["0000", "000000000568656c"])
def test_half_frame_waits_for_its_other_half(raw: str) -> None:
    reader = ViewerFrameReader()

    assert list(reader.feed(bytes.fromhex(raw))) == []
    assert reader.rest() == bytes.fromhex(raw)


def test_frame_of_the_maximum_size_is_accepted() -> None:
    payload = bytes(LIMIT_FRAME_BYTES)

    assert read_all([frame(DATA, payload)]) == [(DATA, payload)]


def test_oversized_frame_is_refused_before_its_payload_arrives() -> None:
    reader = ViewerFrameReader()

    with pytest.raises(MessageTooLarge):
        list(reader.feed(struct.pack(">BI", DATA, LIMIT_FRAME_BYTES + 1)))


def test_oversized_frame_is_not_written() -> None:
    with pytest.raises(MessageTooLarge):
        frame(DATA, bytes(LIMIT_FRAME_BYTES + 1))


def test_output_of_any_length_is_divided_into_frames_within_the_limit() -> None:
    data = bytes(LIMIT_FRAME_BYTES + 1)

    frames = read_all([data_frames(data)])

    assert [len(payload) for _, payload in frames] == [LIMIT_FRAME_BYTES, 1]
    assert data_frames(b"") == b""


def test_control_round_trips() -> None:
    fields: dict[str, object] = {"type": "resize", "cols": 120, "rows": 40}

    ((kind, payload),) = read_all([control_to_bytes(fields)])

    assert kind == CONTROL
    assert control_from_bytes(payload) == fields


@pytest.mark.parametrize("payload", [b"", b"no", b"[]", b"{}", b'{"type":1}', b"\xff", b"[" * 10_000])
def test_unreadable_control_is_refused_with_a_sentence(payload: bytes) -> None:
    with pytest.raises(BadRequest, match="control"):
        control_from_bytes(payload)
