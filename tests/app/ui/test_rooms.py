"""The screen of the rooms."""

import msgspec
from tests.app.ui.fake_bus import FakeBus, settle, shown
from textual.widgets import TextArea

from palaver.app.ui.rooms import RoomsScreen
from palaver.app.ui.talk import TalkScreen
from palaver.protocol.views import AskRooms, Changes, RoomHandoff


def with_rooms() -> FakeBus:
    bus = FakeBus()
    bus.room("shop", "luna", "nova", stick="owned", owner="luna", lease_until=10**15)
    bus.room("web", "kira")
    bus.start()
    return bus


async def test_room_under_the_cursor_is_shown_completely() -> None:
    bus = with_rooms()
    handoff = RoomHandoff(seq=4, ts=1, sender="nova", handoff={"status": "red", "next_action": "fix it"})
    bus.rooms["shop"] = msgspec.structs.replace(bus.rooms["shop"], handoffs=(handoff,))
    app = bus.app("4")

    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot, lambda: "Members: 2 of 2 here" in shown(app, "#room"))
        first = shown(app, "#room")
        await pilot.press("down")
        await settle(pilot, lambda: "kira" in shown(app, "#room"))
        rooms = shown(app, "#rooms")

    assert "luna has the stick, lease" in first
    assert "status: red" in first
    assert "next: fix it" in first
    assert rooms.splitlines()[0].lstrip("> ").startswith("shop  2 of 2 here")


async def test_changed_room_is_read_again_and_keeps_its_place() -> None:
    bus = with_rooms()
    app = bus.app("4")

    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot, lambda: "luna has the stick" in shown(app, "#room"))
        bus.room("shop", "luna", "nova", stick="reserved", reserved_for="nova", claim_until=10**15)
        bus.link.push(Changes(after=10, seq=11, rooms=("shop",)))
        await settle(pilot, lambda: "reserved for nova" in shown(app, "#room"))


async def test_time_runs_down_only_while_the_screen_is_shown() -> None:
    bus = with_rooms()
    app = bus.app("4")

    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot, lambda: "luna has the stick" in shown(app, "#room"))
        screen = app.screen
        assert isinstance(screen, RoomsScreen)
        is_running = screen.is_ticking
        await pilot.press("5")
        await settle(pilot, lambda: app.screen is not screen)

    assert is_running
    assert not screen.is_ticking


async def test_members_can_be_written_to_and_their_messages_shown() -> None:
    bus = with_rooms()
    bus.say("#shop", 3, "the parser test is red", room="shop")
    app = bus.app("4")

    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot, lambda: "Members" in shown(app, "#room"))
        await pilot.press("n")
        await settle(pilot, lambda: isinstance(app.focused, TextArea))
        await pilot.press(*"hi", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        await settle(pilot, lambda: not isinstance(app.focused, TextArea))
        await pilot.press("m")
        await settle(pilot, lambda: isinstance(app.screen, TalkScreen))
        await settle(pilot, lambda: "parser test" in shown(app, "#messages"))

    assert bus.commands.ran == [["pal", "send", "--room", "shop", "--", "hi"]]


async def test_unsent_text_for_a_room_never_goes_to_another_room() -> None:
    bus = with_rooms()
    app = bus.app("4")

    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot, lambda: "Members" in shown(app, "#room"))
        await pilot.press("n", *"only for the shop", "escape", "down")
        await settle(pilot, lambda: "kira" in shown(app, "#room"))
        await pilot.press("n", *"hi", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran == [["pal", "send", "--room", "web", "--", "hi"]]


async def test_narrow_terminal_shows_the_list_or_the_room() -> None:
    bus = with_rooms()
    app = bus.app("4")

    async with app.run_test(size=(30, 10)) as pilot:
        await settle(pilot, lambda: "shop" in shown(app, "#rooms"))
        assert not app.screen.query_one("#room").display
        await pilot.press("enter")
        await settle(pilot, lambda: "Members" in shown(app, "#room"))
        assert not app.screen.query_one("#rooms").display
        await pilot.press("escape")
        await settle(pilot, lambda: app.screen.query_one("#rooms").display)


async def test_bus_without_rooms_says_so() -> None:
    bus = FakeBus()
    bus.start()
    app = bus.app("4")

    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: bus.asked(AskRooms))
        await settle(pilot, lambda: "no rooms yet" in shown(app, "#rooms"))
