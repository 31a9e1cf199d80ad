"""The screen Agents: the list, one opened agent, group actions, and the launch form."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.app.ui.fake_link import FakeCommands, FakeLink, agent, lines_of, snapshot
from textual.pilot import Pilot
from textual.widgets import Static

from palaver.app.ui.agents import COLUMNS, AgentScreen, AgentsScreen, column_widths, state_word
from palaver.app.ui.app import PalaverApp
from palaver.app.ui.commands import Result
from palaver.app.ui.composer import MessageComposer
from palaver.app.ui.launching import LaunchForm, installed_harnesses, launch_argv
from palaver.app.ui.rows import RowList
from palaver.app.ui.widgets import LineInput, Question, StatusLine, TextRows, Window
from palaver.protocol.views import (
    AgentPage,
    AgentRow,
    AgentsPage,
    AskAgent,
    AskAgents,
    Changes,
    MessageRow,
    WaitingMessage,
    WaitReason,
)


class PickyCommands(FakeCommands):
    """Refuses a command for one name."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused = refused

    async def run(self, argv: Sequence[str], stdin: str | None = None, cwd: str | None = None) -> Result:
        await super().run(argv, stdin, cwd)
        return Result(1, "", f"pal: {self.refused} has left\n") if self.refused in argv else self.result


def app_with(
    *rows: AgentRow, commands: FakeCommands | None = None
) -> tuple[PalaverApp, FakeLink, FakeCommands]:
    link, ran = FakeLink(snapshot(*rows)), commands or FakeCommands()
    return PalaverApp(link, ran, first="2"), link, ran


def agents_screen(app: PalaverApp) -> AgentsScreen:
    assert isinstance(app.bus_screen, AgentsScreen)
    return app.bus_screen


async def settle(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    """Let the app work until something is so."""
    for _ in range(500):
        if is_so():
            return
        await pilot.pause()
    raise AssertionError("it never became so")


def page_of(name: str) -> AgentPage:
    reason = WaitReason(code="not_fetched", text=f"{name} has not called `pal recv`", moves="a call of it")
    waiting = WaitingMessage(
        seq=7, ts=1, sender="kai", text="please look", state="queued", priority="normal", reason=reason
    )
    message = MessageRow(seq=8, id="x", ts=1, sender=name, text="done", to=("human",))
    return AgentPage(seq=10, row=agent(name), queue=(waiting,), queue_total=1, messages=(message,))


async def shown_lines(app: PalaverApp, pilot: Pilot[int]) -> list[str]:
    await settle(pilot, lambda: app.store.has_snapshot)
    await pilot.pause()
    return [line for line in lines_of(agents_screen(app).rows) if line]


# The list


async def test_list_shows_state_activity_and_unread_messages() -> None:
    busy = replace(agent("luna", "active"), doing="Edit: app.py", unread=3, folder="/src", rooms=("shop",))
    app, _, _ = app_with(busy, agent("nova"))

    async with app.run_test(size=(200, 20)) as pilot:
        lines = await shown_lines(app, pilot)

    assert lines[0].split()[:6] == [">", "luna", "claude", "active", "Edit:", "app.py"]
    assert lines[0].split()[-3:] == ["3", "shop", "/src"]


async def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    names = ["<img src=x onerror=alert(1)>", "[red]x[/]", "evil\u202eeman\x1b[2J"]
    app, _, _ = app_with(*map(agent, names))

    async with app.run_test(size=(250, 20)) as pilot:
        lines = "\n".join(await shown_lines(app, pilot))

    assert "<img src=x onerror=a" in lines
    assert "[red]x[/]" in lines
    assert "evil\\u202eeman␛[2J" in lines


async def test_filter_works_while_typing_and_escape_removes_it() -> None:
    app, _, _ = app_with(agent("luna"), agent("nova"), agent("kai"))

    async with app.run_test(size=(100, 20)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("slash", "o", "v")
        await pilot.pause()
        filtered = await shown_lines(app, pilot)
        await pilot.press("escape")
        await pilot.pause()
        after = await shown_lines(app, pilot)

    assert [line.split()[1] for line in filtered] == ["nova"]
    assert len(after) == 3


async def test_sort_puts_blocked_agents_first() -> None:
    app, _, _ = app_with(agent("luna"), agent("nova", "blocked"))

    async with app.run_test(size=(100, 20)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("s")
        await pilot.pause()
        lines = await shown_lines(app, pilot)

    assert "nova" in lines[0]


async def test_sub_agents_unfold_under_their_parent() -> None:
    app, _, _ = app_with(agent("luna"), agent("luna_reviewer_1", parent="luna"), agent("nova"))

    async with app.run_test(size=(100, 20)) as pilot:
        folded = await shown_lines(app, pilot)
        await pilot.press("f")
        await pilot.pause()
        unfolded = await shown_lines(app, pilot)

    assert "luna +1" in folded[0]
    assert len(folded) == 2
    assert unfolded[1].startswith("    luna_reviewer")


async def test_agents_that_have_left_are_hidden_until_asked_for() -> None:
    app, _, _ = app_with(agent("luna"), replace(agent("old"), has_left=True))

    async with app.run_test(size=(100, 20)) as pilot:
        before = await shown_lines(app, pilot)
        await pilot.press("d")
        await pilot.pause()
        after = await shown_lines(app, pilot)

    assert len(before) == 1
    assert "left" in after[1]


async def test_agents_beyond_the_snapshot_are_read_in_pages() -> None:
    link, commands = FakeLink(snapshot(agent("a"), total=3)), FakeCommands()
    pages = {
        "a": AgentsPage(seq=10, total=3, rows=(agent("b"),), has_more=True),
        "b": AgentsPage(seq=10, total=3, rows=(agent("c"),)),
    }
    link.answers[AskAgents] = lambda question: pages[getattr(question, "after", "")]
    app = PalaverApp(link, commands, first="2")

    async with app.run_test(size=(100, 20)) as pilot:
        await settle(pilot, lambda: len(app.store.agents) == 3)
        lines = await shown_lines(app, pilot)

    assert [line.replace(">", "").split()[0] for line in lines] == ["a", "b", "c"]


def test_narrow_terminals_drop_columns_from_the_right() -> None:
    widths = {width: len(column_widths(width)) for width in (1, 18, 40, 78, 120, 200)}

    assert list(widths.values()) == sorted(widths.values())
    assert (widths[1], widths[200]) == (1, len(COLUMNS))
    for width in widths:
        assert sum(column_widths(width)) + len(column_widths(width)) - 1 <= max(width, 1)


def test_state_word_names_the_most_important_thing() -> None:
    row = agent("luna")

    assert state_word(row) == "idle"
    assert state_word(replace(row, is_present=False)) == "away"
    assert state_word(replace(row, is_paused=True)) == "paused"
    assert state_word(replace(row, is_stale=True)) == "stale"
    assert state_word(replace(row, has_left=True)) == "left"


# Group actions


async def test_group_action_asks_once_with_all_names_and_reports_each_result() -> None:
    app, _, commands = app_with(agent("kai"), agent("luna"), agent("nova"), commands=PickyCommands("luna"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("space", "space", "x")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        asked = app.screen.query_one(TextRows).text
        await pilot.press("y")
        await settle(pilot, lambda: isinstance(app.screen, Window) and not isinstance(app.screen, Question))
        report = app.screen.query_one(TextRows).text

    assert asked == "stop 2 agents:\n\nkai\nluna"
    assert commands.ran == [["pal", "stop", "kai"], ["pal", "stop", "luna"]]
    assert report == "FAILED luna: luna has left\ndone   kai: done"


async def test_group_report_is_a_line_for_a_person_who_types() -> None:
    app, _, commands = app_with(agent("kai"), agent("luna"), agent("nova"), commands=PickyCommands("luna"))
    stopping = commands.held = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("space", "space", "x")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: len(commands.ran) == 2)
        await pilot.press("m", *"hi")
        stopping.set()
        await settle(pilot, lambda: "failed" in agents_screen(app).query_one(StatusLine).text)
        status_text = agents_screen(app).query_one(StatusLine).text
        await pilot.press(*" all")
        text = agents_screen(app).query_one(MessageComposer).area.text

    assert status_text == "error: stop: 2 agents: it failed for luna"
    assert text == "hi all"


async def test_action_without_a_selection_is_for_the_cursor() -> None:
    app, _, commands = app_with(agent("kai"), agent("luna"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("down", "p")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))

    assert commands.ran == [["pal", "pause", "luna"]]


async def test_refused_group_action_changes_nothing() -> None:
    app, _, commands = app_with(agent("kai"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("asterisk", "u")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("n")
        await pilot.pause()

    assert commands.ran == []


async def test_tag_is_asked_for_and_an_empty_one_removes_it() -> None:
    app, _, commands = app_with(replace(agent("kai"), tag="api"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("t", "end", "2", "enter")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: len(commands.ran) == 1)
        await pilot.press("t", *["backspace"] * 3, "enter")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: len(commands.ran) == 2)

    assert commands.ran == [["pal", "tag", "kai", "api2"], ["pal", "tag", "kai", "--remove"]]


async def test_tag_is_for_the_agent_that_was_chosen_before_it_was_typed() -> None:
    app, link, commands = app_with(agent("kai"), agent("luna"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("t", *"api")
        link.push(Changes(after=10, seq=11, agents=(replace(agent("kai", seq=11), has_left=True),)))
        await settle(pilot, lambda: agents_screen(app).rows.cursor_key == "luna")
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))

    assert commands.ran == [["pal", "tag", "kai", "api"]]


async def test_agents_selected_during_an_action_stay_selected() -> None:
    app, _, commands = app_with(agent("kai"), agent("luna"))
    stopping = commands.held = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("space", "x")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.press("space")
        stopping.set()
        await settle(pilot, lambda: "pal stop kai: done" in agents_screen(app).query_one(StatusLine).text)
        lines = await shown_lines(app, pilot)

    assert [line[:6].rstrip() for line in lines[:2]] == ["  kai", ">*luna"]


async def test_one_message_goes_to_all_selected_agents() -> None:
    app, _, commands = app_with(agent("kai"), agent("luna"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("asterisk", "m", "h", "i", "enter")
        await settle(pilot, lambda: bool(commands.ran))

    assert commands.ran == [["pal", "send", "@kai", "@luna", "--", "hi"]]


async def test_selected_agents_have_a_mark_that_needs_no_colour() -> None:
    app, link, _ = app_with(agent("kai"), agent("luna"), agent("nova"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        link.push(snapshot(agent("kai"), agent("luna"), agent("nova"), seq=20))
        await settle(pilot, lambda: app.store.seq == 20)
        await pilot.press("space", "down", "space")
        lines = await shown_lines(app, pilot)

    assert [line[:6].rstrip() for line in lines[:3]] == [" *kai", "  luna", ">*nova"]


async def test_selected_agent_that_goes_is_no_longer_selected() -> None:
    app, link, commands = app_with(agent("kai"), agent("luna"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("asterisk")
        link.push(snapshot(agent("luna"), seq=20))
        await settle(pilot, lambda: app.store.seq == 20)
        await pilot.pause()
        chosen = agents_screen(app).chosen()

    assert chosen == ["luna"]
    assert commands.ran == []


# One agent


async def test_opened_agent_shows_screen_queue_with_reasons_and_messages() -> None:
    app, link, commands = app_with(replace(agent("luna"), has_terminal=True))
    link.answers[AskAgent] = lambda question: page_of("luna")
    commands.result = Result(0, "$ make\nall green\n", "")

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, AgentScreen) and app.screen.is_ready)
        screen = app.screen
        await settle(pilot, lambda: screen.query_one("#queue", RowList).total > 0)
        await settle(pilot, lambda: screen.query_one("#screen", TextRows).text != "")
        queue = "\n".join(lines_of(screen.query_one("#queue", RowList)))
        messages = "\n".join(lines_of(screen.query_one("#messages", RowList)))
        live = screen.query_one("#screen", TextRows).text

    assert "please look" in queue
    assert "Why: luna has not called" in queue
    assert "luna → you  #8\n    done" in messages
    assert live == "$ make\nall green"
    assert ["pal", "peek", "luna"] in commands.ran


async def test_change_that_names_the_agent_reads_its_queue_again() -> None:
    app, link, _ = app_with(agent("luna"), agent("nova"))
    link.answers[AskAgent] = lambda question: page_of("luna")

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("enter")
        await settle(pilot, lambda: len(link.asked) == 1)
        screen = app.screen
        assert isinstance(screen, AgentScreen)
        await settle(pilot, lambda: screen.query_one("#queue", RowList).total > 0)
        link.push(Changes(after=10, seq=11, agents=(agent("nova", seq=11),)))
        link.push(Changes(after=11, seq=12, moved=(7,)))
        await settle(pilot, lambda: app.store.seq == 12)
        await settle(pilot, lambda: len(link.asked) == 2)

    assert len(link.asked) == 2


async def test_keys_of_an_opened_agent_act_on_it_and_escape_returns() -> None:
    app, link, commands = app_with(replace(agent("luna"), has_terminal=True))
    link.answers[AskAgent] = lambda question: page_of("luna")

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, AgentScreen) and app.screen.is_ready)
        await pilot.press("x")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: ["pal", "stop", "luna"] in commands.ran)
        await pilot.press("m", "h", "i", "enter")
        await settle(pilot, lambda: ["pal", "send", "@luna", "--", "hi"] in commands.ran)
        await settle(pilot, lambda: not app.screen.query_one(MessageComposer).is_open)
        await pilot.press("escape")
        await settle(pilot, lambda: isinstance(app.screen, AgentsScreen))


async def test_agent_can_be_left_while_a_message_to_it_is_sent() -> None:
    app, link, commands = app_with(agent("luna"))
    link.answers[AskAgent] = lambda question: page_of("luna")
    sending = commands.held = asyncio.Event()

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, AgentScreen) and app.screen.is_ready)
        await pilot.press("m", "h", "i", "enter")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.press("escape", "escape")
        await settle(pilot, lambda: isinstance(app.screen, AgentsScreen))
        sending.set()
        await settle(pilot, lambda: "pal send @luna: done" in agents_screen(app).query_one(StatusLine).text)

    assert commands.ran == [["pal", "send", "@luna", "--", "hi"]]


@pytest.mark.parametrize("leaving", ["key", "mouse"])
async def test_unsent_text_to_an_agent_outlives_its_screen(leaving: str) -> None:
    app, link, _ = app_with(agent("luna"))
    link.answers[AskAgent] = lambda question: page_of("luna")

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, AgentScreen) and app.screen.is_ready)
        await pilot.press("m", *"draft")
        if leaving == "key":
            await pilot.press("escape", "escape")
        else:
            app.action_open_screen("2")
        await settle(pilot, lambda: isinstance(app.screen, AgentsScreen))
        await settle(pilot, lambda: bool(app.unsent))
        await pilot.press("m")
        text = agents_screen(app).query_one(MessageComposer).area.text

    assert text == "draft"


async def test_agent_can_be_left_while_it_is_stopped() -> None:
    app, link, commands = app_with(agent("luna"))
    link.answers[AskAgent] = lambda question: page_of("luna")
    stopping = commands.held = asyncio.Event()

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, AgentScreen) and app.screen.is_ready)
        await pilot.press("x")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.press("escape")
        await settle(pilot, lambda: isinstance(app.screen, AgentsScreen))
        stopping.set()
        await settle(pilot, lambda: "pal stop luna: done" in agents_screen(app).query_one(StatusLine).text)

    assert commands.cancelled == []


async def test_attach_without_a_terminal_says_why() -> None:
    app, _, commands = app_with(agent("luna"))

    async with app.run_test(size=(140, 30)) as pilot:
        await shown_lines(app, pilot)
        await pilot.press("a")
        status_text = agents_screen(app).query_one(StatusLine).text

    assert status_text == "error: luna has no terminal that can be shown here"
    assert commands.ran == []


# Launch


def test_launch_line_contains_only_what_was_chosen() -> None:
    simple = launch_argv("claude", name="", tag="", role="worker", count="1")
    full = launch_argv("codex", name="luna", tag="api", role="observer", count="3")

    assert simple == ["pal", "claude", "--detach"]
    assert full == ["pal", "codex", "--count", "3", "--name", "luna", "--tag", "api", "--role", "observer"]


def test_only_installed_harnesses_are_offered() -> None:
    assert installed_harnesses(lambda name: "/bin/codex" if name == "codex" else None) == ["codex"]


async def test_launch_shows_its_line_and_the_error_of_the_harness(tmp_path: Path) -> None:
    app, _, commands = app_with(agent("luna"))
    commands.result = Result(1, "", "pal: claude ended at once\nError: not logged in\n")

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        app.push_screen(LaunchForm(["claude", "codex"]))
        await settle(pilot, lambda: isinstance(app.screen, LaunchForm))
        await pilot.pause()
        await pilot.press("right")
        app.screen.query_one("#folder", LineInput).value = str(tmp_path)
        app.screen.query_one("#name", LineInput).value = "x; rm -rf /"
        await pilot.pause()
        line = str(app.screen.query_one("#line", Static).render())
        await pilot.press("enter")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.pause()
        report = app.screen.query_one("#report", TextRows).text

    assert line == "$ pal codex --detach --name 'x; rm -rf /'"
    assert commands.ran == [["pal", "codex", "--detach", "--name", "x; rm -rf /"]]
    assert "Error: not logged in" in report


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (Result(0, "luna\n", ""), "pal claude --detach: started luna"),
        (Result(1, "", "pal: claude ended at once\n"), "error: pal claude --detach: claude ended at once"),
    ],
)
async def test_launch_goes_on_when_its_form_is_closed(tmp_path: Path, result: Result, expected: str) -> None:
    app, _, commands = app_with(agent("luna"))
    commands.result = result
    launching = commands.held = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        app.push_screen(LaunchForm(["claude"]))
        await settle(pilot, lambda: isinstance(app.screen, LaunchForm))
        await pilot.pause()
        app.screen.query_one("#folder", LineInput).value = str(tmp_path)
        await pilot.press("enter")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.press("escape")
        await settle(pilot, lambda: isinstance(app.screen, AgentsScreen))
        await pilot.pause()
        launching.set()
        await settle(pilot, lambda: agents_screen(app).query_one(StatusLine).text == expected)

    assert commands.cancelled == []


async def test_two_enters_at_once_launch_once(tmp_path: Path) -> None:
    app, _, commands = app_with(agent("luna"))
    launching = commands.held = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        app.push_screen(form := LaunchForm(["claude"]))
        await settle(pilot, lambda: app.screen is form)
        await pilot.pause()
        form.query_one("#folder", LineInput).value = str(tmp_path)
        form.action_launch()
        form.action_launch()
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.pause()
        launching.set()
        await settle(pilot, lambda: app.screen is not form)

    assert commands.ran == [["pal", "claude", "--detach"]]


@pytest.mark.parametrize("name", ["gone", "file", "file/below", "x" * 300, "~no-such-user/x"])
async def test_launch_into_a_path_that_is_not_a_folder_starts_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    folder = name if name.startswith("~") else str(tmp_path / name)
    app, _, commands = app_with(agent("luna"))

    async with app.run_test(size=(100, 30)) as pilot:
        await shown_lines(app, pilot)
        app.push_screen(LaunchForm(["claude"]))
        await settle(pilot, lambda: isinstance(app.screen, LaunchForm))
        await pilot.pause()
        app.screen.query_one("#folder", LineInput).value = folder
        await pilot.press("enter")
        await pilot.pause()
        report = app.screen.query_one("#report", TextRows).text

    assert report == f"{folder} is not a folder that you can open. Nothing was started."
    assert commands.ran == []
