"""The screen Now: entries, the hint, and actions that show what they do before they do it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.app.ui.fake_bus import screen_text
from tests.app.ui.fake_link import FakeCommands, FakeLink, agent, entry, lines_of, snapshot
from textual.pilot import Pilot

from palaver.app.ui.agents import AgentsScreen
from palaver.app.ui.app import PalaverApp
from palaver.app.ui.commands import Result
from palaver.app.ui.composer import MessageComposer
from palaver.app.ui.now import NowScreen
from palaver.app.ui.widgets import Question, StatusLine, TextRows, Window
from palaver.client.view_link import BusAway
from palaver.errors import NotFound
from palaver.protocol.views import (
    Action,
    AnyAsk,
    AskLedger,
    AskPermission,
    Attention,
    Changes,
    LedgerPage,
    MessageRow,
    PermissionPage,
    ViewValue,
)

RELEASE = Action(word="release", command=("pal", "release", "17"))


def permission(id_: str, agent_name: str = "luna") -> PermissionPage:
    return PermissionPage(
        seq=10,
        id=id_,
        agent=agent_name,
        tool="Bash",
        text=f"make {id_}",
        input=f'{{\n  "command": "make {id_} [red]all[/] \u202e"\n}}',
        digest="d1",
        since=1,
        until=2,
    )


def app_with(*entries: Attention, agents: int = 1) -> tuple[PalaverApp, FakeLink, FakeCommands]:
    rows = [agent(f"agent{number}") for number in range(agents)]
    link, commands = FakeLink(snapshot(*rows, attention=entries)), FakeCommands()
    link.answers[AskPermission] = lambda question: permission(getattr(question, "id", ""))
    return PalaverApp(link, commands), link, commands


def status(app: PalaverApp) -> str:
    assert app.bus_screen is not None
    return app.bus_screen.query_one(StatusLine).text


def now(app: PalaverApp) -> NowScreen:
    assert isinstance(app.bus_screen, NowScreen)
    return app.bus_screen


async def settle(pilot: Pilot[int], is_so: Callable[[], bool]) -> None:
    """Let the app work until something is so."""
    for _ in range(500):
        if is_so():
            return
        await pilot.pause()
    raise AssertionError("it never became so")


async def test_entries_are_shown_oldest_first_with_kind_and_agent() -> None:
    app, _, _ = app_with(entry("held/7", since=9), entry("request/3", who="nova", since=2, what="Which one?"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.pause()
        lines = lines_of(now(app).rows)

    assert lines[0].startswith("> request")
    assert "nova" in lines[0]
    assert lines[0].endswith("Which one?")
    assert lines[1].startswith("  held")


async def test_approve_shows_the_whole_request_and_approves_exactly_that_one() -> None:
    app, link, commands = app_with(entry("permission/aa", since=5), entry("permission/bb", since=6))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("a")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        shown = app.screen.query_one(TextRows).text
        link.push(Changes(after=10, seq=11, settled=("permission/aa",)))
        await settle(pilot, lambda: app.store.seq == 11)
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))

    assert "make aa [red]all[/] \\u202e" in shown
    assert commands.ran == [["pal", "approve", "aa"]]


async def test_question_about_an_ended_request_says_so_and_shows_the_refusal() -> None:
    app, link, commands = app_with(entry("permission/aa"))
    commands.result = Result(1, "", "pal: request aa: it was already answered\n")

    def over(question: AnyAsk) -> ViewValue:
        raise NotFound("permission request aa", "it was already answered: human denied it on the page")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("x")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        link.answers[AskPermission] = over
        link.push(Changes(after=10, seq=11, settled=("permission/aa",)))
        await settle(pilot, lambda: "ended" in app.screen.query_one(TextRows).text)
        warned = app.screen.query_one(TextRows).text
        await pilot.press("y")
        await settle(pilot, lambda: "already answered" in status(app))
        status_text = status(app)

    assert warned.startswith(
        "This request has ended meanwhile: it was already answered: human denied it on the page.\n"
    )
    assert status_text == "error: pal deny aa: request aa: it was already answered"


@pytest.mark.parametrize("key", ["n", "escape", "enter"])
async def test_only_y_approves(key: str) -> None:
    app, _, commands = app_with(entry("permission/aa"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("a")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press(key)
        await pilot.pause()

    assert commands.ran == []


async def test_request_that_has_ended_before_it_was_shown_is_reported() -> None:
    app, link, commands = app_with(entry("permission/aa"))
    del link.answers[AskPermission]

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("a")
        await settle(pilot, lambda: status(app).startswith("error"))
        status_text = status(app)

    assert status_text == "error: the bus is not reachable"
    assert commands.ran == []


async def test_reply_keeps_the_entry_visible_and_sends_a_reply() -> None:
    app, _, commands = app_with(entry("request/42", who="nova", what="Which branch?"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("r", *"main", "enter")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.pause()
        screen = now(app)
        lines, is_open = lines_of(screen.rows), screen.query_one(MessageComposer).is_open

    assert commands.ran == [["pal", "send", "@nova", "--reply-to", "42", "--", "main"]]
    assert "Which branch?" in lines[0]
    assert not is_open


async def test_refused_reply_keeps_its_text() -> None:
    app, _, commands = app_with(entry("request/42", who="nova"))
    commands.result = Result(1, "", "pal: the bus is stopped\n")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("r", *"main", "enter")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.pause()
        composer = now(app).query_one(MessageComposer)
        kept = (composer.is_open, composer.area.text)

    assert kept == (True, "main")


async def test_reply_to_an_ended_request_is_refused_also_after_escape() -> None:
    app, link, commands = app_with(entry("request/42", who="nova"))
    message = MessageRow(seq=42, id="x", ts=1, sender="nova", text="Which one?", to=("human",))
    link.answers[AskLedger] = lambda question: LedgerPage(
        seq=10, message=message, receipts=msgspec.Raw(b"{}")
    )
    reading = link.held[AskLedger] = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("r", *"main")
        link.push(Changes(after=10, seq=11, settled=("request/42",)))
        await settle(pilot, lambda: app.store.seq == 11)
        await pilot.press("enter")
        await settle(pilot, lambda: bool(link.asked))
        await pilot.press("escape")
        reading.set()
        await settle(pilot, lambda: "#42 has ended meanwhile" in status(app))
        has_focus = now(app).rows.has_focus

    assert commands.ran == []
    assert has_focus


async def test_release_shows_the_held_message_first() -> None:
    app, link, commands = app_with(entry("held/17", who="kai", actions=[RELEASE]))
    message = MessageRow(seq=17, id="x", ts=1, sender="kai", text="ping\nwith two lines", to=("nova",))
    link.answers[AskLedger] = lambda question: LedgerPage(
        seq=10, message=message, receipts=msgspec.Raw(b"{}")
    )

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("l")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        shown = app.screen.query_one(TextRows).text
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))

    assert "with two lines" in shown
    assert commands.ran == [["pal", "release", "17"]]


def held_ledger() -> LedgerPage:
    message = MessageRow(seq=17, id="x", ts=1, sender="kai", text="text 17", to=("nova",))
    return LedgerPage(seq=10, message=message, receipts=msgspec.Raw(b"{}"))


@asynccontextmanager
async def reading_ledger(
    key: str, *entries: Attention
) -> AsyncIterator[tuple[PalaverApp, Pilot[int], FakeLink, FakeCommands, asyncio.Event]]:
    """Run the screen while it reads the ledger that a key needs; the event lets the bus answer."""
    app, link, commands = app_with(*entries)
    link.answers[AskLedger] = lambda question: held_ledger()
    reading = link.held[AskLedger] = asyncio.Event()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press(key)
        await settle(pilot, lambda: bool(link.asked))
        yield app, pilot, link, commands, reading


async def test_question_that_is_read_late_does_not_take_the_keys_of_a_reply() -> None:
    entries = entry("held/17", who="kai", since=1, actions=[RELEASE]), entry("request/42", since=2)

    async with reading_ledger("l", *entries) as (_app, pilot, _link, commands, reading):
        await pilot.press("down", "r")
        reading.set()
        await pilot.pause()
        await pilot.press(*"yes", "enter")
        await settle(pilot, lambda: bool(commands.ran))

    assert commands.ran == [["pal", "send", "@luna", "--reply-to", "42", "--", "yes"]]


async def test_question_that_is_read_late_does_not_open_above_a_window() -> None:
    held = entry("held/17", who="kai", actions=[RELEASE])

    async with reading_ledger("l", held) as (app, pilot, link, commands, reading):
        await pilot.press("?")
        await settle(pilot, lambda: isinstance(app.screen, Window))
        window = app.screen
        reading.set()
        link.push(Changes(after=10, seq=11, agents=(agent("nova", seq=11),)))
        await settle(pilot, lambda: "nova" in app.store.names())
        await pilot.press("y")
        shown = app.screen

        assert shown is window

    assert commands.ran == []


async def test_entry_that_is_read_late_does_not_open_on_another_screen() -> None:
    async with reading_ledger("enter", entry("request/42")) as (app, pilot, link, _commands, reading):
        await pilot.press("2")
        await settle(pilot, lambda: isinstance(app.screen, AgentsScreen))
        reading.set()
        link.push(Changes(after=10, seq=11, agents=(agent("nova", seq=11),)))
        await settle(pilot, lambda: "nova" in screen_text(app))
        shown = app.screen

        assert isinstance(shown, AgentsScreen)


async def test_only_the_newest_action_asks() -> None:
    app, link, commands = app_with(entry("permission/aa", since=5), entry("permission/bb", since=6))
    reading = link.held[AskPermission] = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("a")
        await settle(pilot, lambda: len(link.asked) == 1)
        await pilot.press("down", "x")
        await settle(pilot, lambda: len(link.asked) == 2)
        reading.set()
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))
        shown = app.screen

        assert isinstance(shown, NowScreen)

    assert commands.ran == [["pal", "deny", "bb"]]


async def test_late_refusal_is_explained_on_the_shown_screen() -> None:
    app, link, commands = app_with(entry("held/17", who="kai", actions=[RELEASE]))
    link.answers[AskLedger] = lambda question: held_ledger()
    commands.result = Result(1, "", "pal: #17 is not held; nothing was changed\n")
    releasing = commands.held = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("l")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.press("5")
        await settle(pilot, lambda: app.bus_screen is not None and app.bus_screen.screen_name == "Log")
        link.push(Changes(after=10, seq=11, settled=("held/17",)))
        await settle(pilot, lambda: app.store.seq == 11)
        releasing.set()
        await settle(pilot, lambda: "#17 has ended meanwhile" in status(app))
        await pilot.press("1")
        await settle(pilot, lambda: "Enter open" in status(app))


async def test_opened_request_counts_as_read() -> None:
    app, link, _ = app_with(entry("request/42"))
    message = MessageRow(seq=42, id="x", ts=1, sender="luna", text="Which one?", to=("human",))
    link.answers[AskLedger] = lambda question: LedgerPage(
        seq=10, message=message, receipts=msgspec.Raw(b"{}")
    )

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("enter")
        await settle(pilot, lambda: isinstance(app.screen, Window))

    assert link.seen == [42]


async def test_action_that_an_entry_does_not_have_is_refused() -> None:
    app, _, commands = app_with(entry("request/42"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("a")
        first = status(app)
        await pilot.press("l")
        second = status(app)

    assert first == "error: this entry is not a permission request"
    assert second == "error: release is not possible for this entry"
    assert commands.ran == []


async def test_hint_is_shown_until_an_agent_has_joined() -> None:
    app, link, _ = app_with(agents=0)

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.pause()
        before = now(app).query_one("#detail", TextRows).text
        link.push(Changes(after=10, seq=11, agents=(agent("luna", seq=11),)))
        await settle(pilot, lambda: app.store.seq == 11)
        await pilot.pause()
        after = lines_of(now(app).rows)

    assert "pal claude --name luna" in before
    assert "pal install claude" in before
    assert after[0] == "Nothing waits for you."


async def test_new_entry_during_an_open_question_does_not_move_the_answer() -> None:
    app, link, commands = app_with(entry("permission/bb", since=5))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("a")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        link.push(Changes(after=10, seq=11, attention=(entry("permission/aa", since=1),)))
        await settle(pilot, lambda: app.store.seq == 11)
        await pilot.press("y")
        await settle(pilot, lambda: bool(commands.ran))

    assert commands.ran == [["pal", "approve", "bb"]]


async def test_top_line_says_that_the_bus_is_away_and_rows_stay() -> None:
    app, link, _ = app_with(entry("request/42"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        link.push(BusAway())
        await settle(pilot, lambda: app.store.is_away)
        await pilot.pause()
        top = lines_of(app.screen.query_one("TopLine"))
        rows = lines_of(now(app).rows)

    assert top[0].endswith("bus away")
    assert rows[0].startswith("> request")


async def test_nothing_can_be_done_in_the_past() -> None:
    app, _, commands = app_with(entry("permission/aa"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        app.store.at = 5
        await pilot.press("a", "r", "x")
        await pilot.pause()
        status_text = status(app)

    assert "nothing can be changed" in status_text
    assert commands.ran == []


async def test_sentence_is_not_shown_again_when_the_screen_returns() -> None:
    app, _, _ = app_with(entry("request/42"))

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        app.say("pal send: sent #43")
        await settle(pilot, lambda: "sent #43" in status(app))
        await pilot.press("5")
        await settle(pilot, lambda: app.bus_screen is not None and app.bus_screen.screen_name == "Log")
        await pilot.press("1")
        await settle(pilot, lambda: "Enter open" in status(app))
