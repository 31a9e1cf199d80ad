"""Messages in rooms: events, cursors that acknowledge, history and notes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import HANDOFF, RoomResult, Stage, done, opened_stage
from tests.fakes import HUMAN, SCRIPT, OpenLog

from palaver.errors import (
    AgentIdRequired,
    AmbiguousRecipient,
    BadRequest,
    InvalidBody,
    InvalidCursor,
    InvalidEventTypeFilter,
    MessageTooLarge,
    NotFound,
    RequestError,
    RoomClosed,
    RoomNotFound,
    UnknownMember,
)
from palaver.identity.presence import ShownMessages
from palaver.log.api import Commit, Decide
from palaver.protocol.requests import Redact
from palaver.state.rooms import read_all_rooms


@pytest.fixture
async def stage(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Stage]:
    async with opened_stage(tmp_path, open_log=open_log) as made:
        yield made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def bodies(answer: RoomResult) -> list[str]:
    events: Any = answer["events"]
    return [event["payload"]["body"] for event in events if event["event_type"] == "message_sent"]


def types(answer: RoomResult) -> list[str]:
    events: Any = answer["events"]
    return [event["event_type"] for event in events]


async def test_message_is_a_room_event_and_mail_for_its_recipient(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")

    sent = await stage.rendered.send_message(
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


async def test_message_to_the_room_goes_to_all_other_members(stage: Stage, work: Path) -> None:
    luna, *_ = await stage.seat(work, "luna", "nova", "rosa")
    await stage.join("mona")

    sent = await stage.rendered.send_message(luna, room_id="work", body="hello")
    some = await stage.rendered.send_message(
        luna, room_id="work", body="you two", to_agent_id=["rosa", "@NOVA"]
    )

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
        ({"body": "x", "room_id": ""}, BadRequest),
        ({"body": "x", "room_id": "#"}, RoomNotFound),
        ({"body": "x", "to_agent_id": []}, BadRequest),
        ({"body": "x", "to_agent_id": ""}, BadRequest),
    ],
)
async def test_invalid_message_is_refused_and_not_stored(
    stage: Stage, work: Path, fields: dict[str, Any], error: type[Exception]
) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.join("mona")
    last = stage.log.last()

    with pytest.raises(error):
        await stage.rendered.send_message(luna, **{"room_id": "work", **fields})

    assert stage.log.last() == last


async def test_first_of_several_mistakes_is_reported(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    mona = await stage.join("mona")
    await stage.seat(work.with_name("shut"), "rosa")
    await stage.rendered.close_room(HUMAN, room_id="shut")
    shut = stage.log.last()
    fields: dict[str, Any] = {"room_id": "", "body": "", "delivery_hint": "loud", "to_agent_id": "ghost"}
    reported: list[str] = []

    for asking, mended in (
        (mona, {}),
        (mona, {"room_id": "nowhere"}),
        (mona, {"body": "x" * 4097}),
        (mona, {"body": "x"}),
        (mona, {"delivery_hint": "normal"}),
        (mona, {"room_id": next(one.id for one in read_all_rooms(stage.log.rows) if not one.is_open)}),
        (mona, {"room_id": "work"}),
        (luna, {}),
    ):
        fields |= mended
        with pytest.raises(RequestError) as caught:
            await stage.rendered.send_message(asking, **fields)
        reported.append(f"{caught.value.code}: {caught.value}")

    assert [one.partition(":")[0] for one in reported] == [
        "bad_request",
        "invalid_body",
        "message_too_large",
        "bad_request",
        "room_not_found",
        "room_closed",
        "unknown_member",
        "unknown_member",
    ]
    assert reported[0].startswith("bad_request: room_id")
    assert "hint" in reported[3]
    assert "mona" in reported[6]
    assert "ghost" in reported[7]
    assert stage.log.last() == shut


async def test_every_tool_refuses_an_empty_room_id(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    await stage.claim(luna)
    rendered, last = stage.rendered, stage.log.last()
    lease: dict[str, Any] = {"lease_id": stage.room().lease, "expected_turn_id": 1}

    for asked in (
        rendered.leave_room(luna, room_id=""),
        rendered.kick_member(luna, room_id="", target_agent_id="luna"),
        rendered.close_room(HUMAN, room_id=""),
        rendered.get_room_state(luna, room_id=""),
        rendered.wait_for_turn(luna, room_id=""),
        rendered.heartbeat(luna, room_id="", **lease),
        rendered.release_stick(luna, room_id="", handoff=HANDOFF, **lease),
        rendered.pass_stick(luna, room_id="", to_agent_id="nova", handoff=HANDOFF, **lease),
        rendered.takeover_stick(luna, room_id="", expected_turn_id=1, reason="x"),
        rendered.wait_for_events(luna, room_id=""),
        rendered.get_room_events(luna, room_id=""),
        rendered.add_note(luna, room_id="", body="x"),
        rendered.list_notes(luna, room_id=""),
        rendered.resolve_note(luna, room_id="", note_id="x"),
    ):
        with pytest.raises(RoomNotFound):
            await asked

    assert stage.log.last() == last


async def test_message_sent_while_its_room_closes_is_refused(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    room = stage.room().id
    commit = stage.log.commit

    async def closing(key: str | None, decide: Decide, **options: Any) -> Commit:
        """Close the room after the check of the message and before its commit."""
        if key == f"stick/{room}":
            stage.log.commit = commit  # type: ignore[method-assign]  # simulates a race
            await stage.rendered.close_room(HUMAN, room_id=room)
        return await commit(key, decide, **options)

    stage.log.commit = closing  # type: ignore[method-assign]  # see above
    with pytest.raises(RoomClosed):
        await stage.rendered.send_message(luna, room_id=room, body="too late")

    assert stage.texts("nova") == []


async def test_body_at_the_limit_is_sent_unchanged_and_a_blank_one_is_refused(
    stage: Stage, work: Path
) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")

    await stage.rendered.send_message(luna, room_id="work", body="x" * 4096)
    with pytest.raises(InvalidBody):
        await stage.rendered.send_message(luna, room_id="work", body=" \n ")

    assert stage.texts("nova") == ["x" * 4096]


async def test_only_members_and_people_send_messages_in_a_room(stage: Stage, work: Path) -> None:
    await stage.seat(work, "luna")
    mona = await stage.join("mona")

    with pytest.raises(UnknownMember):
        await stage.rendered.send_message(mona, room_id="work", body="hi")
    with pytest.raises(UnknownMember):
        await stage.rendered.send_message(SCRIPT, room_id="work", body="hi")
    await stage.rendered.send_message(HUMAN, room_id="work", body="scope down")

    assert stage.texts("luna") == ["scope down"]


async def test_closed_room_takes_no_messages_but_history_is_readable(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.rendered.send_message(luna, room_id="work", body="hello")
    room = stage.room().id
    await stage.rendered.close_room(HUMAN, room_id="work")

    with pytest.raises(RoomClosed):
        await stage.rendered.send_message(luna, room_id=room, body="hi")
    read = await stage.rendered.get_room_events(nova, room_id=room)
    waited = await stage.rendered.wait_for_events(nova, room_id=room, after_event_seq=10**6, max_wait_ms=0)

    assert types(read) == ["member_joined", "member_joined", "message_sent", "close"]
    assert waited == {"events": [], "cursor_event_seq": 10**6}


async def test_harness_name_selects_one_member_or_is_ambiguous(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    for name in ("nova", "rosa"):
        codex = await stage.join(name, harness="codex")
        await stage.rendered.join_path(codex, context_path=str(work))

    with pytest.raises(AmbiguousRecipient):
        await stage.rendered.wait_for_events(luna, room_id="work", target_agent_id="codex")
    with pytest.raises(AmbiguousRecipient) as caught:
        await stage.rendered.send_message(luna, room_id="work", body="hi", to_agent_id="codex")
    stage.present.discard("rosa")
    sent = await stage.rendered.send_message(luna, room_id="work", body="hi", to_agent_id="codex")

    assert caught.value.candidates == ["nova", "rosa"]
    assert sent["delivered_to"] == ["nova"]
    to_codex = await stage.rendered.wait_for_events(
        luna, room_id="work", after_event_seq=0, target_agent_id="codex", from_agent_id="LUNA"
    )
    assert bodies(to_codex) == ["hi"]


async def test_matching_events_return_at_once_with_the_last_as_cursor(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    first = await stage.rendered.send_message(luna, room_id="work", body="one", to_agent_id="nova")
    await stage.rendered.send_message(nova, room_id="work", body="mine", to_agent_id="luna")

    answer = await stage.rendered.wait_for_events(nova, room_id="work", after_event_seq=0)

    assert types(answer) == ["member_joined", "message_sent"]
    assert answer["cursor_event_seq"] == first["event_seq"]


async def test_only_a_matching_event_ends_the_wait(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    waiting = stage.start(
        stage.rendered.wait_for_events(
            nova, room_id="work", after_event_seq=stage.log.last(), event_type="message_sent"
        )
    )
    await stage.settle()

    await stage.claim(luna)
    await stage.rendered.send_message(nova, room_id="work", body="my own")
    await stage.settle()
    assert not waiting.done()
    await stage.rendered.send_message(luna, room_id="work", body="yours")

    assert bodies(await done(waiting)) == ["yours"]


async def test_wait_without_a_match_ends_at_its_limit_with_the_same_cursor(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    waiting = stage.start(
        stage.rendered.wait_for_events(luna, room_id="work", after_event_seq=7, max_wait_ms=500_000)
    )
    await stage.settle()

    await stage.timers.advance(109)
    assert not waiting.done()
    await stage.timers.advance(1.1)

    assert await done(waiting) == {"events": [], "cursor_event_seq": 7}
    assert len(stage.timers) == 0


async def test_cursor_stays_at_the_last_match_despite_later_events(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    sent = await stage.rendered.send_message(luna, room_id="work", body="one")
    await stage.claim(luna)

    answer = await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=0, event_type=["message_sent"]
    )

    assert answer["cursor_event_seq"] == sent["event_seq"] != stage.log.last()


async def test_pages_are_limited_and_the_next_page_continues(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    after = stage.log.last()
    for number in range(7):
        await stage.rendered.send_message(luna, room_id="work", body=str(number))

    found: list[str] = []
    while True:
        answer = await stage.rendered.wait_for_events(
            nova, room_id="work", after_event_seq=after, limit=3, max_wait_ms=0
        )
        if not answer["events"]:
            break
        found += bodies(answer)
        after = int(str(answer["cursor_event_seq"]))

    assert found == [str(number) for number in range(7)]


async def test_default_cursor_starts_at_the_oldest_unread_message(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    read = await stage.rendered.send_message(luna, room_id="work", body="read")
    await stage.ack(nova, int(str(read["event_seq"])))
    await stage.rendered.send_message(luna, room_id="work", body="unread")

    first = await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)
    await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=int(str(first["cursor_event_seq"])), max_wait_ms=0
    )
    second = await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)

    assert bodies(first) == ["unread"]
    assert second == {"events": [], "cursor_event_seq": stage.log.last()}


async def test_cursor_in_room_state_is_before_unread_messages(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.rendered.send_message(luna, room_id="work", body="look", to_agent_id="nova")
    await stage.claim(luna)

    state = await stage.rendered.get_room_state(nova, room_id="work")
    joined = await stage.rendered.join_path(nova, context_path=str(work))
    answer = await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=int(str(state["cursor_event_seq"])), max_wait_ms=0
    )

    assert state["cursor_event_seq"] == joined["cursor_event_seq"]
    assert bodies(answer) == stage.texts("nova") == ["look"]


async def test_cursor_acknowledges_only_shown_messages(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.rendered.send_message(luna, room_id="work", body="look", to_agent_id="nova")
    await stage.claim(luna)
    claims = await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=0, event_type="claim", target_agent_id="any", max_wait_ms=0
    )
    assert types(claims) == ["claim"]

    for after in (int(str(claims["cursor_event_seq"])), stage.log.last()):
        await stage.rendered.wait_for_events(nova, room_id="work", after_event_seq=after, max_wait_ms=0)

    assert stage.texts("nova") == ["look"]


@pytest.mark.parametrize("way", ["wait_for_events", "get_room_events", "wait_for_turn"])
async def test_cursor_acknowledges_messages_shown_by_any_tool(stage: Stage, work: Path, way: str) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.rendered.send_message(luna, room_id="work", body="look", to_agent_id="nova")
    if way == "wait_for_turn":
        shown = await stage.claim(nova, events=True)
    else:
        shown = await getattr(stage.rendered, way)(nova, room_id="work", after_event_seq=0)
    assert bodies(shown) == stage.texts("nova") == ["look"]

    await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=int(str(shown["cursor_event_seq"])), max_wait_ms=0
    )

    assert stage.texts("nova") == []


async def test_messages_shown_before_a_restart_are_not_acknowledged(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    await stage.rendered.send_message(luna, room_id="work", body="look", to_agent_id="nova")
    shown = await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)
    stage.book.shown = ShownMessages()

    await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=int(str(shown["cursor_event_seq"])), max_wait_ms=0
    )

    assert stage.texts("nova") == ["look"]
    assert bodies(await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)) == ["look"]


async def test_cursor_acknowledges_only_the_callers_own_shown_messages(stage: Stage, work: Path) -> None:
    luna, nova, _ = await stage.seat(work, "luna", "nova", "rosa")
    for text, to in (("to nova", "nova"), ("to rosa", "rosa"), ("to all", None)):
        await stage.rendered.send_message(luna, room_id="work", body=text, to_agent_id=to)
    await stage.send(HUMAN, "elsewhere", "@nova")

    claims = await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=stage.log.last(), event_type="claim", max_wait_ms=0
    )
    assert claims["events"] == []
    assert stage.texts("nova") == ["to nova", "to all", "elsewhere"]
    shown = await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)
    assert bodies(shown) == ["to nova", "to all"]
    await stage.rendered.wait_for_events(
        nova, room_id="work", after_event_seq=stage.log.last(), event_type="claim", max_wait_ms=0
    )

    assert stage.texts("nova") == ["elsewhere"]
    assert stage.texts("rosa") == ["to rosa", "to all"]


async def test_ten_thousand_waits_change_nothing(stage: Stage, work: Path) -> None:
    luna, nova, rosa = await stage.seat(work, "luna", "nova", "rosa")
    await stage.claim(luna)
    await stage.timers.advance(11)
    waiting = stage.start(stage.rendered.wait_for_turn(nova, room_id="work"))
    await stage.settle()
    last, room = stage.log.last(), stage.room()

    for _ in range(10_000):
        await stage.rendered.wait_for_events(rosa, room_id="work", after_event_seq=last, max_wait_ms=0)

    assert stage.log.last() == last
    assert stage.room() == room
    assert (await stage.release(luna))["reserved_for"] == "nova"
    assert (await done(waiting))["status"] == "your_turn"


async def test_message_to_oneself_is_delivered(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")

    sent = await stage.rendered.send_message(luna, room_id="work", body="remember", to_agent_id="luna")
    answer = await stage.rendered.wait_for_events(luna, room_id="work", max_wait_ms=0)

    assert sent["delivered_to"] == ["luna"]
    assert bodies(answer) == stage.texts("luna") == ["remember"]


async def test_target_any_shows_all_events_and_one_agent_can_be_the_target(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")
    mona = await stage.join("mona")
    await stage.rendered.send_message(luna, room_id="work", body="to nova", to_agent_id="nova")

    seen = await stage.rendered.wait_for_events(
        mona, room_id="work", after_event_seq=0, target_agent_id="any"
    )
    to_nova = await stage.rendered.wait_for_events(
        SCRIPT, room_id="work", after_event_seq=0, target_agent_id="nova", from_agent_id="@luna"
    )

    assert types(seen) == ["member_joined", "member_joined", "message_sent"]
    assert bodies(to_nova) == ["to nova"]
    assert stage.texts("nova") == ["to nova"]
    with pytest.raises(AgentIdRequired):
        await stage.rendered.wait_for_events(SCRIPT, room_id="work")
    with pytest.raises(InvalidEventTypeFilter):
        await stage.rendered.wait_for_events(nova, room_id="work", event_type=[])
    with pytest.raises(RoomNotFound):
        await stage.rendered.wait_for_events(nova, room_id="missing")
    with pytest.raises(BadRequest, match="target_agent_id is empty"):
        await stage.rendered.wait_for_events(nova, room_id="work", target_agent_id="", max_wait_ms=0)
    with pytest.raises(BadRequest, match="from_agent_id is empty"):
        await stage.rendered.wait_for_events(nova, room_id="work", from_agent_id="", max_wait_ms=0)


async def test_cancelled_wait_for_events_leaves_no_timer(stage: Stage, work: Path) -> None:
    [luna] = await stage.seat(work, "luna")
    waiting = stage.start(stage.rendered.wait_for_events(luna, room_id="work"))
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
            answer = await stage.rendered.wait_for_events(
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
            sending.create_task(stage.rendered.send_message(writers[number % 2], room_id="work", body=text))
    async with asyncio.timeout(60):
        read = await asyncio.gather(*reading)

    assert sorted(map(int, read[0])) == list(range(count))
    assert all(one == read[0] for one in read)


async def test_history_is_read_in_pages(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    await stage.claim(luna)
    await stage.send(luna, "elsewhere", "@nova")

    first = await stage.rendered.get_room_events(luna, room_id="work", limit=2)
    rest = await stage.rendered.get_room_events(
        luna, room_id="work", after_event_seq=int(str(first["cursor_event_seq"])), limit=0
    )
    end = await stage.rendered.get_room_events(luna, room_id="work", after_event_seq=stage.log.last())

    assert types(first) == ["member_joined", "member_joined"]
    assert types(rest) == ["claim"]
    assert end == {"events": [], "cursor_event_seq": stage.log.last()}


async def test_notes_last_until_they_are_resolved(stage: Stage, work: Path) -> None:
    luna, nova = await stage.seat(work, "luna", "nova")

    first = await stage.rendered.add_note(luna, room_id="work", body="  watch the parser  ")
    second = await stage.rendered.add_note(nova, room_id="work", body="and the tests", turn_id=0)
    settled = await stage.rendered.resolve_note(nova, room_id="work", note_id=str(first["note_id"]))

    assert (first["body"], first["author_agent_id"], first["turn_id"]) == ("watch the parser", "luna", None)
    assert (settled["resolved_by_agent_id"], settled["note_id"]) == ("nova", first["note_id"])
    assert await stage.rendered.list_notes(luna, room_id="work") == {
        "room_id": stage.room().id,
        "notes": [second],
    }
    everything = await stage.rendered.list_notes(luna, room_id="work", include_resolved=True, limit=0)
    assert everything["notes"] == [settled]
    behind = await stage.rendered.list_notes(
        luna, room_id="work", include_resolved=True, after_note_id=str(first["note_id"])
    )
    assert behind["notes"] == [second]
    with pytest.raises(InvalidCursor):
        await stage.rendered.list_notes(luna, room_id="work", after_note_id="unknown")
    with pytest.raises(NotFound):
        await stage.rendered.resolve_note(nova, room_id="work", note_id="unknown")


async def test_redacted_text_is_not_shown_again(stage: Stage, work: Path) -> None:
    luna, _ = await stage.seat(work, "luna", "nova")
    sent = await stage.rendered.send_message(luna, room_id="work", body="hunter2")
    before = await stage.rendered.get_room_events(luna, room_id="work")

    await stage.broker.submit(HUMAN, Redact(event=str(sent["event_seq"]), hash="scrypt$1"))
    after = await stage.rendered.get_room_events(luna, room_id="work")

    assert bodies(before) == ["hunter2"]
    assert bodies(after) == ["[redacted]"]
