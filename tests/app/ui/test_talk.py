"""The screen Talk and the chat of a room, on a bus in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.app.ui.fake_bus import WIDE, FakeBus, screen_text, settle, shown, status, waiting
from tests.app.ui.fake_link import entry
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from palaver.app.ui.app import PalaverApp
from palaver.app.ui.commands import Result
from palaver.app.ui.composer import MessageComposer
from palaver.app.ui.messages import PAGE, LedgerWindow
from palaver.app.ui.talk import ChatComposer, RoomTalk, TalkScreen, message_to, reply_to
from palaver.app.ui.widgets import CommandLine, TextRows, Window
from palaver.errors import NotFound
from palaver.protocol.views import (
    AnyAsk,
    AskConversations,
    AskLedger,
    AskMessages,
    Changes,
    ConversationRow,
    EventRow,
    MessageRow,
    MessagesPage,
    ViewValue,
)

NOVA = "@human@nova"
REFUSED = Result(1, "", "pal: no such agent: nova")


def talking() -> FakeBus:
    bus = FakeBus()
    bus.say("#shop", 3, "the parser test is red", sender="luna", room="shop")
    bus.say(NOVA, 5, "which port?", to=["@human"], intent="request", is_unread=True)
    bus.room("shop", "luna", "nova")
    return bus


@asynccontextmanager
async def sending_reply(
    bus: FakeBus,
) -> AsyncIterator[tuple[PalaverApp, Pilot[int], MessageComposer, asyncio.Event]]:
    """Run the screen Talk while it sends the reply `one`; the event ends the command that sends it."""
    sending = bus.commands.held = asyncio.Event()
    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("r", *"one", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        yield app, pilot, app.screen.query_one(MessageComposer), sending


async def test_conversation_is_shown_although_the_one_before_it_cannot_be_read() -> None:
    bus = talking()
    bus.start()
    app = bus.app()
    reading = bus.link.held[AskMessages] = asyncio.Event()
    answer = bus.link.answers[AskMessages]

    def refuse(question: AnyAsk) -> ViewValue:
        if getattr(question, "conversation", "") == NOVA:
            raise NotFound("conversation")
        return answer(question)

    bus.link.answers[AskMessages] = refuse

    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot, lambda: bus.asked(AskMessages))
        await pilot.press("down", "enter")
        await settle(pilot, lambda: shown(app, "#talk-title").startswith("#shop"))
        reading.set()
        await settle(pilot, lambda: "the parser test is red" in shown(app, "#messages"))


async def test_newest_conversation_is_shown_and_its_messages_are_acknowledged() -> None:
    bus = talking()
    bus.start()
    app = bus.app()

    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot, lambda: bus.link.seen)
        talks, messages = shown(app, "#talks"), shown(app, "#messages")

    assert talks.splitlines()[0].startswith("> @human@nova (1 new)  nova: which")
    assert "nova → you new  #5  request" in messages
    assert bus.link.seen == [5]


async def test_passing_over_a_conversation_does_not_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TalkScreen, "REST_S", 3600.0)  # no machine is too slow to pass over one
    bus = talking()
    bus.say("thread/x", 9, "newest")

    async with bus.opened("newest") as (app, pilot):
        await pilot.press("down", "down", "enter")
        await settle(pilot, lambda: "parser" in shown(app, "#messages"))

    assert bus.link.seen == []


async def test_every_recipient_that_waits_has_its_reason() -> None:
    bus = talking()
    bus.say(NOVA, 6, "use 80", sender="human", to=["@nova"], marks=waiting("nova"))

    async with bus.opened("use 80") as (app, _pilot):
        messages = shown(app, "#messages")

    assert "○ waiting: nova: nova has not called pal recv" in messages


async def test_new_message_appears_and_changed_marks_are_drawn() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        bus.say(NOVA, 6, "use 80", sender="human", marks=waiting("nova"))
        bus.changed(5, NOVA)
        await settle(pilot, lambda: "○ waiting" in shown(app, "#messages"))
        bus.talks[NOVA][1:] = []
        bus.say(NOVA, 6, "use 80", sender="human", marks=[{"name": "nova", "state": "seen"}])
        bus.changed(6, NOVA, moved=[6])
        await settle(pilot, lambda: "✓ seen: nova" in shown(app, "#messages"))
        messages = shown(app, "#messages")

    assert messages.count("use 80") == 1


async def test_older_messages_are_read_when_they_are_needed() -> None:
    bus = FakeBus()
    for seq in range(1, 301):
        bus.say("#shop", seq, f"text {seq}")

    async with bus.opened("text 300") as (app, pilot):
        assert len(bus.asked(AskMessages)) == 1
        await pilot.press("enter")
        for _ in range(12):
            await pilot.press("home")
            await pilot.pause()
        await settle(pilot, lambda: "text 1\n" in shown(app, "#messages"))

    assert len(bus.asked(AskMessages)) == 300 // PAGE


async def test_enter_shows_the_ledger_and_keeps_it_current() -> None:
    bus = talking()
    bus.say(NOVA, 6, "use 80", sender="human", marks=waiting("nova"))

    async with bus.opened("use 80") as (app, pilot):
        await pilot.press("enter", "enter")
        await settle(pilot, lambda: isinstance(app.screen, LedgerWindow))
        first = app.screen.query_one(TextRows).text
        bus.talks[NOVA][1:] = []
        bus.say(NOVA, 6, "use 80", sender="human", marks=[{"name": "nova", "state": "seen"}])
        bus.changed(6, NOVA, moved=[6])
        await settle(pilot, lambda: "✓ seen" in app.screen.query_one(TextRows).text)
        await pilot.press("escape")
        await settle(pilot, lambda: isinstance(app.screen, TalkScreen))

    assert "Why: nova has not called pal recv [not_fetched]" in first
    assert "Next: nova calls pal recv" in first


async def test_message_that_comes_while_the_first_page_is_read_is_shown() -> None:
    bus = talking()
    bus.start()
    app = bus.app()
    reading = bus.link.held[AskMessages] = asyncio.Event()
    # The bus reads the rows before it reads the seq of the page.
    pages = [MessagesPage(seq=6, rows=tuple(bus.talks[NOVA]))]
    answer = bus.link.answers[AskMessages]
    bus.link.answers[AskMessages] = lambda question: pages.pop() if pages else answer(question)

    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot, lambda: bus.asked(AskMessages))
        bus.say(NOVA, 6, "use 80")
        bus.changed(5, NOVA)
        await settle(pilot, lambda: app.store.talks[NOVA].seq == 6)
        reading.set()
        await settle(pilot, lambda: "use 80" in shown(app, "#messages"))


async def test_ledger_that_was_closed_does_not_open_again() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("enter", "enter")
        await settle(pilot, lambda: isinstance(app.screen, LedgerWindow))
        reading = bus.link.held[AskLedger] = asyncio.Event()
        bus.changed(5, NOVA, moved=[5])
        await settle(pilot, lambda: len(bus.asked(AskLedger)) == 2)
        await pilot.press("escape")
        await settle(pilot, lambda: isinstance(app.screen, TalkScreen))
        reading.set()
        bus.say(NOVA, 11, "use 80")
        bus.changed(10, NOVA)
        await settle(pilot, lambda: "use 80" in shown(app, "#messages"))
        is_open = isinstance(app.screen, LedgerWindow)

    assert not is_open


async def test_ledger_does_not_open_above_a_reply() -> None:
    bus = talking()
    reading = bus.link.held[AskLedger] = asyncio.Event()

    async with bus.opened("which port?") as (_app, pilot):
        await pilot.press("enter", "enter")
        await settle(pilot, lambda: bus.asked(AskLedger))
        await pilot.press("r", *"on")
        reading.set()
        await pilot.pause()
        await pilot.press(*"e", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran[0][-1] == "one"


async def test_ledger_has_the_steps_of_all_recipients() -> None:
    bus = talking()
    marks = [{"name": f"agent{number:03}", "state": "seen"} for number in range(120)]
    bus.say(NOVA, 6, "use 80", sender="human", marks=marks)

    async with bus.opened("use 80") as (app, pilot):
        await pilot.press("enter", "enter")
        await settle(pilot, lambda: isinstance(app.screen, LedgerWindow))
        text = app.screen.query_one(TextRows).text

    assert text.count("hook") == len(marks)
    assert text.count("stored by") == 1


@pytest.mark.parametrize("size", [(120, 30), (80, 24), (40, 10), (20, 6)])
async def test_reply_box_leaves_its_message_visible(size: tuple[int, int]) -> None:
    bus = talking()
    for seq in range(10, 40):
        bus.say(NOVA, seq, f"text {seq}", to=["@human"])
    bus.start()
    app = bus.app()

    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: app.store.has_snapshot)
        await pilot.press("enter")
        await settle(pilot, lambda: "text 39" in shown(app, "#messages"))
        await pilot.press("up", "up", "r")
        await settle(pilot, lambda: app.screen.query_one(MessageComposer).is_open)
        await settle(pilot, lambda: "#37" in shown(app, "#messages"))
        composer = app.screen.query_one(MessageComposer)
        messages = app.screen.query_one("#messages")
        overlap = messages.region.intersection(composer.region)
        await pilot.press(*"yes", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert overlap.area == 0
    assert bus.commands.ran == [["pal", "send", "@nova", "--reply-to", "37", "--", "yes"]]


async def test_quote_is_put_into_the_reply() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("Q")
        await settle(pilot, lambda: app.screen.query_one(MessageComposer).is_open)
        text = app.screen.query_one(MessageComposer).area.text

    assert text == "> which port?\n"


async def test_text_is_typed_after_the_quote() -> None:
    bus = talking()

    async with bus.opened("which port?") as (_app, pilot):
        await pilot.press("Q", *"80", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran[0][-1] == "> which port?\n80"


async def test_quote_is_put_once_after_an_unsent_text() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("r", *"80", "escape", "Q", "escape", "Q")
        text = app.screen.query_one(MessageComposer).area.text

    assert text == "80\n> which port?\n"


async def test_quote_that_is_added_during_a_send_stays() -> None:
    bus = talking()

    async with sending_reply(bus) as (_app, pilot, composer, sending):
        await pilot.press("escape", "Q")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        text, is_open = composer.area.text, composer.is_open

    assert (text, is_open) == ("> which port?\n", True)


async def test_refused_message_keeps_its_text() -> None:
    bus = talking()
    bus.commands.result = REFUSED

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("r", *"hello", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        await settle(pilot, lambda: not app.screen.query_one(MessageComposer).is_sending)
        text, status_text = app.screen.query_one(MessageComposer).area.text, status(app)

    assert text == "hello"
    assert "no such agent: nova" in status_text


async def test_text_typed_while_a_message_is_sent_stays() -> None:
    bus = talking()
    sending = bus.commands.held = asyncio.Event()

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("r", *"one", "ctrl+j", *"two", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        composer = app.screen.query_one(MessageComposer)
        await pilot.press("ctrl+j", *"three")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        rest, is_open = composer.area.text, composer.is_open
        await pilot.press(*" four", "enter")
        await settle(pilot, lambda: not composer.is_open)

    assert [argv[-1] for argv in bus.commands.ran] == ["one\ntwo", "three four"]
    assert (rest, is_open) == ("\nthree", True)


async def test_sent_message_leaves_one_that_was_started_after_it_open() -> None:
    bus = talking()

    async with sending_reply(bus) as (_app, pilot, composer, sending):
        await pilot.press("escape", "n", *"two")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        text, is_open = composer.area.text, composer.is_open

    assert (text, is_open) == ("two", True)


async def test_sent_text_is_forgotten_although_its_composer_was_closed() -> None:
    bus = talking()

    async with sending_reply(bus) as (_app, pilot, composer, sending):
        await pilot.press("escape")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        await pilot.press("r")
        await settle(pilot, lambda: composer.is_open)
        text = composer.area.text

    assert text == ""


@pytest.mark.parametrize("result", [Result(0, "done\n", ""), REFUSED])
async def test_result_of_a_send_leaves_the_focus_where_the_person_is(result: Result) -> None:
    bus = talking()
    bus.commands.result = result

    async with sending_reply(bus) as (app, pilot, composer, sending):
        await pilot.click("#talks", offset=(5, 0))
        await pilot.press("colon", *"li")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        await pilot.press(*"st")
        typed, written = app.screen.query_one(CommandLine).input.value, bus.commands.ran[0][-1]

    assert (typed, written) == ("list", "one")


async def test_refusal_after_escape_leaves_the_keys_to_the_list() -> None:
    bus = talking()
    bus.commands.result = REFUSED

    async with sending_reply(bus) as (app, pilot, composer, sending):
        await pilot.press("escape")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        has_focus, status_text = composer.area.has_focus, status(app)
        await pilot.press("r")
        kept = composer.area.text

    assert not has_focus
    assert "no such agent: nova" in status_text
    assert kept == "one"


async def test_refusal_is_not_shown_above_a_message_that_was_started_after_it() -> None:
    bus = talking()
    bus.commands.result = REFUSED

    async with sending_reply(bus) as (app, pilot, composer, sending):
        await pilot.press("escape", "n", *"two")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        await pilot.pause()
        screen = screen_text(app)

    assert "not sent" not in screen


async def test_new_message_asks_for_recipients_and_completes_them() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("N", *"lu")
        await settle(pilot, lambda: app.screen.query_one("#recipients Input", Input).value == "@lu")
        await pilot.pause()
        await pilot.press("right")
        await settle(pilot, lambda: app.screen.query_one("#recipients Input", Input).value == "@luna")
        await pilot.press("enter", *"hi", "ctrl+t", "ctrl+p", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran == [
        ["pal", "send", "@luna", "--priority", "interrupt", "--intent", "request", "--", "hi"]
    ]


async def test_narrow_terminal_shows_one_part_at_a_time() -> None:
    bus = talking()

    async with bus.opened("which port", widget="#talks", size=(60, 20)) as (app, pilot):
        assert bus.link.seen == []
        await pilot.press("enter")
        await settle(pilot, lambda: bus.link.seen == [5])
        is_list_shown = app.screen.query_one("#talks").display
        await pilot.press("escape")
        await settle(pilot, lambda: app.screen.query_one("#talks").display)

    assert not is_list_shown


@pytest.mark.parametrize("size", [WIDE, (60, 20)])
async def test_message_goes_to_the_conversation_with_the_cursor(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TalkScreen, "REST_S", 3600.0)  # no machine is too slow to be faster than this
    bus = talking()

    async with bus.opened("which po", widget="#talks", size=size) as (app, pilot):
        await pilot.press("enter")
        await settle(pilot, lambda: bus.link.seen == [5])
        await pilot.press("escape")
        await settle(pilot, lambda: app.focused is app.screen.query_one("#talks"))
        await pilot.press("down", "r")
        await settle(pilot, lambda: status(app) == "error: choose a message first")
        await pilot.press("n", *"hi", "enter")
        await settle(pilot, lambda: bus.commands.ran)

    assert bus.commands.ran == [["pal", "send", "--room", "shop", "--", "hi"]]


async def test_refusal_of_a_list_that_is_not_shown_is_not_said_later() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        reading = bus.link.held[AskConversations] = asyncio.Event()
        await pilot.press("slash", *"shop", "enter")
        await settle(pilot, lambda: len(bus.asked(AskConversations)) == 2)
        del bus.link.answers[AskConversations], bus.link.held[AskConversations]
        await pilot.press("5")
        await settle(pilot, lambda: app.bus_screen is not None and app.bus_screen.screen_name == "Log")
        reading.set()
        bus.link.push(Changes(after=10, seq=11))
        await settle(pilot, lambda: app.store.seq == 11)
        await pilot.press("3")
        await settle(pilot, lambda: isinstance(app.screen, TalkScreen))
        status_text = status(app)

    assert "not reachable" not in status_text


async def test_search_that_is_cancelled_leaves_the_keys_to_the_shown_list() -> None:
    bus = talking()

    async with bus.opened("which port", widget="#talks", size=(60, 20)) as (app, pilot):
        await pilot.press("enter")
        await settle(pilot, lambda: "which port?" in shown(app, "#messages"))
        await pilot.press("slash", "x", "escape", "down", "enter")
        await settle(pilot, lambda: "the parser test is red" in shown(app, "#messages"))


async def test_conversations_are_found_by_a_text() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        await pilot.press("slash", *"shop", "enter")
        await settle(pilot, lambda: "nova" not in shown(app, "#talks"))
        found = shown(app, "#talks")
        await pilot.press("escape")
        await settle(pilot, lambda: "nova" in shown(app, "#talks"))

    assert "#shop" in found


async def test_request_is_in_the_top_line_while_another_conversation_is_open() -> None:
    bus = talking()

    async with bus.opened("which port?") as (app, pilot):
        asks = entry("request/9", who="kira", what="may I push?")
        bus.link.push(Changes(after=10, seq=11, attention=(asks,)))
        await settle(pilot, lambda: "kira: may I push?" in shown(app, "TopLine"))


async def test_hostile_texts_stay_texts() -> None:
    bus = FakeBus()
    bus.say("@human@x", 5, "[red]x[/red] \x1b[2J <img src=x onerror=y> \u202eabc " + "y" * 500, sender="<b>")

    async with bus.opened("[red]x[/red]") as (app, _pilot):
        messages = shown(app, "#messages")

    assert "␛[2J" in messages
    assert "\\u202e" in messages
    assert "\x1b" not in messages


def test_new_message_goes_to_everyone_in_a_conversation() -> None:
    def row(key: str, kind: str) -> ConversationRow:
        return ConversationRow(key=key, kind=kind, title=key, seq=1, ts=1)

    assert message_to(row("#general", "all"), "human").argv("x") == ["pal", "send", "@all", "--", "x"]
    assert message_to(row("#shop", "room"), "human").argv("x") == ["pal", "send", "--room", "shop", "--", "x"]
    assert message_to(row("thread/pr 1", "thread"), "human").argv("x") == [
        "pal",
        "send",
        "--thread",
        "pr 1",
        "--",
        "x",
    ]
    assert message_to(row("@human@nova", "pair"), "human").targets == ("@nova",)
    assert message_to(row("@luna@nova", "pair"), "human").targets == ("@luna", "@nova")


def test_reply_goes_to_the_sender_or_to_the_recipients_of_ones_own() -> None:
    theirs = MessageRow(seq=4, id="i", ts=1, sender="luna", text="a\nb", room="shop", thread="t")
    own = MessageRow(seq=5, id="i", ts=1, sender="human", text="x", to=("@nova", "@kira"))
    system = MessageRow(seq=6, id="i", ts=1, sender="[pal-events]", text="x")

    assert reply_to(theirs, "human").argv("x") == [
        *("pal", "send", "@luna", "--room", "shop", "--thread", "t", "--reply-to", "4", "--", "x")
    ]
    assert reply_to(theirs, "human").quote == "a"
    assert reply_to(own, "human").targets == ("@nova", "@kira")
    assert reply_to(system, "human").targets == ()


# The chat of one room


async def test_chat_sends_lines_to_the_room_or_to_named_members() -> None:
    bus = talking()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        await settle(pilot, lambda: "2 of 2 here" in shown(app, "#room-title"))
        for line in ("hello", "!@luna stop", "//etc"):
            await pilot.press(*line, "enter")
            await settle(pilot, lambda: app.screen.query_one(ChatComposer).area.text == "")

    assert bus.commands.ran == [
        ["pal", "send", "--room", "shop", "--", "hello"],
        ["pal", "send", "@luna", "--room", "shop", "--priority", "interrupt", "--", "stop"],
        ["pal", "send", "--room", "shop", "--", "/etc"],
    ]


async def test_chat_keeps_a_refused_line_and_brings_back_earlier_ones() -> None:
    bus = talking()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        await pilot.press(*"one", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        composer = app.screen.query_one(ChatComposer)
        await settle(pilot, lambda: not composer.area.text)
        bus.commands.result = Result(1, "", "pal: no such member: nobody")
        await pilot.press(*"@nobody x", "enter")
        await settle(pilot, lambda: len(bus.commands.ran) == 2)
        await settle(pilot, lambda: not composer.is_sending)
        kept = composer.area.text
        await pilot.press("up", "up")
        earlier = composer.area.text

    assert kept == "@nobody x"
    assert earlier == "one"


async def test_up_and_down_keep_a_chat_line_that_was_not_sent() -> None:
    bus = talking()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        composer = app.screen.query_one(ChatComposer)
        await pilot.press(*"one", "enter")
        await settle(pilot, lambda: bus.commands.ran and not composer.area.text)
        await pilot.press(*"draft", "up", *" again", "down")
        begun = composer.area.text
        await pilot.press("up", "enter")
        await settle(pilot, lambda: len(bus.commands.ran) == 2 and not composer.area.text)
        await pilot.press("down")
        kept = composer.area.text

    assert (begun, kept) == ("draft", "draft")
    assert bus.commands.ran[-1][-1] == "one again"


def answer_a_few_times(bus: FakeBus) -> None:
    """Let the bus refuse messages after ten questions, so that a question without an end fails."""
    answer = bus.link.answers[AskMessages]

    def answer_or_refuse(question: AnyAsk) -> ViewValue:
        if len(bus.asked(AskMessages)) > 10:
            raise NotFound("messages")
        return answer(question)

    bus.link.answers[AskMessages] = answer_or_refuse


async def test_chat_with_lines_from_outside_asks_once_for_each_change() -> None:
    bus = talking()
    answer_a_few_times(bus)

    async with bus.opened("2 of 2 here", room="shop", widget="#room-title", size=(80, 24)) as (app, pilot):
        await pilot.press(*"/all", "enter")
        await settle(pilot, lambda: "members write elsewhere" in shown(app, "#room-title"))
        asked = len(bus.asked(AskMessages))
        event = EventRow(seq=11, ts=1, type="status", sender="luna")
        bus.link.push(Changes(after=10, seq=11, events=(event,)))
        await settle(pilot, lambda: len(bus.asked(AskMessages)) > asked)
        bus.link.push(Changes(after=11, seq=12))
        await settle(pilot, lambda: app.store.seq == 12)

    assert len(bus.asked(AskMessages)) == asked + 1


async def test_chat_without_messages_asks_once_after_a_window() -> None:
    bus = talking()
    bus.room("web", "luna")
    answer_a_few_times(bus)

    async with bus.opened("1 of 1 here", room="web", widget="#room-title", size=(80, 24)) as (app, pilot):
        await pilot.press(*"/help", "enter")
        await settle(pilot, lambda: isinstance(app.screen, Window))
        await pilot.press("escape")
        await settle(pilot, lambda: len(bus.asked(AskMessages)) > 1)
        bus.link.push(Changes(after=10, seq=11))
        await settle(pilot, lambda: app.store.seq == 11)

    assert len(bus.asked(AskMessages)) == 2


def type_at_once(composer: ChatComposer, *keys: str) -> None:
    """Let keys arrive before the screen has acted on the first of them."""
    for key in keys:
        composer.area.post_message(Key(key, key if len(key) == 1 else None))


async def test_chat_line_entered_twice_at_once_is_sent_once() -> None:
    bus = talking()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        composer = app.screen.query_one(ChatComposer)
        type_at_once(composer, *"one", "enter", "enter")
        await settle(pilot, lambda: bus.commands.ran and not composer.is_sending)
        await pilot.press(*"two", "enter")
        await settle(pilot, lambda: bus.commands.ran[-1][-1] == "two")

    assert [argv[-1] for argv in bus.commands.ran] == ["one", "two"]


async def test_chat_keeps_what_is_typed_after_enter() -> None:
    bus = talking()
    sending = bus.commands.held = asyncio.Event()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        composer = app.screen.query_one(ChatComposer)
        type_at_once(composer, *"/all", "enter", *"one")
        await settle(pilot, lambda: composer.area.text == "one" and not composer.is_sending)
        type_at_once(composer, "enter", *"two")
        await settle(pilot, lambda: bus.commands.ran)
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        rest = composer.area.text
        await pilot.press("enter")
        await settle(pilot, lambda: len(bus.commands.ran) == 2)

    assert rest == "two"
    assert [argv[-1] for argv in bus.commands.ran] == ["one", "two"]


async def test_sent_chat_line_leaves_the_person_in_the_messages() -> None:
    bus = talking()
    sending = bus.commands.held = asyncio.Event()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        await pilot.press(*"one", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        await pilot.press("escape")
        await settle(pilot, lambda: app.focused is app.screen.query_one("#messages"))
        sending.set()
        await settle(pilot, lambda: not app.screen.query_one(ChatComposer).is_sending)
        has_focus = app.screen.query_one("#messages").has_focus

    assert has_focus


async def test_chat_keeps_a_reply_that_was_started_while_a_line_is_sent() -> None:
    bus = talking()
    sending = bus.commands.held = asyncio.Event()

    async with bus.opened("2 of 2 here", room="shop", widget="#room-title", size=(80, 24)) as (app, pilot):
        composer = app.screen.query_one(ChatComposer)
        await pilot.press(*"one", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        await pilot.press("escape")
        await settle(pilot, lambda: app.focused is app.screen.query_one("#messages"))
        await pilot.press("r", *"two")
        sending.set()
        await settle(pilot, lambda: not composer.is_sending)
        text, reply_to = composer.area.text, composer.outgoing.reply_to

    assert (text, reply_to) == ("two", 3)


async def test_chat_commands_do_what_they_say() -> None:
    bus = talking()

    async with bus.opened("2 of 2 here", room="shop", widget="#room-title", size=(80, 24)) as (app, pilot):
        await pilot.press(*"/who", "enter")
        await settle(pilot, lambda: isinstance(app.screen, Window))
        who = app.screen.query_one(TextRows).text
        await pilot.press("escape")
        await settle(pilot, lambda: isinstance(app.screen, RoomTalk))
        await pilot.press(*"/all", "enter")
        await settle(pilot, lambda: bus.asked(AskMessages)[-1].has_outside)  # type: ignore[union-attr]
        await pilot.press(*"/nothing", "enter")
        await settle(pilot, lambda: "/nothing is not a command" in status(app))
        await pilot.press(*"/quit", "enter")
        await pilot.pause()

    assert who.splitlines() == ["luna  idle", "nova  idle"]
    assert bus.commands.ran == []
    assert app.return_value == 0


async def test_chat_answers_a_chosen_message_and_completes_members() -> None:
    bus = talking()

    async with bus.opened("2 of 2 here", room="shop", widget="#room-title", size=(80, 24)) as (app, pilot):
        await pilot.press(*"@no", "tab", *"hi", "enter")
        await settle(pilot, lambda: bus.commands.ran)
        await pilot.press("escape")
        await settle(pilot, lambda: app.focused is app.screen.query_one("#messages"))
        await pilot.press("r", *"ok", "enter")
        await settle(pilot, lambda: len(bus.commands.ran) == 2)

    assert bus.commands.ran[0] == ["pal", "send", "@nova", "--room", "shop", "--", "hi"]
    assert bus.commands.ran[1] == ["pal", "send", "@luna", "--room", "shop", "--reply-to", "3", "--", "ok"]


async def test_ctrl_d_leaves_only_with_an_empty_line() -> None:
    bus = talking()

    async with bus.opened("parser test", room="shop", size=(80, 24)) as (app, pilot):
        await pilot.press("x", "ctrl+d")
        assert app.is_running
        await pilot.press("backspace", "ctrl+d")
        await pilot.pause()

    assert app.return_value == 0
