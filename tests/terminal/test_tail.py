"""Incomplete sequences at the end of output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.emulator import unfinished

WHOLE = st.sampled_from(
    [
        b"hello",
        b"\x1b[31m",
        b"\x1b[?1049h",
        b"\x1b]2;title\x07",
        b"\x1b]2;t\x1b\\",
        "é→😀".encode(),
        b"\x1bM",
        b"\r\n",
    ]
)


@given(st.lists(WHOLE, max_size=5))
def test_complete_sequences_leave_nothing(parts: list[bytes]) -> None:
    assert unfinished(b"".join(parts)) == b""


@given(st.lists(WHOLE, max_size=4), WHOLE, st.integers(1, 8))
def test_cut_sequence_is_returned_from_its_beginning(parts: list[bytes], last: bytes, seq: int) -> None:
    begun = last[:seq]
    if begun == last or last == b"hello" or last == b"\r\n":
        return

    left = unfinished(b"".join(parts) + begun)

    assert left == b"" or begun.endswith(left)
    assert (begun + last[seq:]).endswith(left + last[seq:])


@pytest.mark.parametrize(
    "begun",
    [
        b"\x1b",
        b"\x1b[",
        b"\x1b[38;5",
        b"\x1b]0;half a title",
        b"\x1b]0;t\x1b",
        b"\x1bP1;2",
        b"\xe2\x86",
        b"\xf0",
    ],
)
def test_beginnings_of_sequences_are_recognised(begun: bytes) -> None:
    assert unfinished(b"text " + begun) == begun


def test_unterminated_string_is_dropped_beyond_a_limit() -> None:
    assert unfinished(b"\x1b]0;" + b"x" * 20_000) == b""
