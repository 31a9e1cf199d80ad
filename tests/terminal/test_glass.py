"""The cells of a screen: features that pyte lacks or implements differently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.terminal.emulator import FAINT, SCROLLBACK_LINES, Glass


def rows(glass: Glass) -> list[str]:
    return [glass.row_text(y) for y in range(glass.lines)]


@pytest.fixture
def glass() -> Glass:
    return Glass(10, 3)


def test_long_text_wraps_and_scrolls(glass: Glass) -> None:
    glass.draw("abcdefghijklmnopqrstuvwxyz0123456789")

    assert rows(glass) == ["klmnopqrst", "uvwxyz0123", "456789"]
    assert list(glass.scrollback) == ["abcdefghij"]


def test_without_wrapping_the_last_column_is_overwritten(glass: Glass) -> None:
    glass.reset_mode(7, private=True)

    glass.draw("abcdefghijklm")

    assert rows(glass)[0] == "abcdefghim"


def test_wide_character_takes_two_cells_and_is_never_split(glass: Glass) -> None:
    glass.draw("日本語日本語")

    assert rows(glass)[:2] == ["日本語日本", "語"]
    assert glass.cursor.x == 2


def test_zero_width_character_removes_nothing(glass: Glass) -> None:
    glass.draw("e\u0301✳\ufe0f ok")

    assert rows(glass)[0] == "é✳ ok"


def test_combining_character_at_the_start_is_dropped(glass: Glass) -> None:
    glass.draw("\u0301")

    assert rows(glass)[0] == ""


def test_insert_mode_moves_the_existing_text(glass: Glass) -> None:
    glass.draw("world")
    glass.carriage_return()
    glass.set_mode(4)

    glass.draw("é")

    assert rows(glass)[0] == "éworld"


def test_alternate_screen_starts_empty_and_preserves_the_main_screen(glass: Glass) -> None:
    glass.draw("first")

    glass.show_alternate(is_on=True)
    glass.show_alternate(is_on=True)
    empty = rows(glass)
    glass.draw("second")
    glass.show_alternate(is_on=False)

    assert empty == ["", "", ""]
    assert rows(glass)[0] == "first"
    assert (glass.cursor.x, glass.cursor.y) == (5, 0)


def test_reset_discards_the_main_screen(glass: Glass) -> None:
    glass.draw("first")
    glass.show_alternate(is_on=True)

    glass.reset()

    assert not glass.is_alternate
    assert rows(glass) == ["", "", ""]


def test_scrollback_is_bounded_and_excludes_the_alternate_screen(glass: Glass) -> None:
    for number in range(SCROLLBACK_LINES + 10):
        glass.draw(str(number))
        glass.carriage_return()
        glass.linefeed()
    before = len(glass.scrollback)
    glass.show_alternate(is_on=True)
    glass.scroll(2)

    assert before == len(glass.scrollback) == SCROLLBACK_LINES


def test_only_lines_inside_the_margins_scroll(glass: Glass) -> None:
    for y, text in enumerate(["one", "two", "three"]):
        glass.cursor_position(y + 1, 1)
        glass.draw(text)
    glass.set_margins(2, 3)

    glass.scroll(1)
    up = rows(glass)
    glass.scroll(-1)

    assert up == ["one", "three", ""]
    assert rows(glass) == ["one", "", "three"]
    assert list(glass.scrollback) == []


def test_saved_cursor_can_be_restored_repeatedly(glass: Glass) -> None:
    glass.cursor_position(2, 4)
    glass.save_cursor()

    for _ in range(2):
        glass.cursor_position(1, 1)
        glass.restore_cursor()

    assert (glass.cursor.y, glass.cursor.x) == (1, 3)


def test_without_a_saved_cursor_the_origin_is_restored(glass: Glass) -> None:
    glass.cursor_position(2, 4)

    glass.restore_cursor()

    assert (glass.cursor.y, glass.cursor.x) == (0, 0)


def test_faint_text_can_be_left_out(glass: Glass) -> None:
    glass.select_graphic_rendition(2)
    glass.draw("hint")
    glass.select_graphic_rendition(22)
    glass.draw(" text")

    assert glass.row_text(0) == "hint text"
    assert glass.row_text(0, is_bright=True) == "     text"


def test_hint_under_the_cursor_is_left_out_completely(glass: Glass) -> None:
    glass.select_graphic_rendition(7)
    glass.draw("P")
    glass.select_graphic_rendition(27, 2)
    glass.draw("ress up")
    glass.cursor_position(1, 1)
    under = glass.row_text(0, is_bright=True)
    glass.cursor_position(2, 1)
    elsewhere = glass.row_text(0, is_bright=True)

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
    glass = Glass(4, 1)

    glass.select_graphic_rendition(*attributes)

    assert (glass.cursor.attrs.fg, glass.cursor.attrs.bg) == (fore, back)


def test_text_attributes_are_set_and_reset(glass: Glass) -> None:
    glass.select_graphic_rendition(1, 7)
    both = glass.cursor.attrs
    glass.select_graphic_rendition(27)

    assert both.bold
    assert both.reverse
    assert glass.cursor.attrs.bold
    assert not glass.cursor.attrs.reverse


def test_last_character_can_be_repeated_up_to_a_limit(glass: Glass) -> None:
    glass.draw("ab")

    glass.repeat(3)
    few = rows(glass)[0]
    glass.repeat(9_999)

    assert few == "abbbb"
    assert glass.scrolled <= glass.lines


def test_line_drawing_charset_is_translated(glass: Glass) -> None:
    glass.define_charset("0", "(")

    glass.draw("qx")

    assert rows(glass)[0] == "─│"


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))), st.integers(1, 6), st.integers(1, 4))
def test_any_text_can_be_drawn_on_any_screen(text: str, columns: int, lines: int) -> None:
    glass = Glass(columns, lines)

    if text:
        glass.draw(text)

    assert 0 <= glass.cursor.x <= columns
    assert 0 <= glass.cursor.y < lines
    assert all(isinstance(row, str) for row in rows(glass))


def test_smaller_screen_keeps_the_cursor_row_and_drops_rows_below() -> None:
    glass = Glass(10, 5)
    glass.draw("top")

    glass.resize(2, 10)

    assert glass.row_text(0) == "top"
    assert not glass.scrollback


def test_rows_pushed_out_above_go_to_the_scrollback() -> None:
    glass = Glass(10, 4)
    for number in range(4):
        glass.cursor_position(number + 1, 1)
        glass.draw(str(number))

    glass.resize(2, 10)

    assert [glass.row_text(0), glass.row_text(1)] == ["2", "3"]
    assert list(glass.scrollback) == ["0", "1"]
    assert glass.cursor.y == 1


def test_main_screen_shrinks_while_the_alternate_one_is_shown() -> None:
    glass = Glass(10, 4)
    glass.cursor_position(4, 1)
    glass.draw("prompt")
    glass.show_alternate(is_on=True)

    glass.resize(2, 4)
    glass.show_alternate(is_on=False)

    assert glass.row_text(1) == "prom"
    assert glass.cursor.y == 1


def test_wider_screen_has_tab_stops_in_its_new_part() -> None:
    glass = Glass(10, 2)

    glass.resize(2, 30)
    glass.tab()
    glass.tab()

    assert glass.cursor.x == 16


def test_cells_beyond_the_edge_return_with_the_columns() -> None:
    glass = Glass(20, 3)
    glass.draw("0123456789abcdefghij")
    glass.cursor_position(2, 1)
    glass.draw("second row is long")

    glass.resize(3, 12)
    glass.resize(3, 8)
    glass.cursor_position(2, 1)
    glass.draw("new")
    glass.resize(3, 10)
    assert glass.row_text(0) == "0123456789"
    glass.resize(3, 20)

    assert glass.row_text(0) == "0123456789abcdefghij"
    assert glass.row_text(1) == "newond r"


def test_cells_beyond_the_edge_of_the_main_screen_return_too() -> None:
    glass = Glass(12, 3)
    glass.draw("0123456789")
    glass.show_alternate(is_on=True)
    glass.resize(3, 4)
    glass.resize(3, 12)
    glass.show_alternate(is_on=False)

    assert glass.row_text(0) == "0123456789"
