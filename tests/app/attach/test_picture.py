"""Pictures have the requested size, show the cursor, and can be converted to ASCII."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.app.attach.screen import REVERSED, Picture, ascii_sign, cursor_in, plain, screen_rows, text_row
from palaver.protocol.display import safe
from palaver.terminal.emulator import Emulator


def text_of(row: object) -> str:
    assert isinstance(row, tuple)
    return "".join(cell.data for cell in row)


def terminal_with(data: bytes, cols: int = 20, rows: int = 6) -> Emulator:
    terminal = Emulator(cols, rows)
    terminal.feed(data)
    return terminal


@given(st.text(max_size=30), st.integers(1, 20))
def test_text_row_has_exactly_its_width(text: str, width: int) -> None:
    assert len(text_row(safe(text), width)) == width


def test_wide_character_that_does_not_fit_is_left_out() -> None:
    assert text_of(text_row("ab漢", 3)) == "ab "


def test_row_is_filled_with_its_own_attributes() -> None:
    assert text_row("a", 3, REVERSED) == (REVERSED._replace(data="a"), REVERSED, REVERSED)


@given(st.binary(max_size=200), st.integers(1, 9), st.integers(1, 30))
def test_part_of_a_screen_has_the_requested_size_and_contains_the_cursor(
    data: bytes, height: int, width: int
) -> None:
    grid = terminal_with(data).grid

    rows, cursor = screen_rows(grid, height, width), cursor_in(grid, height, width)

    assert len(rows) == height
    assert {len(row) for row in rows} == {width}
    assert cursor is None or (0 <= cursor[0] < height and 0 <= cursor[1] < width)


def test_larger_screen_is_shown_around_its_cursor() -> None:
    grid = terminal_with(b"1\r\n2\r\n3\r\n4\r\n5").grid

    assert [text_of(row).strip() for row in screen_rows(grid, 3, 5)] == ["3", "4", "5"]


def test_program_may_hide_its_cursor() -> None:
    assert cursor_in(terminal_with(b"\x1b[?25l").grid, 6, 20) is None


def test_half_of_a_wide_character_is_blank() -> None:
    grid = terminal_with("漢字\x1b[2;1H漢字\x1b[1;2Hx\x1b[1;1H".encode()).grid

    overwritten, cut = screen_rows(grid, 2, 3)

    assert text_of(overwritten) == " x "
    assert text_of(cut) == "漢 "


@given(st.characters(exclude_categories=["Cs"]))
def test_every_character_has_an_ascii_replacement(sign: str) -> None:
    found = ascii_sign(sign)

    assert len(found) == 1
    assert found.isascii()


def test_letters_lines_and_arrows_stay_readable_in_ascii() -> None:
    signs = "é→┌─┐│…•█漢"

    assert "".join(map(ascii_sign, signs)) == "e>+-+|.*#?"


def test_ascii_picture_keeps_its_columns_and_colours() -> None:
    picture = Picture((text_row("漢é a", 6, REVERSED),), (0, 2))

    shown = plain(picture)

    assert text_of(shown.rows[0]) == "? e a "
    assert shown.rows[0][0].reverse
    assert shown.cursor == (0, 2)
