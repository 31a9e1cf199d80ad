"""Drawing only the differences gives the same screen as drawing everything."""

from hypothesis import given
from hypothesis import strategies as st
from pyte.screens import Char

from palaver.app.attach.screen import (
    BLANK,
    Picture,
    Row,
    change_modes,
    draw,
    print_rows,
    screen_rows,
    text_row,
)
from palaver.terminal.emulator import FAINT, KEPT_MODES, Emulator

COLS, ROWS = 12, 4

KINDS = st.builds(
    Char,
    data=st.just(" "),
    fg=st.sampled_from(["default", "red", "brightblue", "5fd7ff", "010203", FAINT + "default"]),
    bg=st.sampled_from(["default", "green", "afaf87"]),
    bold=st.booleans(),
    reverse=st.booleans(),
)
SIGNS = st.sampled_from([*"ab 9|", "é", "─", "→", "漢", "字"])


@st.composite
def rows_of_cells(draw_one: st.DrawFn, width: int) -> Row:
    """Draw a valid row: wide characters have both halves."""
    cells: list[Char] = []
    kind = draw_one(KINDS)
    while len(cells) < width:
        if draw_one(st.booleans()):
            kind = draw_one(st.one_of(KINDS, st.just(BLANK)))
        sign = draw_one(SIGNS)
        is_wide = sign in "漢字" and len(cells) + 1 < width
        cells.append(kind._replace(data=sign if is_wide or sign not in "漢字" else "x"))
        if is_wide:
            cells.append(kind._replace(data=""))
    return tuple(cells)


def pictures(width: int = COLS, height: int = ROWS) -> st.SearchStrategy[Picture]:
    blank = st.just((BLANK,) * width)
    rows = st.lists(st.one_of(blank, rows_of_cells(width)), min_size=height, max_size=height)
    positions = st.tuples(st.integers(0, height - 1), st.integers(0, width - 1))
    return st.builds(Picture, rows.map(tuple), st.none() | positions)


def new_terminal(cols: int = COLS, rows: int = ROWS) -> Emulator:
    terminal = Emulator(cols, rows)
    terminal.feed(b"\x1b[?7l")
    return terminal


def shown(terminal: Emulator) -> object:
    grid = terminal.grid
    cursor = None if grid.cursor.hidden else (grid.cursor.y, grid.cursor.x)
    rows: list[list[Char]] = []
    for y in range(grid.lines):
        line = grid.buffer.get(y)
        rows.append([BLANK if line is None else line.get(x, BLANK) for x in range(grid.columns)])
    return rows, cursor


@given(st.lists(pictures(), min_size=1, max_size=4))
def test_drawing_changes_equals_drawing_everything(sequence: list[Picture]) -> None:
    terminal, whole = new_terminal(), new_terminal()
    before = None
    for picture in sequence:
        terminal.feed(draw(before, picture))
        before = picture

    whole.feed(draw(None, sequence[-1]))

    assert shown(terminal) == shown(whole)
    assert shown(terminal) == ([list(row) for row in sequence[-1].rows], sequence[-1].cursor)


@given(pictures(), st.binary(max_size=60))
def test_whole_picture_replaces_any_previous_content(picture: Picture, noise: bytes) -> None:
    terminal = new_terminal()
    terminal.feed(noise + b"\x18\x1b[r\x1b(B\x0f\x1b[4l\x1b[?6l\x1b[?5l\x1b[?1049l\x1b[?7l")

    terminal.feed(draw(None, picture))

    assert shown(terminal) == ([list(row) for row in picture.rows], picture.cursor)


@given(pictures())
def test_nothing_is_drawn_without_a_change(picture: Picture) -> None:
    assert draw(picture, picture) == b""


@given(pictures(), pictures(8, 3))
def test_another_size_is_drawn_completely(before: Picture, after: Picture) -> None:
    assert draw(before, after) == draw(None, after)


def test_one_changed_character_costs_a_few_bytes() -> None:
    before = Picture((text_row("hello", 80), text_row("world", 80)))
    after = Picture((text_row("hello", 80), text_row("wOrld", 80)))

    data = draw(before, after)

    assert b"O" in data
    assert b"hello" not in data
    assert len(data) < 60


@given(st.frozensets(st.sampled_from(KEPT_MODES)), st.frozensets(st.sampled_from(KEPT_MODES)))
def test_modes_change_to_the_requested_ones(before: frozenset[int], after: frozenset[int]) -> None:
    terminal = Emulator(COLS, ROWS)
    terminal.feed(change_modes(frozenset(), before))

    terminal.feed(change_modes(before, after))

    assert terminal.modes == after


def test_rows_are_printed_as_lines_with_their_colours() -> None:
    drawn, printed = Emulator(COLS, ROWS), Emulator(COLS, ROWS)
    drawn.feed("\x1b[31mred\x1b[0m é\r\n漢字".encode())

    printed.feed(print_rows(screen_rows(drawn.grid, 2, COLS)))

    assert screen_rows(printed.grid, ROWS, COLS) == screen_rows(drawn.grid, ROWS, COLS)
    assert printed.grid.cursor.y == 2
