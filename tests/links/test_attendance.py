"""Attendance: who waits, beats and was heard of, and what of it the log knows."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import HUMAN, START_MS, Bus, open_memory, opened_bus

from palaver.errors import BadRequest
from palaver.links.attendance import LIMIT_NAMES, AttendanceBook
from palaver.model.envelope import Draft
from palaver.model.request import Leave, SetStatus
from palaver.model.room import JoinRoom
from palaver.rooms.attendance import Attendance, take_facts

ROOM = "work-ab12"


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


@pytest.fixture
def book(bus: Bus) -> AttendanceBook:
    return AttendanceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)


async def _write(bus: Bus, type: str, sender: str, *to: str, **payload: object) -> None:
    """Write an event as the broker would, whatever it says."""
    id = f"{type}{bus.log.last()}"
    draft = Draft(type=type, sender=sender, to=to, payload=payload, id=id, ts=bus.clock.now_ms())
    await bus.log.commit(None, lambda rows: draft)


def test_it_is_what_decisions_about_rooms_look_at(book: AttendanceBook) -> None:
    kept: Attendance = book

    facts = take_facts(kept, START_MS, ROOM, ["luna"])

    assert facts.started_ms == START_MS
    assert facts.of("luna").last_wait_ms is None
    assert not facts.of("luna").is_present


async def test_somebody_waits_for_as_long_as_one_of_its_calls_does(bus: Bus, book: AttendanceBook) -> None:
    with book.waiting(ROOM, "luna"):
        with book.waiting(ROOM, "luna", is_parked=True):
            assert book.is_parked(ROOM, "luna")
        bus.clock.advance(60)
        assert book.is_waiting(ROOM, "luna")
        assert book.waiters(ROOM) == ["luna"]
        assert book.last_wait_ms(ROOM, "luna") == START_MS + 60_000
    bus.clock.advance(3)

    assert not book.is_waiting(ROOM, "luna")
    assert book.waiters(ROOM) == []
    assert book.last_wait_ms(ROOM, "luna") == START_MS + 60_000
    assert not book.is_waiting("other-cd34", "luna")
    assert not book.is_parked("other-cd34", "luna")


async def test_when_somebody_stops_waiting_its_room_is_told(book: AttendanceBook) -> None:
    told: list[str] = []
    book.changed = told.append

    with book.waiting(ROOM, "luna"):
        assert told == []

    assert told == [ROOM]


async def test_joining_counts_as_having_waited_and_leaving_forgets_it(bus: Bus, book: AttendanceBook) -> None:
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


async def test_one_who_is_removed_while_it_waits_waits_no_longer(bus: Bus, book: AttendanceBook) -> None:
    with book.waiting(ROOM, "nova"):
        await _write(bus, "kick", "human", "nova", room=ROOM)

        assert not book.is_waiting(ROOM, "nova")

    assert book.last_wait_ms(ROOM, "nova") is None


async def test_what_an_agent_writes_is_a_sign_of_it_but_not_that_it_rests(
    bus: Bus, book: AttendanceBook
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


async def test_what_is_written_about_an_agent_is_no_sign_of_it(bus: Bus, book: AttendanceBook) -> None:
    luna = await bus.join("luna")
    event = await bus.send(HUMAN, "hello", "@luna")
    bus.clock.advance(1)

    await bus.report("luna", "submitted", event.seq, lane="hook")
    await bus.submit(luna, Leave())

    assert book.seen_ms("luna") == START_MS


async def test_asking_is_a_sign_and_so_is_nothing_else(bus: Bus, book: AttendanceBook) -> None:
    assert book.seen_ms("luna") is None

    book.saw("luna")

    assert book.seen_ms("luna") == START_MS


async def test_one_is_gone_since_its_goodbye_unless_it_is_there(bus: Bus, book: AttendanceBook) -> None:
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


async def test_only_one_who_has_said_so_is_idle(bus: Bus, book: AttendanceBook) -> None:
    luna = await bus.join("luna")
    assert book.idle_since_ms("luna") is None

    bus.clock.advance(5)
    await bus.submit(luna, SetStatus(state="idle"))
    assert book.idle_since_ms("luna") == START_MS + 5000

    await bus.submit(luna, SetStatus(state="active"))
    assert book.idle_since_ms("luna") is None
    assert book.idle_since_ms("nobody") is None


async def test_one_whose_process_is_there_is_at_work_as_long_as_it_said_so(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, SetStatus(state="active"))
    book = AttendanceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)
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


async def test_one_that_speaks_by_a_token_is_there_while_a_call_is_open_and_a_moment_longer(
    bus: Bus, book: AttendanceBook
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


async def test_whoever_waits_is_there(bus: Bus, book: AttendanceBook) -> None:
    with book.waiting(ROOM, "luna"):
        assert book.is_present("luna")

    assert not book.is_present("luna")


def test_one_that_has_a_token_may_have_spoken_until_the_start(bus: Bus) -> None:
    book = AttendanceBook(
        bus.log, clock=bus.clock, is_present=bus.present.__contains__, has_token={"luna"}.__contains__
    )
    bus.clock.advance(7)

    assert (book.token_ms("luna"), book.token_ms("nova")) == (START_MS, None)
    book.spoke("luna")
    assert book.token_ms("luna") == START_MS + 7000


def test_a_wait_that_is_refused_parks_nobody(book: AttendanceBook) -> None:
    with pytest.raises(BadRequest), book.waiting(ROOM, "luna", is_parked=True):
        raise BadRequest("no")
    assert not book.is_parked(ROOM, "luna")

    with book.waiting(ROOM, "luna", is_parked=True):
        pass

    assert book.is_parked(ROOM, "luna")


def test_of_too_many_names_the_one_that_was_silent_for_longest_is_forgotten(book: AttendanceBook) -> None:
    book.saw("luna")
    book.saw("nova")
    book.saw("luna")

    for number in range(LIMIT_NAMES - 1):
        book.saw(f"agent{number}")

    assert book.seen_ms("nova") is None
    assert book.seen_ms("luna") == START_MS


async def test_one_that_was_removed_and_is_back_is_not_forgotten_when_the_kick_is_told(
    bus: Bus, book: AttendanceBook
) -> None:
    await _write(bus, "kick", "human", "nova", room=ROOM)
    await _write(bus, "member_joined", "nova", room=ROOM)

    await _write(bus, "member_left", "[pal-events]", room=ROOM, reason="kicked", kick="K", **{"from": "nova"})

    assert book.last_wait_ms(ROOM, "nova") == START_MS


async def test_what_cannot_be_read_as_a_room_is_passed_over(bus: Bus, book: AttendanceBook) -> None:
    await _write(bus, "member_joined", "luna", room=7)
    await _write(bus, "claim", "luna", "luna", room=ROOM)

    assert book.last_wait_ms(ROOM, "luna") is None


async def test_a_room_that_closes_is_forgotten_and_others_are_not(bus: Bus, book: AttendanceBook) -> None:
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


async def test_a_closed_book_hears_nothing_more(bus: Bus, book: AttendanceBook) -> None:
    book.close()

    await _write(bus, "member_joined", "luna", room=ROOM)

    assert book.last_wait_ms(ROOM, "luna") is None


async def test_after_a_restart_what_one_who_is_gone_wrote_last_is_remembered(bus: Bus) -> None:
    for name in ("luna", "nova", "rosa"):
        await bus.broker.submit(await bus.join(name), JoinRoom(places=("/work",)))
        bus.present.discard(name)
        await _write(bus, "agent.bye", name, reason="its process ended")
    bus.clock.advance(60)
    await _write(bus, "message", "luna", text="one word more")
    bus.clock.advance(60)
    await _write(bus, "life", "luna", action="ready")
    await _write(bus, "status", "nova", state="active")
    await _write(bus, "status", "rosa", state="idle")
    bus.clock.advance(60)

    book = AttendanceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)
    await book.recall()

    assert book.seen_ms("luna") == START_MS + 60_000
    assert book.seen_ms("nova") == START_MS + 120_000
    assert book.seen_ms("rosa") is None


async def test_after_a_restart_who_is_there_has_been_seen_by_nobody_yet(bus: Bus) -> None:
    await bus.broker.submit(await bus.join("luna"), JoinRoom(places=("/work",)))

    book = AttendanceBook(bus.log, clock=bus.clock, is_present=bus.present.__contains__)
    await book.recall()

    assert book.seen_ms("luna") is None
