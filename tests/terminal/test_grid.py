"""The cells of a screen: features that pyte lacks or implements differently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.emulator import FAINT, SCROLLBACK_LINES, Grid


def rows(grid: Grid) -> list[str]:
    return [grid.row_text(y) for y in range(grid.lines)]


@pytest.fixture
def grid() -> Grid:
    return Grid(10, 3)


def test_long_text_wraps_and_scrolls(grid: Grid) -> None:
    grid.draw("abcdefghijklmnopqrstuvwxyz0123456789")

    assert rows(grid) == ["klmnopqrst", "uvwxyz0123", "456789"]
    assert list(grid.scrollback) == ["abcdefghij"]


def test_without_wrapping_the_last_column_is_overwritten(grid: Grid) -> None:
    grid.reset_mode(7, private=True)

    grid.draw("abcdefghijklm")

    assert rows(grid)[0] == "abcdefghim"


def test_wide_character_takes_two_cells_and_is_never_split(grid: Grid) -> None:
    grid.draw("日本語日本語")

    assert rows(grid)[:2] == ["日本語日本", "語"]
    assert grid.cursor.x == 2


def test_zero_width_character_removes_nothing(grid: Grid) -> None:
    grid.draw("e\u0301✳\ufe0f ok")

    assert rows(grid)[0] == "é✳ ok"


def test_combining_character_at_the_start_is_dropped(grid: Grid) -> None:
    grid.draw("\u0301")

    assert rows(grid)[0] == ""


def test_insert_mode_moves_the_existing_text(grid: Grid) -> None:
    grid.draw("world")
    grid.carriage_return()
    grid.set_mode(4)

    grid.draw("é")

    assert rows(grid)[0] == "éworld"


def test_alternate_screen_starts_empty_and_preserves_the_main_screen(grid: Grid) -> None:
    grid.draw("first")

    grid.show_alternate(is_on=True)
    grid.show_alternate(is_on=True)
    empty = rows(grid)
    grid.draw("second")
    grid.show_alternate(is_on=False)

    assert empty == ["", "", ""]
    assert rows(grid)[0] == "first"
    assert (grid.cursor.x, grid.cursor.y) == (5, 0)


def test_reset_discards_the_main_screen(grid: Grid) -> None:
    grid.draw("first")
    grid.show_alternate(is_on=True)

    grid.reset()

    assert not grid.is_alternate
    assert rows(grid) == ["", "", ""]


def test_scrollback_is_bounded_and_excludes_the_alternate_screen(grid: Grid) -> None:
    for number in range(SCROLLBACK_LINES + 10):
        grid.draw(str(number))
        grid.carriage_return()
        grid.linefeed()
    before = len(grid.scrollback)
    grid.show_alternate(is_on=True)
    grid.scroll(2)

    assert before == len(grid.scrollback) == SCROLLBACK_LINES


def test_only_lines_inside_the_margins_scroll(grid: Grid) -> None:
    for y, text in enumerate(["one", "two", "three"]):
        grid.cursor_position(y + 1, 1)
        grid.draw(text)
    grid.set_margins(2, 3)

    grid.scroll(1)
    up = rows(grid)
    grid.scroll(-1)

    assert up == ["one", "three", ""]
    assert rows(grid) == ["one", "", "three"]
    assert list(grid.scrollback) == []


def test_saved_cursor_can_be_restored_repeatedly(grid: Grid) -> None:
    grid.cursor_position(2, 4)
    grid.save_cursor()

    for _ in range(2):
        grid.cursor_position(1, 1)
        grid.restore_cursor()

    assert (grid.cursor.y, grid.cursor.x) == (1, 3)


def test_without_a_saved_cursor_the_origin_is_restored(grid: Grid) -> None:
    grid.cursor_position(2, 4)

    grid.restore_cursor()

    assert (grid.cursor.y, grid.cursor.x) == (0, 0)


def test_faint_text_can_be_left_out(grid: Grid) -> None:
    grid.select_graphic_rendition(2)
    grid.draw("hint")
    grid.select_graphic_rendition(22)
    grid.draw(" text")

    assert grid.row_text(0) == "hint text"
    assert grid.row_text(0, is_bright=True) == "     text"


def test_hint_under_the_cursor_is_left_out_completely(grid: Grid) -> None:
    grid.select_graphic_rendition(7)
    grid.draw("P")
    grid.select_graphic_rendition(27, 2)
    grid.draw("ress up")
    grid.cursor_position(1, 1)
    under = grid.row_text(0, is_bright=True)
    grid.cursor_position(2, 1)
    elsewhere = grid.row_text(0, is_bright=True)

    assert (under, elsewhere) == ("", "P")


@pytest.mark.parametrize(
    ("attributes", "fore", "back"),
    [
        ((31,), "red", "default"),
        ((2, 31), FAINT + "red", "default"),
        ((31, 2, 22), "red", "default"),
        ((94, 41), "brightblue", "red"),
        ((38, 5, 196), "ff0000", "default"),
        ((38, 2, 1, 2, 3), "010203", "default"),
        ((48, 2, 999, 2, 3), "default", "ff0203"),
        ((38, 5, 999), "default", "default"),
        ((38, 5), "default", "default"),
        ((38, 2, 1), "default", "default"),
        ((38,), "default", "default"),
        ((31, 0), "default", "default"),
        ((), "default", "default"),
        ((777, 32), "green", "default"),
    ],
)
def test_colours_are_read_and_invalid_ones_are_skipped(
    attributes: tuple[int, ...], fore: str, back: str
) -> None:
    grid = Grid(4, 1)

    grid.select_graphic_rendition(*attributes)

    assert (grid.cursor.attrs.fg, grid.cursor.attrs.bg) == (fore, back)


def test_text_attributes_are_set_and_reset(grid: Grid) -> None:
    grid.select_graphic_rendition(1, 7)
    both = grid.cursor.attrs
    grid.select_graphic_rendition(27)

    assert both.bold
    assert both.reverse
    assert grid.cursor.attrs.bold
    assert not grid.cursor.attrs.reverse


def test_last_character_can_be_repeated_up_to_a_limit(grid: Grid) -> None:
    grid.draw("ab")

    grid.repeat(3)
    few = rows(grid)[0]
    grid.repeat(9_999)

    assert few == "abbbb"
    assert grid.scrolled <= grid.lines


def test_line_drawing_charset_is_translated(grid: Grid) -> None:
    grid.define_charset("0", "(")

    grid.draw("qx")

    assert rows(grid)[0] == "─│"


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))), st.integers(1, 6), st.integers(1, 4))
def test_any_text_can_be_drawn_on_any_screen(text: str, columns: int, lines: int) -> None:
    grid = Grid(columns, lines)

    if text:
        grid.draw(text)

    assert 0 <= grid.cursor.x <= columns
    assert 0 <= grid.cursor.y < lines
    assert all(isinstance(row, str) for row in rows(grid))


def test_smaller_screen_keeps_the_cursor_row_and_drops_rows_below() -> None:
    grid = Grid(10, 5)
    grid.draw("top")

    grid.resize(2, 10)

    assert grid.row_text(0) == "top"
    assert not grid.scrollback


def test_rows_pushed_out_above_go_to_the_scrollback() -> None:
    grid = Grid(10, 4)
    for number in range(4):
        grid.cursor_position(number + 1, 1)
        grid.draw(str(number))

    grid.resize(2, 10)

    assert [grid.row_text(0), grid.row_text(1)] == ["2", "3"]
    assert list(grid.scrollback) == ["0", "1"]
    assert grid.cursor.y == 1


def test_main_screen_shrinks_while_the_alternate_one_is_shown() -> None:
    grid = Grid(10, 4)
    grid.cursor_position(4, 1)
    grid.draw("prompt")
    grid.show_alternate(is_on=True)

    grid.resize(2, 4)
    grid.show_alternate(is_on=False)

    assert grid.row_text(1) == "prom"
    assert grid.cursor.y == 1


def test_wider_screen_has_tab_stops_in_its_new_part() -> None:
    grid = Grid(10, 2)

    grid.resize(2, 30)
    grid.tab()
    grid.tab()

    assert grid.cursor.x == 16


def test_cells_beyond_the_edge_return_with_the_columns() -> None:
    grid = Grid(20, 3)
    grid.draw("0123456789abcdefghij")
    grid.cursor_position(2, 1)
    grid.draw("second row is long")

    grid.resize(3, 12)
    grid.resize(3, 8)
    grid.cursor_position(2, 1)
    grid.draw("new")
    grid.resize(3, 10)
    assert grid.row_text(0) == "0123456789"
    grid.resize(3, 20)

    assert grid.row_text(0) == "0123456789abcdefghij"
    assert grid.row_text(1) == "newond r"


def test_cells_beyond_the_edge_of_the_main_screen_return_too() -> None:
    grid = Grid(12, 3)
    grid.draw("0123456789")
    grid.show_alternate(is_on=True)
    grid.resize(3, 4)
    grid.resize(3, 12)
    grid.show_alternate(is_on=False)

    assert grid.row_text(0) == "0123456789"
