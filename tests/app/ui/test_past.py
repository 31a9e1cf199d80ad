"""The screen Past, and the rule that nothing can be sent there."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from tests.app.ui.fake_bus import WIDE, FakeBus, settle, shown, status
from tests.app.ui.fake_link import entry
from textual.pilot import Pilot

from palaver.app.ui.app import PalaverApp, PastReading
from palaver.app.ui.log import LogScreen, PastScreen
from palaver.app.ui.now import NowScreen
from palaver.app.ui.talk import TalkScreen
from palaver.errors import Unavailable
from palaver.protocol.views import AskConversations, AskLog, AskMessages, AskPast, AskSeq, Changes


def with_past() -> FakeBus:
    bus = FakeBus()
    bus.say("@human@nova", 3, "which port?", is_unread=True)
    bus.say("@human@nova", 8, "use 80", sender="human")
    bus.say("thread/x", 9, "later")
    return bus


def past_screen(bus: FakeBus) -> AbstractAsyncContextManager[tuple[PalaverApp, Pilot[int]]]:
    """Open the screen Past."""
    return bus.opened("event 10", first="6", widget="#events")


async def go_to(pilot: Pilot[int], app: PalaverApp, seq: int) -> None:
    """Show the bus as it was at a seq."""
    await pilot.press("t", *str(seq), "enter")
    await settle(pilot, lambda: app.store.at == seq)


async def test_every_screen_shows_the_bus_as_it_was() -> None:
    bus = with_past()

    async with past_screen(bus) as (app, pilot):
        await go_to(pilot, app, 5)
        await pilot.press("3")
        await settle(pilot, lambda: isinstance(app.screen, TalkScreen))
        await settle(pilot, lambda: "which port?" in shown(app, "#messages"))
        messages, talks = shown(app, "#messages"), shown(app, "#talks")
        frame = app.screen.border_title
        top = shown(app, "TopLine")
        await pilot.press("5")
        await settle(pilot, lambda: isinstance(app.screen, LogScreen))
        await settle(pilot, lambda: "event 5" in shown(app, "#events"))
        events = shown(app, "#events")

    assert "use 80" not in messages
    assert "thread/x" not in talks
    assert frame is not None
    assert frame.startswith("past #5  2023-11-1")
    assert "1 agent: 1 active" in top
    assert "past #5" in top
    assert "event 6" not in events
    assert {question.at for question in bus.asked(AskMessages)} == {5}
    assert bus.link.seen == []


async def test_arrows_step_and_escape_returns_from_every_screen() -> None:
    bus = with_past()

    async with past_screen(bus) as (app, pilot):
        await pilot.press("up", "up", "enter")
        await settle(pilot, lambda: app.store.at == 8)
        await pilot.press("left")
        await settle(pilot, lambda: app.store.at == 7)
        await pilot.press("right", "right", "right", "right")
        await settle(pilot, lambda: app.store.at == 10)
        await pilot.press("left_square_bracket")
        await settle(pilot, lambda: app.store.at == 1)
        for key, kind in (("1", NowScreen), ("3", TalkScreen), ("5", LogScreen)):
            await pilot.press(key)
            await settle(pilot, lambda kind=kind: isinstance(app.screen, kind))  # type: ignore[misc]
            assert app.store.at == 1
        await pilot.press("escape")
        await settle(pilot, lambda: app.store.at == 0)
        frame = app.screen.border_title
        await settle(pilot, lambda: "event 10" in shown(app, "#events"))

    assert frame == ""


async def test_nothing_can_be_sent_in_the_past() -> None:
    bus = with_past()

    async with past_screen(bus) as (app, pilot):
        await go_to(pilot, app, 5)
        await pilot.press("3")
        await settle(pilot, lambda: "which port?" in shown(app, "#messages"))
        await pilot.press("r")
        await settle(pilot, lambda: "nothing can be changed" in status(app))
        await pilot.press("n", "N", "colon", *"send @nova x", "enter")
        await settle(pilot, lambda: "nothing can be changed" in status(app))

    assert bus.commands.ran == []


async def test_screen_that_was_opened_in_the_past_completes_the_names_of_now() -> None:
    bus = with_past()
    bus.room("shop", "luna", "nova")

    async with past_screen(bus) as (app, pilot):
        await go_to(pilot, app, 5)
        await pilot.press("4")
        await settle(pilot, lambda: "2 of 2 here" in shown(app, "#room"))
        await pilot.press("escape")
        await settle(pilot, lambda: app.store.at == 0)
        await pilot.press("n", *"@no", "tab", *"hi", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran == [["pal", "send", "--room", "shop", "--", "@nova hi"]]


async def test_present_goes_on_while_the_past_is_shown() -> None:
    bus = with_past()

    async with past_screen(bus) as (app, pilot):
        await go_to(pilot, app, 5)
        asks = entry("request/11", who="kira", what="may I push?")
        counts = app.present.counts
        changed = Changes(after=10, seq=11, attention=(asks,), counts=type(counts)(agents={}, attention=1))
        bus.link.push(changed)
        await settle(pilot, lambda: "now 1 needs you" in str(app.screen.border_title))
        in_past = len(app.store.attention)
        await pilot.press("escape")
        await settle(pilot, lambda: "kira: may I push?" in shown(app, "TopLine"))

    assert in_past == 0


async def test_conversations_that_are_read_late_are_not_shown_in_the_past() -> None:
    bus = FakeBus()
    bus.say("thread/later", 9, "newest")
    newest = bus.snapshot()
    bus.say("thread/old", 4, "older")
    bus.link.push(newest)
    reading = bus.link.held[AskConversations] = asyncio.Event()
    app = bus.app()

    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot, lambda: bus.asked(AskConversations))
        app.show_past(2)
        await settle(pilot, lambda: app.store.at == 2)
        past = app.store
        reading.set()
        app.show_past(1)
        await settle(pilot, lambda: app.store.at == 1)

    assert past.talks == {}


async def test_time_is_a_moment_too_and_a_refusal_changes_nothing() -> None:
    bus = with_past()

    async with past_screen(bus) as (app, pilot):
        await pilot.press("t", *"10m", "enter")
        await settle(pilot, lambda: app.store.at == 4)

        def refuse(question: object) -> object:
            raise Unavailable("too many views of the past are open")

        bus.link.answers[AskPast] = refuse  # type: ignore[assignment]
        await pilot.press("left")
        await settle(pilot, lambda: "too many views" in status(app))
        at = app.store.at
        await pilot.press("t", *"soon", "enter")
        await settle(pilot, lambda: "not a time" in status(app))
        assert isinstance(app.bus_screen, PastScreen)

    assert at == 4
    assert {question.at for question in bus.asked(AskLog)} == {0}


async def test_escape_stops_the_way_to_a_time() -> None:
    bus = with_past()
    reading = bus.link.held[AskSeq] = asyncio.Event()

    async with past_screen(bus) as (app, pilot):
        await pilot.press("t", *"10m", "enter")
        await settle(pilot, lambda: bus.asked(AskSeq))
        await pilot.press("escape")
        reading.set()
        await go_to(pilot, app, 5)

    assert [question.at for question in bus.asked(AskPast)] == [5]


async def test_long_way_into_the_past_shows_how_far_it_is() -> None:
    bus = with_past()
    steps = bus.link.past_steps = asyncio.Queue[int]()

    async with past_screen(bus) as (app, pilot):
        await pilot.press("t", *"5", "enter")
        await settle(pilot, lambda: "reading the bus at #5; Esc stops" in status(app))
        steps.put_nowait(2)
        await settle(pilot, lambda: "2 of 5 events" in status(app))
        steps.put_nowait(4)
        await settle(pilot, lambda: "4 of 5 events" in status(app))
        assert app.store.at == 0
        steps.put_nowait(5)
        await settle(pilot, lambda: app.store.at == 5)


async def test_escape_stops_a_long_way_into_the_past() -> None:
    bus = with_past()
    steps = bus.link.past_steps = asyncio.Queue[int]()

    async with past_screen(bus) as (app, pilot):
        await pilot.press("t", *"5", "enter")
        steps.put_nowait(2)
        await settle(pilot, lambda: "2 of 5 events" in status(app))
        await pilot.press("escape")
        await settle(pilot, lambda: "this is the bus now" in status(app))
        await settle(pilot, lambda: [question.at for question in bus.asked(AskPast)] == [5, 0])
        steps.put_nowait(5)
        await pilot.press("t", *"4", "enter")
        await settle(pilot, lambda: app.store.at == 4)


@pytest.mark.parametrize(
    ("reached", "end"),
    [
        ([(0, 0.0)], "0 of 1,000 events; Esc stops"),
        ([(0, 0.0), (250, 1.0)], "250 of 1,000 events, about 3 s left; Esc stops"),
        ([(0, 0.0), (1, 1.0)], "1 of 1,000 events, about 17 min left; Esc stops"),
        ([(500, 5.0), (990, 54.0)], "990 of 1,000 events, about 1 s left; Esc stops"),
        ([(700, 5.0), (0, 6.0)], "0 of 1,000 events; Esc stops"),
        ([(700, 5.0), (1200, 6.0)], "1,000 of 1,000 events; Esc stops"),
    ],
)
def test_time_that_is_left_is_estimated_from_the_pace(reached: list[tuple[int, float]], end: str) -> None:
    reading = PastReading(1000)

    sentences = [reading.sentence(seq, now_s) for seq, now_s in reached]

    assert sentences[-1] == f"reading the bus at #1000: {end}"
