"""The frames of the thin client: written and read back."""

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.app.thin.call import (
    FRAME_LIMIT_BYTES,
    MalformedFrameError,
    ThinFrameReader,
    frame,
    parse_limit,
    parse_output,
    request,
)

kinds = st.binary(min_size=1, max_size=1)
frames = st.lists(st.tuples(kinds, st.binary(max_size=50)))


def take_all(reader: ThinFrameReader) -> list[tuple[bytes, bytes]]:
    taken = []
    while (one := reader.take()) is not None:
        taken.append(one)
    return taken


@given(frames, st.lists(st.integers(0, 500)))
def test_frames_round_trip_however_the_stream_is_split(
    sent: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    positions = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    reader = ThinFrameReader()

    taken = []
    for start, end in pairwise(positions):
        reader.feed(stream[start:end])
        taken += take_all(reader)

    assert taken == sent


@given(frames)
def test_request_is_a_greeting_and_a_sequence_of_fields(fields: list[tuple[bytes, bytes]]) -> None:
    written = request(fields)
    outer, inner = ThinFrameReader(), ThinFrameReader()

    outer.feed(written.removeprefix(b"PAL1"))
    ((kind, payload),) = take_all(outer)
    inner.feed(payload)

    assert (written[:4], kind, take_all(inner)) == (b"PAL1", b"R", fields)


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=300), st.binary(max_size=300))
def test_output_frame_is_number_token_and_text(number: bytes, token: bytes, text: bytes) -> None:
    payload = number + len(token).to_bytes(2, "big") + token + text

    assert parse_output(payload) == (number, token, memoryview(text))


@given(st.binary(max_size=40))
def test_any_payload_is_safe_to_parse(payload: bytes) -> None:
    for parse in (parse_output, parse_limit):
        with contextlib.suppress(MalformedFrameError):
            parse(payload)


@pytest.mark.parametrize(("limit", "sent"), [(0, None), (1, 2), (2**32 - 1, 2**32)])
def test_limit_lets_one_more_byte_through(limit: int, sent: int | None) -> None:
    assert parse_limit(limit.to_bytes(4, "big") + b"rest") == (sent, b"rest")


def test_frame_beyond_the_limit_is_refused_by_its_header() -> None:
    reader = ThinFrameReader()

    reader.feed(b"O" + (FRAME_LIMIT_BYTES + 1).to_bytes(4, "big"))

    with pytest.raises(MalformedFrameError):
        reader.take()
