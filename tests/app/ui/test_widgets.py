"""The parts that screens share: safe text, the top line, lines for typing, and terminals of every size."""

import pytest
from msgspec.structs import replace
from tests.app.ui.fake_link import FakeCommands, FakeLink, agent, entry, lines_of, snapshot
from textual.events import Key
from textual.pilot import Pilot

from palaver.app.ui.app import SCREENS, PalaverApp
from palaver.app.ui.commands import Result
from palaver.app.ui.store import Store
from palaver.app.ui.widgets import (
    AsciiOnly,
    CommandLine,
    KeysHelp,
    LineInput,
    StatusLine,
    TextRows,
    Window,
    command_words,
    fitting_keys,
    fold_text,
    safe_content,
    safe_lines,
    top_text,
)
from palaver.protocol.views import Counts

HOSTILE = (
    "[red]x[/]",
    "<img src=x onerror=alert(1)>",
    "\x1b[2J\x1b]0;title\x07",
    "right\u202eleft",
    "zero\u200bwidth",
    "a\rb\nc\td",
    "宽字符" * 50,
    "x" * 100_000,
    "e\u0301" * 200,
    "\U0001f469\u200d\U0001f4bb" * 50,
)


def app_with(*agents: str, is_ascii: bool = False) -> tuple[PalaverApp, FakeLink, FakeCommands]:
    link, commands = FakeLink(snapshot(*map(agent, agents))), FakeCommands()
    return PalaverApp(link, commands, is_ascii=is_ascii), link, commands


async def ready(app: PalaverApp, pilot: Pilot[int]) -> None:
    for _ in range(100):
        await pilot.pause()
        if app.store.has_snapshot and app.bus_screen is not None and app.bus_screen.is_ready:
            return
    raise AssertionError("the first screen never came")


# Text of others


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_others_is_one_line_without_controls_and_never_markup(text: str) -> None:
    content = safe_content(text)

    assert content.spans == []
    assert not any(ord(char) < 32 or char in "\x7f\u202e\u200b" for char in content.plain)
    assert safe_content(text, is_ascii=True).plain.isascii()


@pytest.mark.parametrize("width", [1, 2, 20, 80])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_folded_text_is_complete_and_fits_the_width(text: str, width: int) -> None:
    lines = fold_text(text, width)

    kept = "".join(line.plain for line in lines).replace(" ", "")
    assert kept == "".join(safe_lines(text)).replace(" ", "")
    assert all(line.cell_length <= max(width, 2) for line in lines)


def test_rest_of_a_long_line_is_indented_like_its_beginning() -> None:
    lines = fold_text("  one two three four five six\nseven", 24)
    keys = fold_text("Enter  open the whole entry at once\né", 24, hang=7)

    assert [line.plain.rstrip() for line in lines] == ["  one two three four", "  five six", "seven"]
    assert [line.plain.rstrip() for line in keys] == ["Enter  open the whole", "       entry at once", "é"]


def test_ascii_filter_keeps_the_width_of_every_text() -> None:
    content = safe_content("╭─ 宽 é …")

    (segment,) = AsciiOnly().apply(content.render_segments(), None)  # type: ignore[arg-type]

    assert segment.text.isascii()
    assert len(segment.text) == content.cell_length


# The top line


@pytest.mark.parametrize("width", [10, 20, 40, 80, 200])
def test_top_line_always_has_attention_unread_and_the_bus(width: int) -> None:
    store = Store()
    store.apply(replace(snapshot(), counts=Counts(agents={"idle": 12, "blocked": 1}, attention=3, unread=4)))

    line = top_text(store, width)

    assert "3" in line
    assert "4" in line
    assert "up" in line
    if width == 200:
        assert line == "13 agents: 1 blocked, 12 idle | 3 need you | 4 unread | bus up"
    if width == 20:
        assert line == "1b 12i !3 u4 bus up"


# The line of keys


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "Enter open  a approve  ? keys  q quit"),
        (32, "Enter open  a approve  ? keys"),
        (20, "Enter open  ? keys"),
        (8, "? keys"),
        (3, "? keys"),
    ],
)
def test_keys_that_do_not_fit_are_left_out_whole(width: int, shown: str) -> None:
    assert fitting_keys("Enter open  a approve  ? keys  q quit", width) == shown


def test_command_line_takes_words_with_and_without_pal() -> None:
    assert command_words("list -v") == command_words("pal list -v") == ["pal", "list", "-v"]
    with pytest.raises(ValueError, match="No closing quotation"):
        command_words("send 'x")


async def test_colon_runs_a_command_and_shows_its_output() -> None:
    app, _, commands = app_with("luna")
    commands.result = Result(0, "NAME [red]STATUS[/]\n", "")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("colon", *"list", "enter")
        for _ in range(20):
            await pilot.pause()
        assert isinstance(app.screen, Window)
        shown = app.screen.query_one(TextRows).text
        await pilot.press("escape")
        await pilot.pause()
        is_closed = not [one for one in app.screen_stack if isinstance(one, Window)]

    assert commands.ran == [["pal", "list"]]
    assert shown == "NAME [red]STATUS[/]"
    assert is_closed


async def test_command_that_needs_the_terminal_is_not_run_in_a_window() -> None:
    app, _, commands = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("colon", "u", "i", "enter")
        await pilot.pause()
        assert app.bus_screen is not None
        status_text = app.bus_screen.query_one(StatusLine).text

    assert status_text == "this is pal ui already"
    assert commands.ran == []


async def test_letters_belong_to_the_text_while_typing() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("colon", "q", "1", "question_mark", "a", "x", "colon")
        await pilot.pause()
        assert app.bus_screen is not None
        typed = app.bus_screen.query_one(CommandLine).input.value

    assert typed == "q1?ax:"


async def test_question_mark_shows_the_keys_of_the_screen() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, KeysHelp)
        text = app.screen.query_one(TextRows).text

    assert "approve a permission request" in text
    assert "run any pal command" in text


# The composer


async def test_keys_typed_at_once_into_a_line_act_in_their_order() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("2", "slash")
        await pilot.pause()
        line = app.focused
        assert isinstance(line, LineInput)
        for key in ("l", "x", "backspace", "u", "home", "delete", "n"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        for _ in range(20):
            await pilot.pause()

        assert line.value == "nu"


# Terminals


@pytest.mark.parametrize(
    ("size", "is_ascii"), [((1, 1), False), ((20, 5), True), ((80, 24), False), ((200, 60), True)]
)
async def test_every_key_works_in_a_terminal_of_any_size(size: tuple[int, int], *, is_ascii: bool) -> None:
    link = FakeLink(snapshot(agent("luna"), agent("[red]x[/]"), attention=[entry("request/3")]))
    app = PalaverApp(link, FakeCommands(), is_ascii=is_ascii)

    async with app.run_test(size=size) as pilot:
        await ready(app, pilot)
        for key in ("1", "2"):
            await pilot.press(key, "question_mark", "pagedown", "escape", "down", "space", "enter", "escape")
            await pilot.press(
                "colon", "x", "escape", "r", "h", "escape", "m", "escape", "escape", "n", "escape"
            )
        await pilot.resize_terminal(20, 5)
        await pilot.resize_terminal(200, 60)

        assert app.is_running


@pytest.mark.parametrize(("width", "column"), [(80, 10), (30, 9)])
async def test_mouse_opens_a_screen_by_its_name(width: int, column: int) -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(width, 24)) as pilot:
        await ready(app, pilot)
        await pilot.click("ScreenNames", offset=(column, 0))
        for _ in range(10):
            await pilot.pause()
        assert app.bus_screen is not None
        shown = app.bus_screen.KEY

    assert shown == "2"


async def test_top_line_of_every_screen_is_current() -> None:
    app, link, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("2")
        link.push(snapshot(agent("luna", "blocked"), seq=20))
        for _ in range(20):
            await pilot.pause()
        top = lines_of(app.screen.query_one("TopLine"))

    assert top == ["1 agent: 1 blocked | 0 need you | 0 unread | bus up"]


def test_every_screen_has_a_key_from_1_to_6() -> None:
    assert [(key, name) for key, (_, _, name) in SCREENS.items()] == [
        *(("1", "Now"), ("2", "Agents"), ("3", "Talk"), ("4", "Rooms"), ("5", "Log"), ("6", "Past")),
    ]
