"""The screen at every size: complete, with the agent above and the status line and the bar below."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.app.attach import agent_size
from palaver.app.attach.console import AgentChoice, Console
from palaver.app.attach.screen import (
    HELP,
    AgentStatus,
    Picture,
    Row,
    compose,
    help_rows,
    past_lines,
    past_rows,
)
from palaver.terminal.emulator import Emulator

KEYS = st.sampled_from(
    [
        *(b"", b"hello", b"\x1c", b"\x1cp", b"\x1cs", b"\x1c?", b"\x1cq", b"\x1ct", "漢字é".encode()),
        *(b"\x1cn", b"\x1cs/some", b"\x1cs/some\r", b"\x1csv"),
    ]
)


def lines_of(picture: Picture) -> list[str]:
    return ["".join(cell.data for cell in row).rstrip() for row in picture.rows]


def picture_of(
    keys: bytes, cols: int, rows: int, shown: bytes = b"", past: list[Row] | None = None
) -> Picture:
    console = Console("luna")
    list(console.feed(keys))
    terminal = Emulator(*agent_size(cols, rows))
    terminal.feed(shown)
    return compose(console, AgentStatus("luna", "idle"), terminal.grid, past or [], cols, rows)


@given(KEYS, st.integers(1, 90), st.integers(1, 30))
def test_picture_is_complete_at_every_size_and_in_every_mode(keys: bytes, cols: int, rows: int) -> None:
    picture = picture_of(keys, cols, rows, b"some text")

    assert picture.size == (rows, cols)
    assert {len(row) for row in picture.rows} == {cols}
    if picture.cursor is not None:
        assert 0 <= picture.cursor[0] < rows
        assert 0 <= picture.cursor[1] < cols


def test_agent_is_above_the_status_line_and_the_bar() -> None:
    picture = picture_of(b"\thello", 80, 24, b"the agent")
    lines = lines_of(picture)

    assert lines[0] == "the agent"
    assert lines[22].startswith(" luna | idle | input")
    assert lines[22].endswith("Ctrl-\\ menu")
    assert lines[23] == "interrupt> hello"
    assert picture.cursor == (23, len("interrupt> hello"))


def test_passthrough_shows_the_cursor_of_the_agent() -> None:
    assert picture_of(b"\x1cp", 80, 24, b"abc").cursor == (0, 3)
    assert picture_of(b"\x1cp", 80, 24, b"abc\x1b[?25l").cursor is None


def test_menu_fits_in_forty_columns() -> None:
    assert lines_of(picture_of(b"\x1c", 40, 10))[-1] == "p keys s scroll d leave q quit r n ?"
    assert lines_of(picture_of(b"\x1c", 80, 24))[-1].startswith("p passthrough  s scroll back  d detach")


def test_quit_question_contains_the_name() -> None:
    assert lines_of(picture_of(b"\x1cq", 80, 24))[-1] == "stop luna gracefully? y / n"


def test_without_room_for_two_lines_the_agent_gets_the_whole_terminal() -> None:
    assert agent_size(80, 4) == (80, 4)
    assert agent_size(11, 24) == (11, 24)
    assert lines_of(picture_of(b"", 80, 4, b"1\r\n2\r\n3\r\n4")) == ["1", "2", "3", "4"]
    assert lines_of(picture_of(b"\x1c", 80, 4, b"1\r\n2\r\n3\r\n4"))[:3] == ["1", "2", "3"]


def test_scrollback_ends_with_the_screen() -> None:
    terminal = Emulator(20, 3)
    terminal.feed("\r\n".join(f"line {number}" for number in range(9)).encode())
    past = past_rows(list(terminal.grid.scrollback), terminal.grid, 20)
    console = Console("luna")
    console.past.page = 2
    list(console.feed(b"\x1cs"))

    lines = lines_of(compose(console, AgentStatus("luna"), terminal.grid, past, 20, 5))

    assert lines[:3] == ["line 4", "line 5", "line 6"]


def reversed_text(picture: Picture, row: int) -> str:
    """Return the reversed characters of a row."""
    return "".join(cell.data for cell in picture.rows[row] if cell.reverse)


def test_matches_and_marked_lines_are_reversed() -> None:
    terminal = Emulator(20, 3)
    terminal.feed("漢 an Error\r\nno\r\nan error, error".encode())
    past = past_rows([], terminal.grid, 20)
    console = Console("luna")
    console.past.page = 2
    list(console.feed(b"\x1cs"))
    console.past.show(past_lines([], terminal.grid), is_complete=True)

    list(console.feed(b"/error\r"))
    found = compose(console, AgentStatus("luna"), terminal.grid, past, 80, 5)
    list(console.feed(b"vk"))
    marked = compose(console, AgentStatus("luna"), terminal.grid, past, 80, 5)

    assert [reversed_text(found, row) for row in range(3)] == ["Error", "", "errorerror"]
    assert "scroll back 0, match 2 of 2" in lines_of(found)[3]
    assert [reversed_text(marked, row).strip() for row in range(3)] == ["Error", "no", "an error, error"]
    assert "2 lines marked" in lines_of(marked)[3]


def test_match_that_has_moved_by_a_new_size_is_no_longer_shown() -> None:
    console = Console("luna")
    list(console.feed(b"\x1cs"))
    console.past.show(["no", "an error"], is_complete=True)
    list(console.feed(b"/error\r"))

    console.past.show(["an error", "no"], is_complete=False)
    picture = compose(console, AgentStatus("luna"), Emulator(60, 3).grid, [], 60, 5)

    assert "match" not in lines_of(picture)[3]


def test_text_to_copy_is_not_cut_to_the_width_and_has_no_controls() -> None:
    grid = Emulator(20, 3).grid

    (first, *rest) = past_lines(["wide " * 20 + "\x1b[2J"], grid)

    assert first == "wide " * 20 + "␛[2J"
    assert rest == ["", "", ""]


def test_navigator_lists_the_agents_around_the_chosen_one() -> None:
    console = Console("luna")
    list(console.feed(b"\x1cn"))
    waiting = compose(console, AgentStatus("luna"), Emulator(60, 3).grid, [], 60, 5)
    agents = [AgentChoice(name=f"nova{number}", state="idle") for number in range(8)]
    blocked = AgentChoice(name="kira", state="blocked", detail="per\x1bmission", unread=2, has_terminal=False)
    console.offer([*agents, blocked])
    list(console.feed(b"G"))
    shown = compose(console, AgentStatus("luna"), Emulator(60, 3).grid, [], 60, 5)
    console.offer([])
    empty = compose(console, AgentStatus("luna"), Emulator(60, 3).grid, [], 60, 5)

    assert lines_of(waiting)[0].startswith("asking the bus")
    assert lines_of(shown)[0] == "  nova6  idle"
    assert lines_of(shown)[2].startswith("> kira   blocked: per")
    assert lines_of(shown)[2].endswith("2 unread  no terminal")
    assert "\x1b" not in lines_of(shown)[2]
    assert lines_of(empty)[0] == "there is no other agent"


def test_old_output_cannot_control_the_terminal() -> None:
    (row, *_) = past_rows(["a\x1b[2Jb"], Emulator(20, 3).grid, 20)

    assert "".join(cell.data for cell in row).startswith("a␛[2Jb")


def test_help_names_every_choice_and_indents_wrapped_lines() -> None:
    lines = ["".join(cell.data for cell in row) for row in help_rows(40)]

    assert all(any(line.startswith(key) for line in lines) for key, _ in HELP)
    assert all(
        line.startswith(" " * 10) for line in lines if not any(line.startswith(key) for key, _ in HELP)
    )
