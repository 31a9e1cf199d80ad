"""A redrawn screen looks and behaves like the original."""

from hypothesis import given
from hypothesis import strategies as st
from pyte.screens import Char

from palaver.terminal.emulator import KEPT_MODES, MODE_KEYPAD, Emulator, redraw

COLS, ROWS = 20, 6

PIECES = st.one_of(
    st.sampled_from(
        [b"hello", b"  two words", "é→".encode(), "漢字".encode(), b"\r\n", b"\r", b"\x1b[2J", b"\x1b[K"]
    ),
    st.builds(lambda row, col: b"\x1b[%d;%dH" % (row, col), st.integers(1, ROWS), st.integers(1, COLS)),
    st.builds(lambda code: b"\x1b[%dm" % code, st.sampled_from([0, 1, 2, 3, 4, 7, 9, 22, 31, 42, 93, 104])),
    st.builds(lambda colour: b"\x1b[38;5;%dm" % colour, st.integers(0, 255)),
    st.builds(lambda red: b"\x1b[48;2;%d;7;9m" % red, st.integers(0, 255)),
    st.builds(
        lambda mode, sign: b"\x1b[?%d%s" % (mode, sign),
        st.sampled_from([*KEPT_MODES, 25, 1049]),
        st.sampled_from([b"h", b"l"]),
    ),
    st.sampled_from([b"\x1b]2;a title\x07", b"\x1b[2;4r", b"\x1b[r"]),
    st.sampled_from([b"\x1b[>1u", b"\x1b[>5u", b"\x1b[<u", b"\x1b[=3;2u", b"\x1b[=1;3u", b"\x1b[=7u"]),
    st.sampled_from([b"\x1b[>4;2m", b"\x1b[>4m", b"\x1b[4 q", b"\x1b[ q"]),
)


def cells(terminal: Emulator) -> list[list[object]]:
    """Return all cells; a written blank cell equals an unwritten one."""
    grid = terminal.grid
    rows: list[list[object]] = []
    for y in range(grid.lines):
        line: dict[int, Char] = grid.buffer.get(y) or {}
        rows.append([line.get(x, grid.default_char) for x in range(grid.columns)])
    return rows


def behaviour(terminal: Emulator) -> object:
    grid = terminal.grid
    return (
        terminal.modes & set(KEPT_MODES),
        terminal.title,
        terminal.keys,
        grid.margins,
        grid.is_alternate,
        (grid.cursor.y, min(grid.cursor.x, COLS - 1), grid.cursor.hidden, grid.cursor.attrs[1:]),
    )


@given(st.lists(PIECES, max_size=25))
def test_redrawn_screen_equals_the_original(pieces: list[bytes]) -> None:
    drawn, copied = Emulator(COLS, ROWS), Emulator(COLS, ROWS)
    for piece in pieces:
        drawn.feed(piece)

    copied.feed(redraw(drawn))

    assert cells(copied) == cells(drawn)
    assert behaviour(copied) == behaviour(drawn)


@given(st.lists(PIECES, max_size=15), st.lists(PIECES, max_size=15))
def test_previous_content_of_the_other_terminal_is_removed(old: list[bytes], new: list[bytes]) -> None:
    drawn, copied = Emulator(COLS, ROWS), Emulator(COLS, ROWS)
    for piece in new:
        drawn.feed(piece)
    for piece in old:
        copied.feed(piece)

    copied.feed(redraw(drawn))

    assert cells(copied) == cells(drawn)
    assert behaviour(copied) == behaviour(drawn)


def test_title_cannot_end_its_sequence() -> None:
    drawn, copied = Emulator(COLS, ROWS), Emulator(COLS, ROWS)
    drawn.title = "a\x07b\x1bc"

    copied.feed(redraw(drawn))

    assert copied.title == "abc"


def test_palette_colours_are_written_by_their_number() -> None:
    drawn = Emulator(COLS, ROWS)
    drawn.feed(b"\x1b[38;5;208mx\x1b[48;2;1;2;3my")

    data = redraw(drawn)

    assert b"38;5;208" in data
    assert b"48;2;1;2;3" in data


def test_keypad_mode_is_restored() -> None:
    drawn, copied = Emulator(COLS, ROWS), Emulator(COLS, ROWS)
    drawn.feed(b"\x1b=")

    copied.feed(redraw(drawn))

    assert MODE_KEYPAD in copied.modes
    copied.feed(b"\x1b>")
    assert MODE_KEYPAD not in copied.modes
