"""Colours, widths, tables, and escaping of untrusted text."""

import unicodedata
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.protocol.display import (
    Column,
    Paint,
    ago,
    display_width,
    format_time,
    lay_out,
    need_words,
    paint_for,
    safe,
    safe_bytes,
    truncate,
    wants_colour,
    zone_from,
)

ANY_TEXT = st.text(st.characters(), max_size=30) | st.text("ab日本́\u200d ", max_size=30)
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_harmless(char: str) -> bool:
    return unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"} and char not in BIDI


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_can_be_declined(environment: dict[str, str], wanted: bool) -> None:
    assert wants_colour(environment) is wanted


def test_paint_without_colour_returns_its_text() -> None:
    plain, bright = Paint(False), Paint(True)

    for name in ("bold", "dim", "red", "green", "yellow", "blue", "cyan"):
        assert getattr(plain, name)("x") == "x"
        assert getattr(bright, name)("x").startswith("\x1b[")
        assert getattr(bright, name)("x").endswith("mx\x1b[0m")
        assert getattr(bright, name)("") == ""


def test_control_characters_are_made_visible() -> None:
    assert safe("\x1b[2Jgone\x07") == "␛[2Jgone␇"
    assert safe("\x7f\x9b31m") == "␡\\x9b31m"
    assert safe("abc\u202edcba") == "abc\\u202edcba"
    assert safe("a\u200bb\ufeff\xad\u3164\U000e0041") == "a\\u200bb\\ufeff\\xad\\u3164\\U000e0041"
    assert safe("👨\u200d👩") == "👨\u200d👩"  # joined emoji and letters stay joined
    assert safe("caf\udce9\u2028") == "caf\\udce9\\u2028"
    assert safe("größe 日本 👩‍💻") == "größe 日本 👩‍💻"


def test_lines_and_tabs_are_kept_on_request() -> None:
    assert safe("a\n\tb\r\nc\rd") == "a␊␉b␍␊c␍d"
    assert safe("a\n\tb\r\nc\rd", keep_lines=True) == "a\n\tb\nc␍d"
    assert safe("a\n\x1b", keep_lines=True) == "a\n␛"


@given(ANY_TEXT)
def test_safe_text_cannot_control_a_terminal(text: str) -> None:
    assert all(map(is_harmless, safe(text)))
    assert all(char in "\n\t" or is_harmless(char) for char in safe(text, keep_lines=True))
    assert safe(safe(text)) == safe(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s"),
        (999, "0s"),
        (59_999, "59s"),
        (60_000, "1m"),
        (3_599_999, "59m"),
        (3 * 3_600_000, "3h"),
        (50 * 3_600_000, "2d"),
        (800 * 86_400_000, "2y"),
    ],
)
def test_duration_is_written_in_its_largest_whole_unit(ms: int, text: str) -> None:
    assert ago(ms) == text


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert display_width("abc") == 3
    assert display_width("日本") == 4
    assert display_width("e\u0301") == 1
    assert display_width("é→") == 2
    assert display_width("") == 0


def test_text_is_cut_with_an_ellipsis_and_never_within_a_character() -> None:
    assert truncate("hello", 5) == "hello"
    assert truncate("hello", 4) == "hel…"
    assert truncate("日本語", 5) == "日本…"
    assert truncate("日本語", 4) == "日…"
    assert truncate("e\u0301e\u0301e\u0301", 2) == "e\u0301…"
    assert truncate("hello", 1) == "…"
    assert truncate("hello", 0) == ""


@given(ANY_TEXT, st.integers(0, 40))
def test_cut_text_is_never_too_wide(text: str, columns: int) -> None:
    assert display_width(truncate(text, columns)) <= columns


def test_table_aligns_its_columns() -> None:
    columns = [Column(title="NAME"), Column(title="UNREAD", is_right=True), Column(title="STATE")]

    lines = lay_out(columns, [["luna", "2", "idle"], ["日本", "10", "active"]], width=80)

    assert lines == [
        "NAME  UNREAD  STATE",
        "luna       2  idle",
        "日本      10  active",
    ]


def test_table_without_titles_has_no_heading_and_may_be_empty() -> None:
    assert lay_out([Column(), Column()], [["a", "b"]], width=None) == ["a  b"]
    assert lay_out([Column(), Column()], [], width=10) == []


def test_widest_column_shrinks_first() -> None:
    columns = [Column(), Column(), Column()]

    assert lay_out(columns, [["luna", "x" * 30, "y" * 9]], width=30) == ["luna  xxxxxxxxxxxx…  yyyyyyyyy"]
    assert lay_out(columns, [["luna", "x" * 30, "y" * 20]], width=31) == ["luna  xxxxxxxxxxx…  yyyyyyyyyy…"]


def test_column_keeps_its_minimum_width_while_others_can_shrink() -> None:
    columns = [Column(least=8), Column(least=2)]

    assert lay_out(columns, [["abcdefgh", "xyz"]], width=12) == ["abcdefgh  x…"]


def test_cells_are_one_line_and_cannot_add_colours() -> None:
    rows = [["a\nb", "\x1b[31mred"]]

    (for_agent,) = lay_out([Column(), Column()], rows, width=40)
    (for_person,) = lay_out([Column(), Column()], rows, width=40, paint=Paint(False, is_for_person=True))

    assert for_agent == r"a␊b  \u{1b}[31mred"
    assert for_person == "a␊b  ␛[31mred"


def test_colours_take_no_width() -> None:
    paint = Paint(True)
    columns = [Column(title="A", paint=paint.green), Column(title="B")]

    lines = lay_out(columns, [["xx", "y"], ["", "z"]], width=5, paint=paint)

    assert lines == ["\x1b[2mA\x1b[0m   \x1b[2mB\x1b[0m", "\x1b[32mxx\x1b[0m  y", "    z"]


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.tuples(
            st.lists(st.integers(0, 12), min_size=count, max_size=count),
            st.lists(st.lists(ANY_TEXT, min_size=count, max_size=count), max_size=5),
        )
    ),
    st.integers(0, 60),
    st.booleans(),
)
def test_table_is_never_wider_than_its_limit(
    content: tuple[list[int], list[list[str]]], width: int, has_titles: bool
) -> None:
    least, rows = content
    columns = [Column(title="TITLE" if has_titles else "", least=size) for size in least]

    lines = lay_out(columns, rows, width=width)

    assert len(lines) == len(rows) + has_titles
    assert all(display_width(line) <= width for line in lines)


def test_names_of_the_bus_stay_unchanged_and_foreign_names_are_escaped() -> None:
    paint = Paint(False, is_for_person=True)

    assert paint.names(["[pal-events]", "a\x1b"]) == "[pal-events], a␛"


@pytest.mark.parametrize(
    ("is_terminal", "harness", "is_for_person"),
    [(True, None, True), (True, "claude", False), (False, None, False)],
)
def test_only_a_terminal_outside_a_harness_has_a_person(
    is_terminal: bool, harness: str | None, is_for_person: bool
) -> None:
    paint = paint_for({"TERM": "xterm"}, is_terminal=is_terminal, harness=harness)

    assert paint.is_for_person is is_for_person


def test_bytes_for_a_terminal_have_no_controls_beyond_ascii() -> None:
    assert safe_bytes("ä\x9b\x7f\U000e0041\n".encode()) == "ä\\u009b\\u007f\\udb40\\udc41\n".encode()
    assert safe_bytes(b"\x1b[1mplain\x1b[0m\n") == b"\x1b[1mplain\x1b[0m\n"


def test_time_zone_is_named_unknown_or_that_of_the_machine() -> None:
    assert zone_from(":Europe/Paris") == ZoneInfo("Europe/Paris")
    assert zone_from("No/Where") is UTC
    assert zone_from("") is None


def test_time_is_formatted_in_its_zone() -> None:
    assert (
        format_time(1_794_977_401_123, ZoneInfo("Europe/Paris"), "%Y-%m-%d %H:%M %z")
        == "2026-11-18 05:50 +0100"
    )
    assert format_time(0, None, "%z") != ""


@given(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-62_135_596_800_000, 253_402_300_799_999]))
def test_every_stored_time_has_a_text(ts_ms: int) -> None:
    for zone in (UTC, ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York"), None):
        assert format_time(ts_ms, zone, "%Y-%m-%d %H:%M:%S %z")
    assert format_time(2**63 - 1, UTC, "%Y") == format_time(-(2**63), UTC, "%Y") == "?"


def test_narrow_table_drops_its_last_columns_but_keeps_the_first() -> None:
    columns = [Column(title="NAME", least=4), Column(title="DOING", least=8), Column(title="ROOM", least=8)]
    rows = [["luna", "make test again", "shop-x7qa"]]

    def laid_out(width: int | None, kept: int | None = 1) -> list[str]:
        return lay_out(columns, rows, width=width, kept=kept)

    assert laid_out(None) == ["NAME  DOING            ROOM", "luna  make test again  shop-x7qa"]
    assert laid_out(24) == ["NAME  DOING     ROOM", "luna  make te…  shop-x7…"]
    assert laid_out(23) == ["NAME  DOING", "luna  make test again"]
    assert laid_out(13) == ["NAME", "luna"]
    assert laid_out(3) == ["NA…", "lu…"]
    assert laid_out(13, kept=2) == ["NAME  DOING", "luna  make t…"]


def test_number_of_waiting_entries_is_said_in_words() -> None:
    assert [need_words(count) for count in (0, 1, 2)] == ["", "1 needs you", "2 need you"]
