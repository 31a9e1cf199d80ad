"""Presence of members: which agents wait, send heartbeats and were seen, and what the log knows of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import HUMAN, START_MS, Bus, open_memory, opened_bus

from palaver.domain.stick import MemberPresence, take_facts
from palaver.errors import BadRequest
from palaver.identity.presence import LIMIT_NAMES, MemberPresenceBook
from palaver.protocol.envelope import Draft
from palaver.protocol.requests import JoinRoom, Leave, SetStatus

ROOM = "work-ab12"


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


@pytest.fixture
def book(bus: Bus) -> MemberPresenceBook:
    return MemberPresenceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)


async def _write(bus: Bus, type: str, sender: str, *to: str, **payload: object) -> None:
    """Write an event as the broker would, with any content."""
    id = f"{type}{bus.log.last()}"
    draft = Draft(type=type, sender=sender, to=to, payload=payload, id=id, ts=bus.clock.now_ms())
    await bus.log.commit(None, lambda rows: draft)


def test_presence_book_provides_the_facts_for_room_decisions(book: MemberPresenceBook) -> None:
    kept: MemberPresence = book

    facts = take_facts(kept, START_MS, ROOM, ["luna"])

    assert facts.started_ms == START_MS
    assert facts.of("luna").last_wait_ms is None
    assert not facts.of("luna").is_present


async def test_agent_waits_for_as_long_as_one_of_its_calls_waits(bus: Bus, book: MemberPresenceBook) -> None:
    with book.waiting(ROOM, "luna"):
        with book.waiting(ROOM, "luna", is_parked=True):
            assert book.is_parked(ROOM, "luna")
        bus.clock.advance(60)
        assert book.is_waiting(ROOM, "luna")
        assert book.waiters(ROOM) == ["luna"]
        assert book.count_waiting() == 1
        assert book.last_wait_ms(ROOM, "luna") == START_MS + 60_000
    bus.clock.advance(3)

    assert not book.is_waiting(ROOM, "luna")
    assert book.waiters(ROOM) == []
    assert book.count_waiting() == 0
    assert book.last_wait_ms(ROOM, "luna") == START_MS + 60_000
    assert not book.is_waiting("other-cd34", "luna")
    assert not book.is_parked("other-cd34", "luna")


async def test_agent_may_know_shown_and_offered_messages(
    book: MemberPresenceBook,
) -> None:
    book.shown.add("luna", ROOM, [3])
    assert [book.may_know("luna", seq) for seq in (3, 4)] == [True, False]

    book.is_in_hand = lambda name, seq: (name, seq) == ("luna", 4)

    assert [book.may_know("luna", seq) for seq in (3, 4)] == [True, True]
    assert not book.may_know("nova", 3)


async def test_room_is_notified_when_an_agent_stops_waiting(book: MemberPresenceBook) -> None:
    calls: list[str] = []
    book.changed = calls.append

    with book.waiting(ROOM, "luna"):
        assert calls == []

    assert calls == [ROOM]


async def test_joining_counts_as_having_waited_and_leaving_clears_it(
    bus: Bus, book: MemberPresenceBook
) -> None:
    await _write(bus, "member_joined", "luna", room=ROOM)
    await _write(bus, "member_joined", "nova", room=ROOM)
    await _write(bus, "member_joined", "rosa", room=ROOM)
    book.beat(ROOM, "luna")
    assert book.last_wait_ms(ROOM, "luna") == book.beat_ms(ROOM, "luna") == START_MS

    await _write(bus, "member_left", "luna", room=ROOM, reason="left")
    await _write(bus, "member_left", "[pal-events]", room=ROOM, reason="inactive", **{"from": "rosa"})
    await _write(bus, "kick", "human", "nova", room=ROOM)

    assert [book.last_wait_ms(ROOM, name) for name in ("luna", "nova", "rosa")] == [None, None, None]
    assert book.beat_ms(ROOM, "luna") is None


async def test_member_removed_while_it_waits_is_not_waiting_any_more(
    bus: Bus, book: MemberPresenceBook
) -> None:
    with book.waiting(ROOM, "nova"):
        await _write(bus, "kick", "human", "nova", room=ROOM)

        assert not book.is_waiting(ROOM, "nova")

    assert book.last_wait_ms(ROOM, "nova") is None


async def test_events_of_an_agent_are_a_sign_of_it_except_an_idle_status(
    bus: Bus, book: MemberPresenceBook
) -> None:
    luna = await bus.join("luna")
    bus.clock.advance(1)
    await bus.submit(luna, SetStatus(state="blocked"))
    blocked_ms = bus.clock.now_ms()
    bus.clock.advance(1)
    await bus.submit(luna, SetStatus(state="idle"))

    assert book.seen_ms("luna") == blocked_ms

    await bus.send(luna, "hello", "@human")
    assert book.seen_ms("luna") == bus.clock.now_ms()


async def test_events_about_an_agent_are_not_a_sign_of_it(bus: Bus, book: MemberPresenceBook) -> None:
    luna = await bus.join("luna")
    event = await bus.send(HUMAN, "hello", "@luna")
    bus.clock.advance(1)

    await bus.report("luna", "submitted", event.seq, lane="hook")
    await bus.submit(luna, Leave())

    assert book.seen_ms("luna") == START_MS


async def test_request_is_a_sign_of_an_agent(bus: Bus, book: MemberPresenceBook) -> None:
    assert book.seen_ms("luna") is None

    book.saw("luna")

    assert book.seen_ms("luna") == START_MS


async def test_agent_is_absent_since_its_bye_unless_it_is_present(bus: Bus, book: MemberPresenceBook) -> None:
    luna = await bus.join("luna")
    await bus.join("nova")
    bus.clock.advance(5)
    await bus.submit(luna, Leave())

    assert book.gone_since_ms("luna") is None
    bus.present.discard("luna")

    assert book.gone_since_ms("luna") == START_MS + 5000
    assert book.gone_since_ms("nova") is None
    assert book.gone_since_ms("human") is None
    assert book.is_present("nova")


async def test_only_an_agent_that_reported_idle_is_idle(bus: Bus, book: MemberPresenceBook) -> None:
    luna = await bus.join("luna")
    assert book.idle_since_ms("luna") is None

    bus.clock.advance(5)
    await bus.submit(luna, SetStatus(state="idle"))
    assert book.idle_since_ms("luna") == START_MS + 5000

    await bus.submit(luna, SetStatus(state="active"))
    assert book.idle_since_ms("luna") is None
    assert book.idle_since_ms("nobody") is None


async def test_present_agent_is_active_as_long_as_it_reported_so(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, SetStatus(state="active"))
    book = MemberPresenceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)
    assert (book.is_active("luna"), book.is_active("nova")) == (True, False)
    bus.present.discard("luna")
    assert not book.is_active("luna")
    bus.present.add("luna")
    bus.clock.advance(5)

    await bus.submit(luna, SetStatus(state="idle"))

    assert not book.is_active("luna")
    assert book.seen_ms("luna") == bus.clock.now_ms()
    await bus.submit(luna, SetStatus(state="active"))
    assert book.is_active("luna")


async def test_agent_with_a_token_is_present_during_a_call_and_shortly_after(
    bus: Bus, book: MemberPresenceBook
) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, Leave())
    bus.present.discard("luna")
    silent: list[str] = []
    book.fell_silent = silent.append
    assert not book.is_present("luna")

    with book.speaking("luna"), book.speaking("luna"):
        bus.clock.advance(60)
        assert book.is_present("luna")
        assert book.gone_since_ms("luna") is None
        assert silent == []
    bus.clock.advance(10)
    assert book.is_present("luna")
    bus.clock.advance(0.001)

    assert not book.is_present("luna")
    assert book.gone_since_ms("luna") == START_MS
    assert book.token_ms("luna") == START_MS + 60_000
    assert silent == ["luna", "luna"]


async def test_waiting_agent_is_present(bus: Bus, book: MemberPresenceBook) -> None:
    with book.waiting(ROOM, "luna"):
        assert book.is_present("luna")

    assert not book.is_present("luna")


def test_agent_with_a_token_may_have_been_active_until_the_start(bus: Bus) -> None:
    book = MemberPresenceBook(
        bus.log, clock=bus.clock, is_present=bus.present.__contains__, has_token={"luna"}.__contains__
    )
    bus.clock.advance(7)

    assert (book.token_ms("luna"), book.token_ms("nova")) == (START_MS, None)
    book.spoke("luna")
    assert book.token_ms("luna") == START_MS + 7000


def test_agent_with_a_live_process_counts_its_token_only_when_used(bus: Bus) -> None:
    bus.present.add("luna")
    book = MemberPresenceBook(
        bus.log, clock=bus.clock, is_present=bus.present.__contains__, has_token={"luna"}.__contains__
    )

    assert book.token_ms("luna") is None
    bus.present.discard("luna")
    assert book.token_ms("luna") == START_MS


def test_refused_wait_does_not_park(book: MemberPresenceBook) -> None:
    with pytest.raises(BadRequest), book.waiting(ROOM, "luna", is_parked=True):
        raise BadRequest("no")
    assert not book.is_parked(ROOM, "luna")

    with book.waiting(ROOM, "luna", is_parked=True):
        pass

    assert book.is_parked(ROOM, "luna")


def test_name_that_was_silent_longest_is_dropped_at_the_limit(book: MemberPresenceBook) -> None:
    book.saw("luna")
    book.saw("nova")
    book.saw("luna")

    for number in range(LIMIT_NAMES - 1):
        book.saw(f"agent{number}")

    assert book.seen_ms("nova") is None
    assert book.seen_ms("luna") == START_MS


async def test_late_kick_event_does_not_clear_an_agent_that_has_returned(
    bus: Bus, book: MemberPresenceBook
) -> None:
    await _write(bus, "kick", "human", "nova", room=ROOM)
    await _write(bus, "member_joined", "nova", room=ROOM)

    await _write(bus, "member_left", "[pal-events]", room=ROOM, reason="kicked", kick="K", **{"from": "nova"})

    assert book.last_wait_ms(ROOM, "nova") == START_MS


async def test_event_with_an_unreadable_room_is_ignored(bus: Bus, book: MemberPresenceBook) -> None:
    await _write(bus, "member_joined", "luna", room=7)
    await _write(bus, "claim", "luna", "luna", room=ROOM)

    assert book.last_wait_ms(ROOM, "luna") is None


async def test_closed_room_is_cleared_and_others_are_not(bus: Bus, book: MemberPresenceBook) -> None:
    for room in (ROOM, "other-cd34"):
        await _write(bus, "member_joined", "luna", room=room)
        book.beat(room, "luna")
        assert book.is_news(room, "luna", 7)
        assert not book.is_news(room, "luna", 7)

    await _write(bus, "close", "human", room=ROOM)

    assert (book.last_wait_ms(ROOM, "luna"), book.beat_ms(ROOM, "luna")) == (None, None)
    assert book.is_news(ROOM, "luna", 7)
    assert book.last_wait_ms("other-cd34", "luna") == book.beat_ms("other-cd34", "luna") == START_MS
    assert not book.is_news("other-cd34", "luna", 7)


async def test_closed_book_ignores_events(bus: Bus, book: MemberPresenceBook) -> None:
    book.close()

    await _write(bus, "member_joined", "luna", room=ROOM)

    assert book.last_wait_ms(ROOM, "luna") is None


async def test_last_event_of_an_absent_agent_is_remembered_after_a_restart(bus: Bus) -> None:
    for name in ("luna", "nova", "rosa"):
        await bus.broker.submit(await bus.join(name), JoinRoom(workspaces=("/work",)))
        bus.present.discard(name)
        await _write(bus, "agent.bye", name, reason="its process ended")
    bus.clock.advance(60)
    await _write(bus, "message", "luna", text="one word more")
    bus.clock.advance(60)
    await _write(bus, "life", "luna", action="ready")
    await _write(bus, "status", "nova", state="active")
    await _write(bus, "status", "rosa", state="idle")
    bus.clock.advance(60)

    book = MemberPresenceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)
    await book.recall()

    assert book.seen_ms("luna") == START_MS + 60_000
    assert book.seen_ms("nova") == START_MS + 120_000
    assert book.seen_ms("rosa") is None


async def test_present_agent_has_not_been_seen_yet_after_a_restart(bus: Bus) -> None:
    await bus.broker.submit(await bus.join("luna"), JoinRoom(workspaces=("/work",)))

    book = MemberPresenceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)
    await book.recall()

    assert book.seen_ms("luna") is None
