"""A person's typed but unsent text."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.keyboard import DRAFT_LIMIT, PIECE_LIMIT, Keyboard


def typed(*pieces: bytes) -> Keyboard:
    keyboard = Keyboard()
    for now_ms, piece in enumerate(pieces, 1):
        keyboard.press(piece, now_ms)
    return keyboard


@pytest.mark.parametrize(
    ("keys", "draft"),
    [
        (b"hello", "hello"),
        (b"hello\r", ""),
        (b"hello\n", ""),
        (b"hello\x03", ""),
        (b"hello\x15", ""),
        (b"hello\x04", "hello"),
        (b"hello\x0c\x0b\x1b[3~", "hello"),
        (b"hello\x7f\x7f", "hel"),
        (b"h\x08", ""),
        (b"two words\x17", "two "),
        (b"two words\x17\x17", ""),
        (b"word\x17", ""),
        (b"hello\rmore", "more"),
        (b"\x1b[200~one\rtwo\x1b[201~", "one\rtwo"),
        (b"\x1b[200~one\x1b[201~\r", ""),
        ("é".encode(), "é"),
        (b"\x1b[D\x1b[C\x1bOH\x01", ""),
        (b"ab\x1bOM", ""),
        (b"x\x01", "x"),
        (b"\x1b[97u\x1b[98;2u", "ab"),
        (b"a\x1b[13u", ""),
        (b"a\x1b[27;5;99~", ""),
        (b"a\x1b[99;5u", ""),
        (b"ab\x1b[127u", "a"),
        (b"a\x1b[57441;1:3u", "a"),
        (b"a\x1b[;1u", "a"),
    ],
)
def test_draft_is_the_text_typed_since_the_last_enter(keys: bytes, draft: str) -> None:
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
def test_terminal_report_is_not_a_key(report: bytes) -> None:
    keyboard = typed(report)

    assert not keyboard.has_draft
    assert keyboard.count == 0


def test_time_of_the_last_key_is_known() -> None:
    keyboard = typed(b"a", b"\x1b[I", b"\x1b")

    assert keyboard.last_ms == 3
    assert keyboard.count == 2


@pytest.mark.parametrize(
    "keys",
    [
        b"\x1b[A",
        b"\x1bOA",
        b"\x10",
        b"\x19",
        b"\x12x\x15",
        b"\t",
        b"\x1bb",
        b"\x1b[5~",
        b"\x1b[1;2P",
        b"abc\x1b[H\x7f\x7f\x7f",
        b"abc\x1b[1~\x7f\x7f\x7f",
        b"abc\x01\x15",
        b"abc\x01\x04",
        b"abc\x01\x17",
        b"abc\x1b[D\x15",
        b"abc\x1b\x15",
        b"one\x1b\r\x15",
        b"a\x1b[13;2u\x15",
        b"foo/bar\x17\x7f\x7f\x7f\x7f",
        b"\x1b[200~one\ntwo\x1b[201~\x15",
        "é".encode() + b"\x7f",
        b"x" * (DRAFT_LIMIT + 1) + b"\x7f" * DRAFT_LIMIT,
        b"x" * (DRAFT_LIMIT + 1) + b"\x15",
        b"\x1b[97;3u",
        b"x" * (PIECE_LIMIT + 1) + b"\x15",
    ],
)
def test_unclear_key_counts_as_a_draft_until_enter(keys: bytes) -> None:
    keyboard = typed(keys)
    had_draft = keyboard.has_draft

    keyboard.press(b"\r", 2)

    assert had_draft
    assert not keyboard.has_draft


def test_ctrl_c_ends_an_unclear_draft() -> None:
    assert not typed(b"\x1b[A", b"\x03").has_draft


def test_very_long_draft_is_still_a_draft() -> None:
    keyboard = typed(b"x" * (DRAFT_LIMIT * 2))

    assert keyboard.has_draft
    assert len(keyboard.draft) == DRAFT_LIMIT


@pytest.mark.parametrize("keys", [b"", b"half", b"half\x1b[D", b"\x1b[200~half", b"\x1b[", b"sent\r"])
def test_restored_keyboard_still_knows_the_draft(keys: bytes) -> None:
    before, after = typed(keys), Keyboard()

    after.take_up(before.keep())
    after.press(b"\x15", 9)

    assert after.has_draft == (keys not in (b"", b"half", b"sent\r"))
    assert after.count == before.count + 1


class Line:
    """A line with readline's editing keys."""

    def __init__(self) -> None:
        self.text, self.at = "", 0

    def press(self, key: bytes) -> None:
        text, at = self.text, self.at
        match key:
            case b"\x1b[D" | b"\x02":
                self.at = max(at - 1, 0)
            case b"\x1b[C" | b"\x06":
                self.at = min(at + 1, len(text))
            case b"\x01" | b"\x1b[H":
                self.at = 0
            case b"\x05" | b"\x1b[F":
                self.at = len(text)
            case b"\x7f":
                self.text, self.at = text[: max(at - 1, 0)] + text[at:], max(at - 1, 0)
            case b"\x04" | b"\x1b[3~":
                self.text = text[:at] + text[at + 1 :]
            case b"\x15":
                self.text, self.at = text[at:], 0
            case b"\x0b":
                self.text = text[:at]
            case b"\x17":
                left = text[:at].rstrip()
                left = left[: left.rfind(" ") + 1]
                self.text, self.at = left + text[at:], len(left)
            case b"\x1b[A":
                self.text, self.at = "history", 7
            case b"\r" | b"\x03":
                self.text, self.at = "", 0
            case _:
                self.text, self.at = text[:at] + key.decode() + text[at:], at + 1


LINE_KEYS = (
    *(
        b"a",
        b"b",
        b" ",
        b"/",
        b"\x7f",
        b"\x15",
        b"\x17",
        b"\x04",
        b"\x0b",
        b"\x01",
        b"\x05",
        b"\x02",
        b"\x06",
    ),
    *(b"\x1b[D", b"\x1b[C", b"\x1b[H", b"\x1b[F", b"\x1b[3~", b"\x1b[A", b"\r", b"\x03"),
)


@given(st.lists(st.sampled_from(LINE_KEYS), max_size=30))
def test_keyboard_has_a_draft_whenever_the_line_is_not_empty(keys: list[bytes]) -> None:
    line, keyboard = Line(), Keyboard()

    for key in keys:
        line.press(key)
        keyboard.press(key, 1)

        assert keyboard.has_draft or not line.text


def test_draft_can_be_forgotten() -> None:
    keyboard = typed(b"half")

    keyboard.forget()

    assert not keyboard.has_draft


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_any_input_is_safe(pieces: list[bytes]) -> None:
    assert typed(*pieces).count <= len(pieces)


@pytest.mark.parametrize(
    ("pieces", "is_pasting"),
    [
        ([b"\x1b[200~text"], True),
        ([b"\x1b[200~text\x1b[20", b"1~"], False),
        ([b"\x1b[200~text\x1b]0;title\x1b[201~"], False),
        ([b"\x1b[200~" + b"x" * PIECE_LIMIT], True),
        ([b"\x1b[200~", b"text\x1b[201~" + b"x" * PIECE_LIMIT], False),
        ([b"\x1b[200~", b"text\x1b[201~" + b"x" * (PIECE_LIMIT - 2)], False),
        ([b"\x1b[200~", b"text\x1b[201~" + b"x" * (PIECE_LIMIT - 6)], False),
        ([b"\x1b[201~\x1b[200~" + b"x" * PIECE_LIMIT + b"\x1b[201~"], False),
    ],
)
def test_paste_lasts_until_its_end_however_long_it_is(pieces: list[bytes], is_pasting: bool) -> None:
    assert typed(*pieces).is_pasting is is_pasting


@pytest.mark.parametrize(
    "keys",
    [b"\x1b[1<u", b"\x1b[27;1;1<~", b"\x1b[1=;5u", b"\x1b[1;?u", b"\x1b[99999999999;99999999999u"],
)
def test_broken_numbers_of_a_key_make_the_draft_unknown(keys: bytes) -> None:
    keyboard = typed(b"text", keys)

    assert keyboard.has_draft
    assert not keyboard.is_left_alone
    assert keyboard.count == 2


@pytest.mark.parametrize("form", ["\x1b[{}u", "\x1b[27;1;{}~", "\x1b[27;{}~"])
def test_no_parameters_of_a_key_raise_an_error(form: str) -> None:
    # Random bytes alone almost never form such a key, so this tries all short parameters.
    for params in product("17:;<?", repeat=3):
        typed(form.format("".join(params)).encode())
