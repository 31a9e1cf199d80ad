"""Terminal output split into sequences, however it is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.emulator import PARAMS_LIMIT, STRING_LIMIT, Sequences


def split(*pieces: bytes) -> list[tuple[str | None, str]]:
    """Return kind and content of every part; join text that was cut."""
    sequences, parts = Sequences(), list[tuple[str | None, str]]()
    for piece in pieces:
        for found in sequences.split(piece):
            if parts and found.lastgroup == "text" == parts[-1][0]:
                parts[-1] = ("text", parts[-1][1] + found[0])
            else:
                parts.append((found.lastgroup, found[0]))
    return parts


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"plain \xc3\xa9", [("text", "plain é")]),
        (b"a\r\n", [("text", "a"), ("control", "\r"), ("control", "\n")]),
        (b"\x1b[1;31mx", [("final", "\x1b[1;31m"), ("text", "x")]),
        (b"\x1b[?2026$p", [("final", "\x1b[?2026$p")]),
        (b"\x1b]0;title\x07x", [("osc_end", "\x1b]0;title\x07"), ("text", "x")]),
        (b"\x1b]0;t\x1b\\x", [("osc_end", "\x1b]0;t"), ("escape", "\x1b\\"), ("text", "x")]),
        (b"\x1b]0;t\x1b[mx", [("osc", "\x1b]0;t"), ("final", "\x1b[m"), ("text", "x")]),
        (b"\x1b]0;t\x18x", [("osc", "\x1b]0;t\x18"), ("text", "x")]),
        (b"\x1b_Gi=31;AAAA\x1b\\x", [("string", "\x1b_Gi=31;AAAA"), ("escape", "\x1b\\"), ("text", "x")]),
        (b"\x1bP>|a\x18x", [("string", "\x1bP>|a\x18"), ("text", "x")]),
        (b"\x1b(B\x1b7", [("escape", "\x1b(B"), ("escape", "\x1b7")]),
        (b"\x1b[12\x01mx", [("control", "\x01"), ("text", "mx")]),
        (b"\x1b\x1bc", [("escape", "\x1bc")]),
        (b"\xff\xfe", [("text", "\ufffd\ufffd")]),
        (b"\x7f", [("control", "\x7f")]),
    ],
)
def test_output_is_split_into_its_parts(data: bytes, parts: list[tuple[str, str]]) -> None:
    assert split(data) == parts
    assert split(*(bytes([byte]) for byte in data)) == parts


def test_incomplete_sequence_waits_for_its_rest() -> None:
    sequences = Sequences()

    first = list(sequences.split(b"\x1b[3"))

    assert first == []
    assert sequences.tail == "\x1b[3"
    assert [found[0] for found in sequences.split(b"1m")] == ["\x1b[31m"]


@pytest.mark.parametrize(
    ("begin", "filler", "end"),
    [
        (b"\x1b]52;c;", b"A" * STRING_LIMIT * 2, b"\x07"),
        (b"\x1b]52;c;", b"A" * STRING_LIMIT * 2, b"\x1b\\"),
        (b"\x1bPq", b"#" * STRING_LIMIT * 2, b"\x1b\\"),
        (b"\x1b[", b"1;" * PARAMS_LIMIT, b"m"),
    ],
)
def test_oversized_sequence_is_skipped_with_bounded_memory(begin: bytes, filler: bytes, end: bytes) -> None:
    sequences, longest = Sequences(), 0
    for start in range(0, len(begin + filler), 1000):
        assert list(sequences.split((begin + filler)[start : start + 1000])) == []
        longest = max(longest, len(sequences.tail))

    parts = [found[0] for byte in end + b"after" for found in sequences.split(bytes([byte]))]

    assert "".join(part for part in parts if part != "\x1b\\") == "after"
    assert longest <= STRING_LIMIT + 2


terminal_bytes = st.lists(
    st.sampled_from(
        [b"\x1b", b"[", b"]", b"P", b"\\", b"\x07", b"\x18", b"0;", b"1", b"m", b"\xc2\x9b", b"\xe2\x9c"]
    )
    | st.binary(max_size=3)
).map(b"".join)


@given(terminal_bytes, st.lists(st.integers(0, 200), max_size=6))
def test_chunk_boundaries_make_no_difference(data: bytes, cuts: list[int]) -> None:
    cuts_at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in pairwise(cuts_at)]

    assert split(*pieces) == split(data)


@pytest.mark.parametrize(
    ("data", "is_complete"),
    [
        (b"", True),
        (b"text\x1b[31m", True),
        (b"text\x1b", False),
        (b"\x1b[3", False),
        (b"\x1b]2;title", False),
        (b"\x1b]2;title\x07", True),
        (b"\x1b]2;" + b"x" * (STRING_LIMIT + 10), False),
        ("€".encode()[:2], False),
        ("€".encode(), True),
    ],
)
def test_output_is_complete_between_sequences_and_characters(data: bytes, *, is_complete: bool) -> None:
    sequences = Sequences()

    list(sequences.split(data))

    assert sequences.is_complete is is_complete
