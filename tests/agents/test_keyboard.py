"""What a person has typed and not sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.agents.keyboard import DRAFT_LIMIT, Keyboard


def typed(*pieces: bytes) -> Keyboard:
    keyboard = Keyboard()
    for moment, piece in enumerate(pieces, 1):
        keyboard.press(piece, moment)
    return keyboard


@pytest.mark.parametrize(
    ("keys", "draft"),
    [
        (b"hello", "hello"),
        (b"hello\r", ""),
        (b"hello\n", ""),
        (b"hello\x03", ""),
        (b"hello\x15", ""),
        (b"hello\x04", ""),
        (b"hello\x7f\x7f", "hel"),
        (b"h\x08", ""),
        (b"two words\x17", "two"),
        (b"word\x17", ""),
        (b"hello\rmore", "more"),
        (b"one\x1b\rtwo", "one\ttwo"),
        (b"\x1b[200~one\rtwo\x1b[201~", "one\rtwo"),
        (b"\x1b[200~one\x1b[201~\r", ""),
        ("é".encode(), "é"),
        (b"a\x1b[D\x1b[Cb", "ab"),
        (b"x\x01", "x"),
        (b"\x1b[97u\x1b[98;2u", "ab"),
        (b"a\x1b[13u", ""),
        (b"a\x1b[13;2u", "a"),
        (b"a\x1b[99;5u", ""),
        (b"ab\x1b[127u", "a"),
        (b"a\x1b[57441;1:3u", "a"),
        (b"a\x1b[;1u", "a"),
    ],
)
def test_a_draft_is_what_was_typed_since_the_last_enter(keys: bytes, draft: str) -> None:
    keyboard = typed(keys)

    assert (keyboard.draft, keyboard.has_draft) == (draft, bool(draft))


@pytest.mark.parametrize(
    "report",
    [
        b"\x1b[I",
        b"\x1b[O",
        b"\x1b[<0;10;20M",
        b"\x1b[<35;1;1m",
        b"\x1b[M #!",
        b"\x1b[?62;22c",
        b"\x1b[3;7R",
        b"\x1b[0n",
        b"\x1b[?2026;2$y",
        b"\x1b[?1u",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1bP>|xterm\x1b\\",
        b"\x1b[8;24;80t",
        b"\x1b[97;1:3u",
    ],
)
def test_what_a_terminal_says_by_itself_is_no_key(report: bytes) -> None:
    keyboard = typed(report)

    assert not keyboard.has_draft
    assert keyboard.count == 0


def test_the_moment_of_the_last_key_is_known() -> None:
    keyboard = typed(b"a", b"\x1b[I", b"\x1b")

    assert keyboard.last_ms == 3
    assert keyboard.count == 2


def test_a_very_long_draft_is_still_a_draft() -> None:
    keyboard = typed(b"x" * (DRAFT_LIMIT * 2))

    assert keyboard.has_draft
    assert len(keyboard.draft) == DRAFT_LIMIT


def test_a_draft_can_be_forgotten() -> None:
    keyboard = typed(b"half")

    keyboard.forget()

    assert not keyboard.has_draft


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_nothing_that_is_typed_raises(pieces: list[bytes]) -> None:
    assert typed(*pieces).count <= len(pieces)
