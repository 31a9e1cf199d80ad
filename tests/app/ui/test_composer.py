"""The composer: destinations, unsent texts and keys."""

import asyncio

import pytest
from tests.app.ui.fake_bus import settle
from tests.app.ui.test_widgets import app_with, ready
from textual.events import Key

from palaver.app.ui.commands import Result
from palaver.app.ui.composer import MessageComposer, OutgoingText, complete_name
from palaver.app.ui.widgets import Question, StatusLine


async def test_last_line_shows_the_composer_keys_while_a_message_is_written() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        line = app.bus_screen.query_one(StatusLine)
        before = line.text
        line.say("sent #3 to luna")
        app.bus_screen.query_one(MessageComposer).open(OutgoingText(targets=("@luna",)))
        await pilot.pause()
        writing = line.text
        await pilot.press("escape")
        await pilot.pause()

    assert writing.startswith("Enter send  Esc close")
    assert line.text == before


# Commands


def test_names_are_completed_as_far_as_they_are_unique() -> None:
    names = ["kai", "luna", "luna_2", "nova"]

    assert complete_name("hello @n", names) == ("hello @nova ", ["nova"])
    assert complete_name("@lu", names) == ("@luna", ["luna", "luna_2"])
    assert complete_name("no name", names) == ("no name", [])
    assert complete_name("@zz", names) == ("@zz", [])
    assert complete_name("mail@x y", names) == ("mail@x y", [])


def test_outgoing_text_becomes_a_pal_line_with_the_text_last() -> None:
    outgoing = OutgoingText(
        targets=("@luna",), reply_to=42, priority="interrupt", intent="request", thread="t"
    )

    assert outgoing.argv("--not an option") == [
        *("pal", "send", "@luna", "--thread", "t", "--reply-to", "42"),
        *("--priority", "interrupt", "--intent", "request", "--", "--not an option"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        OutgoingText(room="web"),
        OutgoingText(thread="api"),
        OutgoingText(targets=("@luna",), room="shop"),
        OutgoingText(room="shop", reply_to=4),
    ],
)
async def test_unsent_text_stays_only_with_its_own_destination(other: OutgoingText) -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        composer = app.bus_screen.query_one(MessageComposer)
        composer.open(OutgoingText(room="shop"))
        await pilot.press(*"for the shop", "escape")
        composer.open(OutgoingText(room="shop", priority="interrupt"))
        again = composer.area.text
        await pilot.press("escape")
        composer.open(other)
        text_of_other = composer.area.text
        composer.open(OutgoingText(room="shop"))

        assert (again, text_of_other, composer.area.text) == ("for the shop", "", "for the shop")


@pytest.mark.parametrize(
    ("is_sent", "left"), [(True, " and more"), (False, "first and more")], ids=["sent", "refused"]
)
async def test_text_left_during_its_send_is_shown_again_unless_it_was_sent(is_sent: bool, left: str) -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        composer = app.bus_screen.query_one(MessageComposer)
        composer.open(OutgoingText(room="shop"))
        composer.area.insert("first")
        assert composer.submit("first")
        composer.area.insert(" and more")
        composer.open(OutgoingText(room="web"))
        if is_sent:
            composer.sent()
        else:
            composer.keep("the room is closed")
        composer.open(OutgoingText(room="shop"))

        assert composer.area.text == left


async def test_pasted_lines_stay_together_and_survive_a_resize() -> None:
    app, _, commands = app_with("luna", "nova")
    pasted = "first line\nsecond [b]line[/b]\n" + "x" * 3000

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        composer = app.bus_screen.query_one(MessageComposer)
        composer.open(OutgoingText(targets=("@luna",)))
        await pilot.pause()
        for begin in range(0, len(pasted), 700):
            composer.area.insert(pasted[begin : begin + 700])
            await pilot.resize_terminal(20 + begin % 50, 5 + begin % 9)
        await pilot.press("enter")
        for _ in range(20):
            await pilot.pause()

    assert commands.ran == [["pal", "send", "@luna", "--", pasted]]


async def test_priority_intent_and_completion_are_keys_of_the_composer() -> None:
    app, _, commands = app_with("luna", "nova")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        app.bus_screen.query_one(MessageComposer).open(OutgoingText(targets=("@luna",)))
        await pilot.pause()
        await pilot.press("ctrl+p", "ctrl+t", *"ask @no", "tab", *"first", "enter")
        for _ in range(20):
            await pilot.pause()

    assert commands.ran == [
        ["pal", "send", "@luna", "--priority", "interrupt", "--intent", "request", "--", "ask @nova first"]
    ]


async def test_keys_typed_at_once_act_in_their_order() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        composer = app.bus_screen.query_one(MessageComposer)
        composer.open(OutgoingText(targets=("@luna",)), "lunq look")
        await pilot.pause()
        for key in ("home", "right", "right", "right", "delete", "a", "end", "!"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        for _ in range(20):
            await pilot.pause()

        assert composer.area.text == "luna look!"


@pytest.mark.parametrize("result", [Result(0, "done\n", ""), Result(1, "", "the room is closed")])
async def test_text_that_is_being_sent_is_not_sent_again_from_another_screen(result: Result) -> None:
    app, _, commands = app_with("luna")
    commands.held, commands.result = asyncio.Event(), result
    shop = OutgoingText(room="shop")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        first = app.bus_screen.query_one(MessageComposer)
        first.open(shop)
        await pilot.press(*"text", "enter", "escape")
        await settle(pilot, lambda: bool(commands.ran))
        await pilot.press("3")
        await ready(app, pilot)
        second = app.bus_screen.query_one(MessageComposer)
        second.open(shop)
        await pilot.press("enter", "escape")
        commands.held.set()
        await settle(pilot, lambda: not first.is_sending)
        second.open(shop)

        assert second is not first
        assert len(commands.ran) == 1
        assert second.area.text == ("" if result.is_done else "text")


async def test_refused_text_returns_before_the_text_that_was_typed_after_it() -> None:
    app, _, _ = app_with("luna")
    shop = OutgoingText(room="shop")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        composer = app.bus_screen.query_one(MessageComposer)
        composer.open(shop, "first")
        assert composer.submit("first")
        composer.area.insert(" and more")
        composer.action_cancel()
        composer.open(shop)
        during = composer.area.text
        composer.keep("the room is closed")
        joined = composer.area.text
        composer.area.load_text("second")
        assert not composer.submit("second")
        composer.is_sending = False
        assert composer.submit("second")
        composer.action_cancel()
        composer.open(shop, "other")
        composer.keep("the room is closed")

        assert (during, joined, composer.area.text) == (" and more", "first and more", "second\nother")


async def test_dashboard_asks_before_it_ends_with_unsent_texts() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        assert app.bus_screen is not None
        app.bus_screen.query_one(MessageComposer).open(OutgoingText(room="shop"))
        await pilot.press(*"not yet", "escape", "q")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("n")
        await settle(pilot, lambda: not isinstance(app.screen, Question))
        was_running = app.is_running
        app.bus_screen.query_one(MessageComposer).open(OutgoingText(room="shop"))
        kept = app.bus_screen.query_one(MessageComposer).area.text
        await pilot.press("escape", "q")
        await settle(pilot, lambda: isinstance(app.screen, Question))
        await pilot.press("y")
        await settle(pilot, lambda: app.return_value is not None)

    assert (was_running, kept, app.return_value) == (True, "not yet", 0)


async def test_dashboard_without_unsent_texts_ends_at_once() -> None:
    app, _, _ = app_with("luna")

    async with app.run_test(size=(80, 24)) as pilot:
        await ready(app, pilot)
        await pilot.press("q")
        await pilot.pause()

    assert app.return_value == 0
