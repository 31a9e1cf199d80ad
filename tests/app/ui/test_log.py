"""The screen of the log."""

import asyncio

from tests.app.ui.fake_bus import FakeBus, settle, shown, status

from palaver.errors import Unavailable
from palaver.protocol.views import AnyAsk, AskLog, AskSeq, Changes, EventRow, ViewValue

MILLION = 1_000_000


def with_events(last: int = MILLION) -> FakeBus:
    bus = FakeBus()
    bus.last = last
    bus.start()
    return bus


async def test_log_opens_at_its_end_and_reads_only_what_it_shows() -> None:
    bus = with_events()
    app = bus.app("5")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: "event 1000000" in shown(app, "#events"))
        asked = len(bus.asked(AskLog))
        await pilot.press("home")
        await settle(pilot, lambda: "event 1\n" in shown(app, "#events"))

    assert asked <= 2
    assert len(bus.asked(AskLog)) <= 4


async def test_new_events_are_followed_at_the_end_only() -> None:
    bus = with_events(50)
    app = bus.app("5")

    def happens(seq: int) -> None:
        row = EventRow(seq=seq, ts=1, type="status", sender="luna", text=f"new {seq}")
        bus.last = seq
        bus.link.push(Changes(after=seq - 1, seq=seq, events=(row,)))

    async with app.run_test(size=(100, 20)) as pilot:
        await settle(pilot, lambda: "event 50" in shown(app, "#events"))
        happens(51)
        await settle(pilot, lambda: "new 51" in shown(app, "#events"))
        await pilot.press("home")
        await settle(pilot, lambda: "event 1\n" in shown(app, "#events"))
        happens(52)
        await settle(pilot, lambda: app.store.seq == 52)
        kept = shown(app, "#events")
        await pilot.press("end")
        await settle(pilot, lambda: "new 52" in shown(app, "#events"))

    assert "event 1\n" in kept


async def test_jump_to_a_seq_and_to_a_time() -> None:
    bus = with_events()
    app = bus.app("5")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: "event 1000000" in shown(app, "#events"))
        await pilot.press("t", *"#500000", "enter")
        await settle(pilot, lambda: "> #500000" in shown(app, "#events"))
        await pilot.press("t", *"10m", "enter")
        await settle(pilot, lambda: "> #4 " in shown(app, "#events"))
        await pilot.press("t", *"soon", "enter")
        await settle(pilot, lambda: "not a time: soon" in status(app))
        await pilot.press("t", *"9999999", "enter")
        await settle(pilot, lambda: "the log ends at #1000000" in status(app))


async def test_jump_that_comes_late_does_not_move_a_newer_search() -> None:
    bus = with_events(5_000)
    app = bus.app("5")
    reading = bus.link.held[AskSeq] = asyncio.Event()

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: "event 5000" in shown(app, "#events"))
        await pilot.press("t", *"10m", "enter")
        await settle(pilot, lambda: bus.asked(AskSeq))
        await pilot.press("slash", *"flaky", "enter")
        await settle(pilot, lambda: "event 5000 flaky" in shown(app, "#events"))
        reading.set()
        bus.link.push(Changes(after=5_000, seq=5_001))
        await settle(pilot, lambda: app.store.seq == 5_001)
        events = shown(app, "#events")

    assert "event 5000 flaky" in events


async def test_filters_and_search_are_asked_and_hits_are_marked() -> None:
    bus = with_events(5_000)
    app = bus.app("5")

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: "event 5000" in shown(app, "#events"))
        await pilot.press("slash", *"type:status from:luna flaky", "enter")
        await settle(pilot, lambda: "event 5000 flaky" in shown(app, "#events"))
        asked = bus.asked(AskLog)[-1]
        line = app.screen.query_one("#events").render_line(0)
        marked = [segment.text for segment in line if segment.style is not None and segment.style.underline]
        text = shown(app, "#filter-text")
        await pilot.press("escape")
        await settle(pilot, lambda: "all events" in shown(app, "#filter-text"))

    assert isinstance(asked, AskLog)
    assert (asked.types, asked.senders, asked.search) == (("status",), ("luna",), "flaky")
    assert marked == ["flaky"]
    assert text == "filter: type:status from:luna flaky"


async def test_refusal_of_an_earlier_filter_is_not_shown() -> None:
    bus = with_events(5_000)
    app = bus.app("5")
    answer = bus.link.answers[AskLog]

    def refuse(question: AnyAsk) -> ViewValue:
        if getattr(question, "search", "") == "one":
            raise Unavailable("the search took too long")
        return answer(question)

    bus.link.answers[AskLog] = refuse

    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot, lambda: "event 5000" in shown(app, "#events"))
        first = bus.link.held[AskLog] = asyncio.Event()
        await pilot.press("slash", *"one", "enter")
        await settle(pilot, lambda: getattr(bus.asked(AskLog)[-1], "search", "") == "one")
        second = bus.link.held[AskLog] = asyncio.Event()
        await pilot.press("slash", *("backspace",) * 3, *"two", "enter")
        await settle(pilot, lambda: getattr(bus.asked(AskLog)[-1], "search", "") == "two")
        first.set()
        bus.link.push(Changes(after=5_000, seq=5_001))
        await settle(pilot, lambda: app.store.seq == 5_001)
        meanwhile = shown(app, "#events")
        second.set()
        await settle(pilot, lambda: "event 5000 two" in shown(app, "#events"))

    assert meanwhile.strip() == "searching ..."


async def test_wrong_filter_is_refused_with_the_known_ones() -> None:
    bus = with_events(20)
    app = bus.app("5")

    async with app.run_test(size=(200, 20)) as pilot:
        await settle(pilot, lambda: "event 20" in shown(app, "#events"))
        await pilot.press("slash", *"form:luna", "enter")
        await settle(pilot, lambda: "no such filter: form" in status(app))


async def test_enter_shows_the_whole_event() -> None:
    bus = with_events(20)
    app = bus.app("5")

    async with app.run_test(size=(100, 20)) as pilot:
        await settle(pilot, lambda: "event 20" in shown(app, "#events"))
        await pilot.press("enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran[0][:4] == ["pal", "events", "--after", "19"]


async def test_log_is_shown_if_changes_came_before_it_was_opened() -> None:
    bus = with_events(20)
    app = bus.app("1")

    async with app.run_test(size=(100, 20)) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        bus.last = 21
        bus.link.push(Changes(after=20, seq=21))
        await settle(pilot, lambda: app.store.seq == 21)
        await pilot.press("5")
        await settle(pilot, lambda: app.bus_screen is not None and app.bus_screen.KEY == "5")
        await settle(pilot, lambda: "event 21" in shown(app, "#events"))
