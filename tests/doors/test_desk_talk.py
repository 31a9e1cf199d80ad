"""Talk in rooms: messages, what happens, cursors that acknowledge, and notes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import Stage, done, opened_stage
from tests.fakes import HUMAN, SCRIPT, OpenLog, open_memory, open_sqlite

from palaver.doors.desk import Answer
from palaver.errors import (
    AgentIdRequired,
    AmbiguousRecipient,
    BadRequest,
    InvalidBody,
    InvalidCursor,
    InvalidEventTypeFilter,
    MessageTooLarge,
    NotFound,
    RoomClosed,
    RoomNotFound,
    UnknownMember,
)


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    open_log: OpenLog = request.param
    async with opened_stage(tmp_path, open_log=open_log) as made:
        yield made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def bodies(answer: Answer) -> list[str]:
    events: Any = answer["events"]
    return [event["payload"]["body"] for event in events if event["event_type"] == "message_sent"]


def types(answer: Answer) -> list[str]:
    events: Any = answer["events"]
    return [event["event_type"] for event in events]


async def test_a_message_is_an_event_of_the_room_and_mail_for_its_recipient(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")

    sent = await stage.desk.send_message(
        luna, room_id="work", body="look", to_agent_id="nova", delivery_hint="interrupt"
    )

    event = stage.log.event(int(str(sent["event_seq"])))
    assert event is not None
    assert sent == {
        "event_seq": event.seq,
        "event_id": event.id,
        "created_at": event.ts,
        "delivered_to": ["nova"],
    }
    assert (event.payload["priority"], event.payload["room"]) == ("interrupt", stage.room().id)
    assert stage.texts("nova") == ["look"]


async def test_what_is_said_to_the_room_is_mail_for_everybody_else_in_it(stage: Stage, work: Path) -> None:
    luna, *_ = await stage.seat(work, "luna", "nova", "rosa")
    await stage.join("mona")

    sent = await stage.desk.send_message(luna, room_id="work", body="hello")
    some = await stage.desk.send_message(luna, room_id="work", body="you two", to_agent_id=["rosa", "@NOVA"])

    assert sent["delivered_to"] == ["nova", "rosa"]
    assert some["delivered_to"] == ["rosa", "nova"]
    assert stage.texts("nova") == stage.texts("rosa") == ["hello", "you two"]
    assert stage.texts("mona") == stage.texts("luna") == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"body": ""}, InvalidBody),
        ({"body": "x" * 4097}, MessageTooLarge),
        ({"body": "é" * 2049}, MessageTooLarge),
        ({"body": "x", "delivery_hint": "loud"}, BadRequest),
        ({"body": "x", "room_id": "nowhere"}, RoomNotFound),
        ({"body": "x", "to_agent_id": "ghost"}, UnknownMember),
        ({"body": "x", "to_agent_id": ["nova", "mona"]}, UnknownMember),
        ({"body": "", "room_id": "nowhere"}, InvalidBody),
        ({"body": "x" * 4097, "delivery_hint": "loud"}, MessageTooLarge),
        ({"body": "x", "delivery_hint": "loud", "room_id": "nowhere"}, BadRequest),
    ],
)
async def test_what_cannot_be_said_is_refused_and_nothing_is_written(
    stage: Stage, work: Path, fields: dict[str, Any], error: type[Exception]
) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.join("mona")
    last = stage.log.last()

    with pytest.raises(error):
        await stage.desk.send_message(luna, **{"room_id": "work", **fields})

    assert stage.log.last() == last


async def test_a_body_of_exactly_the_limit_and_one_of_blanks_are_said_as_they_are(
    stage: Stage, work: Path
) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")

    await stage.desk.send_message(luna, room_id="work", body="x" * 4096)
    await stage.desk.send_message(luna, room_id="work", body="   ")

    assert stage.texts("nova") == ["x" * 4096, "   "]


async def test_members_and_persons_speak_in_a_room_and_others_do_not(stage: Stage, work: Path) -> None:
    await stage.seat(work, "luna")
    mona = await stage.join("mona")

    with pytest.raises(UnknownMember):
        await stage.desk.send_message(mona, room_id="work", body="hi")
    with pytest.raises(UnknownMember):
        await stage.desk.send_message(SCRIPT, room_id="work", body="hi")
    await stage.desk.send_message(HUMAN, room_id="work", body="scope down")

    assert stage.texts("luna") == ["scope down"]


async def test_a_closed_room_is_silent_and_its_history_stays_readable(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.desk.send_message(luna, room_id="work", body="hello")
    room = stage.room().id
    await stage.desk.close_room(HUMAN, room_id="work")

    with pytest.raises(RoomClosed):
        await stage.desk.send_message(luna, room_id=room, body="hi")
    read = await stage.desk.get_room_events(nova, room_id=room)
    waited = await stage.desk.wait_for_events(nova, room_id=room, after_event_seq=10**6, max_wait_ms=0)

    assert types(read) == ["member_joined", "member_joined", "message_sent", "close"]
    assert waited == {"events": [], "cursor_event_seq": 10**6}


async def test_a_harness_word_means_its_one_member_and_a_shared_one_is_ambiguous(
    stage: Stage, work: Path
) -> None:
    [luna] = await stage.seat(work, "luna")
    for name in ("nova", "rosa"):
        codex = await stage.join(name, harness="codex")
        await stage.desk.join_path(codex, context_path=str(work))

    with pytest.raises(AmbiguousRecipient):
        await stage.desk.wait_for_events(luna, room_id="work", target_agent_id="codex")
    with pytest.raises(AmbiguousRecipient) as caught:
        await stage.desk.send_message(luna, room_id="work", body="hi", to_agent_id="codex")
    stage.present.discard("rosa")
    sent = await stage.desk.send_message(luna, room_id="work", body="hi", to_agent_id="codex")

    assert caught.value.candidates == ["nova", "rosa"]
    assert sent["delivered_to"] == ["nova"]
    to_codex = await stage.desk.wait_for_events(
        luna, room_id="work", after_event_seq=0, target_agent_id="codex", from_agent_id="LUNA"
    )
    assert bodies(to_codex) == ["hi"]


async def test_what_matches_is_given_at_once_and_the_cursor_is_the_last_of_it(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    first = await stage.desk.send_message(luna, room_id="work", body="one", to_agent_id="nova")
    await stage.desk.send_message(nova, room_id="work", body="mine", to_agent_id="luna")

    answer = await stage.desk.wait_for_events(nova, room_id="work", after_event_seq=0)

    assert types(answer) == ["member_joined", "message_sent"]
    assert answer["cursor_event_seq"] == first["event_seq"]


async def test_the_first_match_ends_the_wait_and_what_does_not_match_does_not(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    waiting = stage.start(
        stage.desk.wait_for_events(
            nova, room_id="work", after_event_seq=stage.log.last(), event_type="message_sent"
        )
    )
    await stage.settle()

    await stage.claim(luna)
    await stage.desk.send_message(nova, room_id="work", body="my own")
    await stage.settle()
    assert not waiting.done()
    await stage.desk.send_message(luna, room_id="work", body="yours")

    assert bodies(await done(waiting)) == ["yours"]


async def test_a_wait_in_vain_ends_at_its_limit_with_the_cursor_it_came_with(
    stage: Stage, work: Path
) -> None:
    [luna] = await stage.seat(work, "luna")
    waiting = stage.start(
        stage.desk.wait_for_events(luna, room_id="work", after_event_seq=7, max_wait_ms=500_000)
    )
    await stage.settle()

    await stage.timers.advance(109)
    assert not waiting.done()
    await stage.timers.advance(1.1)

    assert await done(waiting) == {"events": [], "cursor_event_seq": 7}
    assert len(stage.timers) == 0


async def test_a_cursor_stays_at_the_last_match_whatever_lies_behind_it(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    sent = await stage.desk.send_message(luna, room_id="work", body="one")
    await stage.claim(luna)

    answer = await stage.desk.wait_for_events(
        nova, room_id="work", after_event_seq=0, event_type=["message_sent"]
    )

    assert answer["cursor_event_seq"] == sent["event_seq"] != stage.log.last()


async def test_a_page_holds_so_many_and_the_next_one_goes_on_behind_it(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    after = stage.log.last()
    for number in range(7):
        await stage.desk.send_message(luna, room_id="work", body=str(number))

    found: list[str] = []
    while True:
        answer = await stage.desk.wait_for_events(
            nova, room_id="work", after_event_seq=after, limit=3, max_wait_ms=0
        )
        if not answer["events"]:
            break
        found += bodies(answer)
        after = int(str(answer["cursor_event_seq"]))

    assert found == [str(number) for number in range(7)]


async def test_without_a_place_it_begins_with_what_is_unread_and_else_with_what_comes(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    read = await stage.desk.send_message(luna, room_id="work", body="read")
    await stage.ack(nova, int(str(read["event_seq"])))
    await stage.desk.send_message(luna, room_id="work", body="unread")

    first = await stage.desk.wait_for_events(nova, room_id="work", max_wait_ms=0)
    await stage.desk.wait_for_events(
        nova, room_id="work", after_event_seq=int(str(first["cursor_event_seq"])), max_wait_ms=0
    )
    second = await stage.desk.wait_for_events(nova, room_id="work", max_wait_ms=0)

    assert bodies(first) == ["unread"]
    assert second == {"events": [], "cursor_event_seq": stage.log.last()}


async def test_the_cursor_brought_back_acknowledges_ones_own_messages_that_were_asked_for(
    stage: Stage, work: Path
) -> None:
    luna, nova, _ = await stage.seat(work, "luna", "nova", "rosa")
    for text, to in (("to nova", "nova"), ("to rosa", "rosa"), ("to all", None)):
        await stage.desk.send_message(luna, room_id="work", body=text, to_agent_id=to)
    await stage.send(HUMAN, "elsewhere", "@nova")

    claims = await stage.desk.wait_for_events(
        nova, room_id="work", after_event_seq=stage.log.last(), event_type="claim", max_wait_ms=0
    )
    assert claims["events"] == []
    assert stage.texts("nova") == ["to nova", "to all", "elsewhere"]
    await stage.desk.wait_for_events(nova, room_id="work", after_event_seq=stage.log.last(), max_wait_ms=0)

    assert stage.texts("nova") == ["elsewhere"]
    assert stage.texts("rosa") == ["to rosa", "to all"]


async def test_ten_thousand_waits_change_nothing(stage: Stage, work: Path) -> None:
    luna, nova, rosa = await stage.seat(work, "luna", "nova", "rosa")
    await stage.claim(luna)
    await stage.timers.advance(11)
    waiting = stage.start(stage.desk.wait_for_turn(nova, room_id="work"))
    await stage.settle()
    last, room = stage.log.last(), stage.room()

    for _ in range(10_000):
        await stage.desk.wait_for_events(rosa, room_id="work", after_event_seq=last, max_wait_ms=0)

    assert stage.log.last() == last
    assert stage.room() == room
    assert (await stage.release(luna))["reserved_for"] == "nova"
    assert (await done(waiting))["status"] == "your_turn"


async def test_what_one_writes_to_oneself_is_mail_for_oneself(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")

    sent = await stage.desk.send_message(luna, room_id="work", body="remember", to_agent_id="luna")
    answer = await stage.desk.wait_for_events(luna, room_id="work", max_wait_ms=0)

    assert sent["delivered_to"] == ["luna"]
    assert bodies(answer) == stage.texts("luna") == ["remember"]


async def test_everybody_reads_everything_with_any_and_an_agent_is_a_target_too(
    stage: Stage, work: Path
) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    mona = await stage.join("mona")
    await stage.desk.send_message(luna, room_id="work", body="to nova", to_agent_id="nova")

    seen = await stage.desk.wait_for_events(mona, room_id="work", after_event_seq=0, target_agent_id="any")
    to_nova = await stage.desk.wait_for_events(
        SCRIPT, room_id="work", after_event_seq=0, target_agent_id="nova", from_agent_id="@luna"
    )

    assert types(seen) == ["member_joined", "member_joined", "message_sent"]
    assert bodies(to_nova) == ["to nova"]
    assert stage.texts("nova") == ["to nova"]
    with pytest.raises(AgentIdRequired):
        await stage.desk.wait_for_events(SCRIPT, room_id="work")
    with pytest.raises(InvalidEventTypeFilter):
        await stage.desk.wait_for_events(nova, room_id="work", event_type=[])
    with pytest.raises(RoomNotFound):
        await stage.desk.wait_for_events(nova, room_id="missing")


async def test_a_wait_for_events_that_is_cut_leaves_nothing_behind(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    waiting = stage.start(stage.desk.wait_for_events(luna, room_id="work"))
    await stage.settle()

    waiting.cancel()
    await stage.settle()

    assert len(stage.timers) == 0


async def test_twenty_followers_of_a_busy_room_lose_and_repeat_nothing(stage: Stage, work: Path) -> None:
    writers = await stage.seat(work, "luna", "nova")
    followers = await stage.seat(work, *(f"reader{number}" for number in range(20)))
    start, count = stage.log.last(), 300

    async def follow(number: int) -> list[str]:
        found: list[str] = []
        after = start
        while len(found) < count:
            answer = await stage.desk.wait_for_events(
                followers[number],
                room_id="work",
                after_event_seq=after,
                event_type="message_sent",
                limit=3 + number * 20,
            )
            found += bodies(answer)
            after = int(str(answer["cursor_event_seq"]))
        return found

    reading = [asyncio.get_running_loop().create_task(follow(number)) for number in range(20)]
    async with asyncio.TaskGroup() as sending:
        for number in range(count):
            text = f"{number}"
            sending.create_task(stage.desk.send_message(writers[number % 2], room_id="work", body=text))
    async with asyncio.timeout(60):
        read = await asyncio.gather(*reading)

    assert sorted(map(int, read[0])) == list(range(count))
    assert all(one == read[0] for one in read)


async def test_history_is_read_in_pages(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.send(luna, "elsewhere", "@nova")

    first = await stage.desk.get_room_events(luna, room_id="work", limit=2)
    rest = await stage.desk.get_room_events(
        luna, room_id="work", after_event_seq=int(str(first["cursor_event_seq"])), limit=0
    )
    end = await stage.desk.get_room_events(luna, room_id="work", after_event_seq=stage.log.last())

    assert types(first) == ["member_joined", "member_joined"]
    assert types(rest) == ["claim"]
    assert end == {"events": [], "cursor_event_seq": stage.log.last()}


async def test_notes_last_until_somebody_settles_them(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")

    first = await stage.desk.add_note(luna, room_id="work", body="  watch the parser  ")
    second = await stage.desk.add_note(nova, room_id="work", body="and the tests", turn_id=0)
    settled = await stage.desk.resolve_note(nova, room_id="work", note_id=str(first["note_id"]))

    assert (first["body"], first["author_agent_id"], first["turn_id"]) == ("watch the parser", "luna", None)
    assert (settled["resolved_by_agent_id"], settled["note_id"]) == ("nova", first["note_id"])
    assert await stage.desk.list_notes(luna, room_id="work") == {
        "room_id": stage.room().id,
        "notes": [second],
    }
    everything = await stage.desk.list_notes(luna, room_id="work", include_resolved=True, limit=0)
    assert everything["notes"] == [settled]
    behind = await stage.desk.list_notes(
        luna, room_id="work", include_resolved=True, after_note_id=str(first["note_id"])
    )
    assert behind["notes"] == [second]
    with pytest.raises(InvalidCursor):
        await stage.desk.list_notes(luna, room_id="work", after_note_id="unknown")
    with pytest.raises(NotFound):
        await stage.desk.resolve_note(nova, room_id="work", note_id="unknown")
