"""A terminal's state: modes, queries, status and title of the program, and sequences it cannot process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.emulator import ANSWER_LIMIT, Emulator, Keys, Status, change_keys, parse_status


@pytest.fixture
def terminal() -> Emulator:
    return Emulator(20, 4)


def text(terminal: Emulator) -> list[str]:
    return [terminal.grid.row_text(y) for y in range(terminal.grid.lines)]


@pytest.mark.parametrize(
    ("data", "first"),
    [
        (b"hello\rj", "jello"),
        (b"ab\x08c", "ac"),
        (b"a\tb", "a       b"),
        (b"\x1b[1;3Hx", "  x"),
        (b"\x1b[3Gx\x1b[1`y", "y x"),
        (b"abc\x1b[2Dx", "axc"),
        (b"\x1b[2Cx", "  x"),
        (b"abcdef\x1b[1G\x1b[2P", "cdef"),
        (b"ab\x1b[1G\x1b[2@", "  ab"),
        (b"abc\x1b[1G\x1b[2X", "  c"),
        (b"abc\x1b[2D\x1b[K", "a"),
        (b"abc\x1b[1D\x1b[1K", ""),
        (b"abc\x1b[2K", ""),
        (b"abc\x1b[9K", "abc"),
        (b"a\x1b[3b", "aaaa"),
        (b"\x1b[Ix\x1b[Zy", "        y"),
        (b"x\x1b[2Zy", "y"),
        (b"abc\x1b[2J\x1b[Hz", "z"),
        (b"x\x1b[s\x1b[5Gy\x1b[uz", "xz  y"),
        (b"x\x1b7\x1b[5Gy\x1b8z", "xz  y"),
        (b"\x1b[4habc\x1b[1Gx\x1b[4l", "xabc"),
        (b"\x1b(0q\x1b(Bq", "─q"),
        (b"\x0eq\x0fq", "─q"),
        (b"\x1b[31;1mred\x1b[m", "red"),
        (b"\x1b[38:2::1:2:3mx\x1b[38:5:4my\x1b[4:3mz", "xyz"),
        (b"\x1b[>4;2m\x1b[<u\x1b[=0;1u\x1b[?1ux", "x"),
        (b"\x1b_Gi=31;AAAA\x1b\\x", "x"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b[999999999999Cx", " " * 19 + "x"),
        (b"\x1b[3gx\ty", "x" + " " * 18 + "y"),
        (b"\x1b[5G\x1bH\x1b[1G\ty", "    y"),
    ],
)
def test_sequences_have_their_effect(terminal: Emulator, data: bytes, first: str) -> None:
    terminal.feed(data)

    assert text(terminal)[0] == first
    assert terminal.is_readable


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"one\r\ntwo\x1b[Lx", ["one", "x", "two", ""]),
        (b"one\r\ntwo\x1b[H\x1b[M", ["two", "", "", ""]),
        (b"one\r\ntwo\x1b[S", ["two", "", "", ""]),
        (b"one\x1b[T", ["", "one", "", ""]),
        (b"one\x1b[Bx\x1b[Ay", ["one y", "   x", "", ""]),
        (b"one\x1b[Ex\x1b[Fy", ["yne", "x", "", ""]),
        (b"one\x1b[3dx\x1b[ey", ["one", "", "   x", "    y"]),
        (b"a\nb\x0bc\x0cd", ["a", " b", "  c", "   d"]),
        (b"one\x1bDx\x1bMy", ["one y", "   x", "", ""]),
        (b"one\x1bEx", ["one", "x", "", ""]),
        (b"\x1b[2;3ra\x1b[3;1Hb\nc\x1b[r", ["a", "b", " c", ""]),
        (b"\x1b[2;3r\x1b[1r\x1b[3;1Ha\nb", ["", "", "a", " b"]),
        (b"\x1b[2;3r\x1b[;3ra\x1b[3;1Hb\nc", ["", "b", " c", ""]),
        (b"a\x1b[Jb\x1b[1Jc\x1b[7J", ["  c", "", "", ""]),
        (b"\x1b#8\x1b[2J\x1b[H.", [".", "", "", ""]),
    ],
)
def test_lines_move_correctly(terminal: Emulator, data: bytes, rows: list[str]) -> None:
    terminal.feed(data)

    assert text(terminal) == rows


def test_modes_are_kept_until_they_are_reset(terminal: Emulator) -> None:
    terminal.feed(b"\x1b[?2004;1004h\x1b[?2026h")
    on = (terminal.has_paste_mode, terminal.has_focus_mode, terminal.is_mid_frame)
    terminal.feed(b"\x1b[?2004l\x1b[?1004l\x1b[?2026l")

    assert on == (True, True, True)
    assert not any((terminal.has_paste_mode, terminal.has_focus_mode, terminal.is_mid_frame))


def test_cursor_can_be_hidden(terminal: Emulator) -> None:
    terminal.feed(b"\x1b[?25l")

    assert terminal.grid.cursor.hidden


def test_reset_clears_everything(terminal: Emulator) -> None:
    terminal.feed(b"text\x1b[?1049h\x1b[?2004h\x1bc")

    assert text(terminal) == ["", "", "", ""]
    assert not terminal.has_paste_mode
    assert not terminal.grid.is_alternate


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (b"\x1b[c", b"\x1b[?62;22c"),
        (b"\x1b[0c", b"\x1b[?62;22c"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"ab\x1b[6n", b"\x1b[1;3R"),
        (b"x" * 20 + b"\x1b[6n", b"\x1b[1;20R"),
        (b"\x1b[18t", b"\x1b[8;4;20t"),
        (b"\x1b[>q", b"\x1bP>|palaver\x1b\\"),
        (b"\x1b[>c", b"\x1b[>0;0;0c"),
        (b"\x1b[?2004h\x1b[?2004$p", b"\x1b[?2004;1$y"),
        (b"\x1b[?2026$p", b"\x1b[?2026;2$y"),
        (b"\x1b[?9999$p", b"\x1b[?9999;0$y"),
        (b"\x1b]10;?\x07", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
        (b"\x1b]11;?\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
        (b"\x1b[99x\x1b[?7x\x1b]4;0;?\x07", b""),
    ],
)
def test_queries_are_answered_when_no_viewer_terminal_is_attached(
    terminal: Emulator, question: bytes, answer: bytes
) -> None:
    terminal.feed(question)

    assert terminal.take_answers(is_attended=False) == answer
    assert terminal.take_answers(is_attended=False) == b""


def test_only_the_status_probe_is_answered_with_a_terminal_attached(terminal: Emulator) -> None:
    terminal.feed(b"\x1b[c\x1b]7501;?\x1b\\\x1b[6n")

    assert terminal.take_answers(is_attended=True) == b"\x1b]7501;?ok\x1b\\"
    assert terminal.take_answers(is_attended=False) == b""


def test_output_without_queries_gets_no_reply(terminal: Emulator) -> None:
    terminal.feed(b"hello \x1b]7501;state=idle\x07")

    assert terminal.take_answers(is_attended=False) == b""


def test_queries_are_answered_up_to_a_limit(terminal: Emulator) -> None:
    terminal.feed(b"\x1b[5n" * (ANSWER_LIMIT * 3))

    assert terminal.take_answers(is_attended=False) == b"\x1b[0n" * ANSWER_LIMIT


def test_newest_status_and_title_are_returned_once(terminal: Emulator) -> None:
    terminal.feed(b"\x1b]0;one\x07\x1b]7501;state=working:app=x\x07\x1b]2;two\x07\x1b]7501;nothing\x07")

    assert terminal.take_reports() == [Status("working"), "two"]
    assert terminal.take_reports() == []
    assert (terminal.title, terminal.status) == ("two", Status("working"))


def test_status_of_a_subagent_is_not_the_status_of_the_program(terminal: Emulator) -> None:
    terminal.feed(b"\x1b]7501;state=done:app=x\x07\x1b]7501;state=working:id=a\x07")
    terminal.feed(b"\x1b]7501;state=working:id=b\x07\x1b]7501;state=clear:id=a\x07")

    assert terminal.take_reports() == [Status("done")]
    assert (terminal.status, terminal.workers) == (Status("done"), {"b"})


def test_number_of_tracked_subagents_is_limited(terminal: Emulator) -> None:
    for number in range(2_000):
        terminal.feed(b"\x1b]7501;state=working:id=%d\x07" % number)

    assert len(terminal.workers) == 1_000


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ("state=idle", Status("idle")),
        (
            "state=blocked:app=a:kind=permission:msg=YXBwcm92ZQ==",
            Status("blocked", "permission", "approve"),
        ),
        ("state=done:msg=%%%", Status("done")),
        ("state=working:app=a:id=a1:title=bG9vaw==", Status("working", about="a1")),
        ("app=x", None),
        ("", None),
    ],
)
def test_status_is_parsed_from_its_fields(fields: str, status: Status | None) -> None:
    assert parse_status(fields) == status


BREAKS_PYTE = b"\x1b[?6h\x1b[5d"
"""Origin mode without margins, which fails an assertion in pyte."""


def test_failed_sequence_makes_screen_unreadable_but_parsing_continues(
    terminal: Emulator,
) -> None:
    terminal.feed(BREAKS_PYTE + b"after\x1b[?2004h")

    assert not terminal.is_readable
    assert terminal.has_paste_mode


@pytest.mark.parametrize(
    "redraw",
    [
        *(b"\x1b[2J", b"\x1bc", b"\x1b[?1049h", b"\x1b[?6l" + b"line\r\n" * 8),
        *(b"\x1b[?6l\x1b[H\x1b[J", b"\x1b[?6l\x1b[H\x1b[0J"),
    ],
)
def test_redrawn_screen_is_readable_again(terminal: Emulator, redraw: bytes) -> None:
    terminal.feed(BREAKS_PYTE)

    terminal.feed(redraw)

    assert terminal.is_readable


def test_cleared_scrollback_does_not_make_the_screen_readable(terminal: Emulator) -> None:
    terminal.feed(b"line\r\n" * 9 + BREAKS_PYTE)

    terminal.feed(b"\x1b[3J")

    assert not terminal.grid.scrollback
    assert not terminal.is_readable


def test_screen_that_is_cleared_below_its_first_line_stays_unreadable(terminal: Emulator) -> None:
    terminal.feed(b"line\r\n" * 4 + BREAKS_PYTE + b"\x1b[?6l")

    terminal.feed(b"\x1b[2;1H\x1b[J\x1b[1;2H\x1b[J\x1b[H\x1b[1J")

    assert not terminal.is_readable


def test_a_few_more_lines_do_not_make_the_screen_readable(terminal: Emulator) -> None:
    terminal.feed(BREAKS_PYTE + b"\x1b[?6l")

    terminal.feed(b"line\r\n" * 4)

    assert not terminal.is_readable


def test_unreadable_main_screen_stays_so_after_the_alternate_one(terminal: Emulator) -> None:
    terminal.feed(BREAKS_PYTE + b"\x1b[?6l")

    terminal.feed(b"\x1b[?1049h" + b"line\r\n" * 8)
    alternate = terminal.is_readable
    terminal.feed(b"\x1b[?1049l")

    assert (alternate, terminal.is_readable) == (True, False)
    terminal.feed(b"line\r\n" * 8)
    assert terminal.is_readable


def test_readable_main_screen_stays_so_after_the_alternate_one(terminal: Emulator) -> None:
    terminal.feed(b"main\x1b[?1049halternate\x1b[?1049l")

    assert terminal.is_readable
    assert text(terminal)[0] == "main"


def test_unreadable_alternate_screen_makes_the_main_one_unreadable(terminal: Emulator) -> None:
    terminal.feed(b"main\x1b[?1049h" + BREAKS_PYTE + b"\x1b[?6l\x1b[2J")
    alternate = terminal.is_readable

    terminal.feed(b"\x1b[?1049l")

    assert (alternate, terminal.is_readable) == (True, False)


def test_second_request_for_the_alternate_screen_does_not_make_it_readable(terminal: Emulator) -> None:
    terminal.feed(b"\x1b[?1049hold" + BREAKS_PYTE)

    terminal.feed(b"\x1b[?1049h")

    assert not terminal.is_readable


def test_smaller_screen_with_old_lines_stays_unreadable(terminal: Emulator) -> None:
    rows = terminal.grid.lines
    terminal.feed(b"old\r\n" * rows + BREAKS_PYTE + b"\x1b[?6l")

    terminal.feed(b"\x1b[%dH" % rows + b"new\r\n" * (rows // 2) + b"\x1b[H")
    terminal.resize(20, rows // 2)
    terminal.feed(b"\x07")

    assert text(terminal)[0] == "old"
    assert not terminal.is_readable


def test_terminal_can_shrink_and_grow(terminal: Emulator) -> None:
    terminal.feed(b"one\r\ntwo\r\nthree\r\nfour")

    terminal.resize(3, 2)
    small = text(terminal)
    terminal.resize(30, 5)

    assert small == ["thr", "fou"]
    assert terminal.grid.columns == 30
    assert 0 <= terminal.grid.cursor.y < 5


def test_failed_resize_makes_the_screen_unreadable(terminal: Emulator) -> None:
    terminal.grid.buffer = None  # type: ignore[assignment]  # no resize survives this

    terminal.resize(3, 2)

    assert not terminal.is_readable


PARTS = r"\x1b[ \x1b] \x1bP ? 6 ; h l r d H J L M S T 1049 38 b g \x1b7 \x1b8 \x1bc \n \r text \x07 @ P X"
garbage = st.lists(
    st.sampled_from([part.encode().decode("unicode_escape").encode() for part in PARTS.split()])
    | st.binary(max_size=6),
    max_size=60,
).map(b"".join)


@given(garbage, st.integers(1, 9), st.integers(1, 5), st.tuples(st.integers(1, 9), st.integers(1, 5)))
def test_any_bytes_are_safe(data: bytes, columns: int, rows: int, size: tuple[int, int]) -> None:
    terminal = Emulator(columns, rows)

    terminal.feed(data)
    terminal.resize(*size)
    terminal.feed(data)
    terminal.take_answers(is_attended=False)

    assert len(text(terminal)) == size[1]
    assert all(len(row) <= size[0] * 2 for row in text(terminal))


def test_requested_keyboard_modes_are_known() -> None:
    terminal = Emulator(20, 5)
    seen = []

    for piece in (
        b"\x1b[>1u",
        b"\x1b[>5u",
        b"\x1b[<u",
        b"\x1b[=8;2u",
        b"\x1b[<9u",
        b"\x1b[>4;2m\x1b[4 q",
        b"\x1bc",
    ):
        terminal.feed(piece)
        seen.append(terminal.keys)

    flags = [Keys(1), Keys(5), Keys(1), Keys(9), Keys(0)]
    assert seen == [*flags, Keys(0, other=2, style=4), Keys()]


@given(st.lists(st.builds(Keys, st.integers(0, 31), st.integers(0, 2), st.integers(0, 6)), min_size=1))
def test_keyboard_modes_change_to_the_requested_ones(wanted: list[Keys]) -> None:
    terminal, before = Emulator(20, 5), Keys()

    for keys in wanted:
        terminal.feed(change_keys(before, keys))
        before = keys

    assert terminal.keys == wanted[-1]
