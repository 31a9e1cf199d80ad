"""The wire of the thin client: frames and the fields of a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import BadRequest
from palaver.protocol.thin import (
    LIMIT_FRAME_BYTES,
    FrameReader,
    ThinRequest,
    asked_from_bytes,
    frame,
    output_frame,
    read_frame,
)

KEY = bytes(range(16))

frames = st.lists(st.tuples(st.binary(min_size=1, max_size=1), st.binary(max_size=200)), max_size=8)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Split bytes into pieces of these sizes, and the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


@given(frames, st.lists(st.integers(min_value=0, max_value=40)))
def test_frames_survive_any_split_of_the_stream(sent: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    reader = FrameReader()
    stream = b"".join(frame(kind, payload) for kind, payload in sent)

    received = [one for piece in cut(stream, sizes) for one in reader.feed(piece)]

    assert received == sent


def test_frame_over_the_limit_is_refused_by_its_header_alone() -> None:
    whole = list(FrameReader().feed(frame(b"D", b"x" * LIMIT_FRAME_BYTES)))

    assert len(whole[0][1]) == LIMIT_FRAME_BYTES
    with pytest.raises(BadRequest, match="over the limit"):
        list(FrameReader().feed(b"D" + (LIMIT_FRAME_BYTES + 1).to_bytes(4, "big")))


def test_output_frame_carries_its_number_token_and_bytes() -> None:
    assert output_frame(7, b"42", b"text") == frame(b"O", b"\0\0\0\7\0\x0242text")


def test_standard_input_and_a_file_are_requested_with_a_limit() -> None:
    assert read_frame(5) == frame(b"I", b"\0\0\0\5")
    assert read_frame(5, b"a/b") == frame(b"F", b"\0\0\0\5a/b")


def request_to_bytes(asked: ThinRequest) -> bytes:
    """Encode a request as a client does."""
    terminals = (asked.stdin_is_terminal, asked.stdout_is_terminal, asked.stderr_is_terminal)
    fields = [(b"k", asked.key), (b"v", asked.version.encode()), (b"d", asked.cwd.encode())]
    fields += [(b"a", word.encode("utf-8", "surrogateescape")) for word in asked.argv]
    fields += [(b"e", f"{name}={value}".encode()) for name, value in asked.environment.items()]
    fields += [(b"t", b"".join(b"%d" % one for one in terminals)), (b"w", str(asked.width).encode())]
    if asked.resume is not None:
        fields.append((b"r", asked.resume))
    if asked.can:
        fields.append((b"c", asked.can))
    fields.append((b"n", asked.build.encode()))
    return b"".join(frame(tag, value) for tag, value in fields)


@given(
    st.builds(
        ThinRequest,
        key=st.binary(min_size=16, max_size=16),
        version=words,
        argv=st.lists(words | st.just("\udcff")).map(tuple),
        cwd=words,
        environment=st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), words, max_size=4),
        stdin_is_terminal=st.booleans(),
        stdout_is_terminal=st.booleans(),
        stderr_is_terminal=st.booleans(),
        width=st.integers(min_value=0, max_value=99_999),
        resume=st.none() | st.binary(max_size=20),
        can=st.binary(max_size=5),
        build=words,
    )
)
def test_request_is_read_back_as_it_was_written(asked: ThinRequest) -> None:
    assert asked_from_bytes(request_to_bytes(asked)) == asked


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_an_error(payload: bytes) -> None:
    try:
        asked = asked_from_bytes(payload)
    except BadRequest:
        return
    assert len(asked.key) == 16


def test_missing_request_fields_have_defaults() -> None:
    asked = asked_from_bytes(frame(b"k", KEY))

    assert (asked.argv, asked.version, asked.cwd, asked.width, asked.resume) == ((), "0", "/", 0, None)
    assert not asked.stdout_is_terminal


@pytest.mark.parametrize("width", [b"", b"-1", b"x", b"123456", b"\xb2"])
def test_invalid_width_is_unknown(width: bytes) -> None:
    assert asked_from_bytes(frame(b"k", KEY) + frame(b"w", width)).width == 0
