"""Waiting in rooms: all stored events are searched, and cursors stay before unread messages."""

from pathlib import Path
from typing import Any

import pytest
from tests.doors.room_stage import RoomResult, Stage, done, opened_stage, rendered
from tests.fakes import HUMAN, SCRIPT, OpenLog, open_sqlite

from palaver.protocol.agents import Caller
from palaver.protocol.requests import Release

FILTERS: list[dict[str, Any]] = [{}, {"target_agent_id": "any"}, {"target_agent_id": "nova"}]


def bodies(answer: RoomResult) -> list[str]:
    events: Any = answer["events"]
    return [event["payload"]["body"] for event in events if event["event_type"] == "message_sent"]


def seqs_of(answer: RoomResult) -> list[int]:
    events: Any = answer["events"]
    return [event["event_seq"] for event in events]


async def test_matching_event_is_found_after_many_others(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        await stage.claim(luna)
        for number in range(600):
            await stage.rendered.send_message(nova, room_id="work", body=str(number), to_agent_id="nova")
        last = await stage.rendered.send_message(nova, room_id="work", body="at last", to_agent_id="luna")

        answer = await stage.claim(luna, after_event_seq=0)

        assert answer["cursor_event_seq"] == last["event_seq"]
        [event] = [one for one in answer["events"] if one["event_type"] == "message_sent"]
        assert event["payload"]["body"] == "at last"


async def test_stored_events_are_limited_to_the_requested_number(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, *_ = await stage.seat(tmp_path / "work", "luna", "nova", "rosa")

        found = await stage.rendered.waits.stored(stage.room(), lambda event: True, 0, 2)

        assert [event.sender for event in found] == ["luna", "nova"]
        assert luna.name == "luna"


async def test_cursor_is_before_the_oldest_unread_message_or_at_the_end(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        await stage.send(luna, "elsewhere", "@nova")
        assert stage.rendered.waits.cursor(nova, stage.room()) == stage.log.last()
        first = await stage.rendered.send_message(luna, room_id="work", body="one")
        await stage.rendered.send_message(luna, room_id="work", body="two")

        assert stage.rendered.waits.cursor(nova, stage.room()) == int(str(first["event_seq"])) - 1
        assert stage.rendered.waits.cursor(luna, stage.room()) == stage.log.last()
        assert stage.rendered.waits.cursor(SCRIPT, stage.room()) == stage.log.last()


async def test_only_shown_messages_are_acknowledged(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        for body in ("one", "two"):
            sent = await stage.rendered.send_message(luna, room_id="work", body=body)
        room, seq = stage.room(), int(str(sent["event_seq"]))
        stage.book.shown.add("nova", room.id, [seq])

        await stage.rendered.waits.acknowledge(nova, room, seq - 1)
        assert stage.texts("nova") == ["one", "two"]
        await stage.rendered.waits.acknowledge(nova, room, seq)

        assert stage.texts("nova") == ["one"]
        assert not stage.book.shown.has("nova", room.id, seq)


@pytest.mark.parametrize("first", FILTERS)
@pytest.mark.parametrize("then", [*FILTERS, {"event_type": "pass"}, {"from_agent_id": "rosa"}])
async def test_shown_message_is_acknowledged_by_any_next_call(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova, _ = await stage.seat(tmp_path / "work", "luna", "nova", "rosa")
        await stage.rendered.send_message(luna, room_id="work", body="look", to_agent_id="nova")
        shown = await stage.rendered.wait_for_events(nova, room_id="work", after_event_seq=0, **first)
        assert bodies(shown)[-1:] == stage.texts("nova") == ["look"]

        await bring_back(stage, nova, shown, **then)

        assert stage.texts("nova") == []


async def test_messages_shown_in_inbox_are_acknowledged_by_any_room_cursor(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        await stage.seat(tmp_path / "other", "rosa")
        await stage.send(luna, "not shown", "@nova")
        await stage.rendered.send_message(luna, room_id="work", body="in the room")
        direct = await stage.send(luna, "beside it", "@nova")
        late = await stage.send(luna, "behind the cursor", "@nova")
        await stage.rendered.inbox(nova, limit=3)
        assert len(stage.texts("nova")) == 4

        await stage.rendered.wait_for_events(nova, room_id="other", after_event_seq=direct.seq, max_wait_ms=0)

        assert stage.texts("nova") == ["not shown", "behind the cursor"]
        await bring_back(stage, nova, {"cursor_event_seq": late.seq})
        assert stage.texts("nova") == ["not shown"]


async def test_message_shown_as_held_is_not_acknowledged_after_release(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        held = await stage.send(luna, "too much", "@nova")
        await stage.report("nova", "held", held.seq)
        await stage.rendered.inbox(nova)
        await stage.submit(HUMAN, Release(message=str(held.seq)))

        await bring_back(stage, nova, {"cursor_event_seq": stage.log.last()})

        assert stage.texts("nova") == ["too much"]


async def test_history_continues_from_archive_to_log(tmp_path: Path, open_log: OpenLog) -> None:
    async with opened_stage(tmp_path, open_log=open_log) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        for number in range(8):
            await stage.rendered.send_message(luna, room_id="work", body=str(number))
        whole = seqs_of(await stage.rendered.get_room_events(nova, room_id="work"))
        await stage.log.archive(whole[-2])

        for after in (0, whole[3], whole[-3], whole[-2], whole[-1]):
            rest = [seq for seq in whole if seq > after]
            read = await stage.rendered.get_room_events(nova, room_id="work", after_event_seq=after)
            heard = await stage.rendered.wait_for_events(
                nova, room_id="work", after_event_seq=after, target_agent_id="any", max_wait_ms=0
            )
            page = await stage.rendered.get_room_events(nova, room_id="work", after_event_seq=after, limit=2)

            assert seqs_of(read) == seqs_of(heard) == rest
            assert seqs_of(page) == rest[:2]


async def test_archived_unread_mail_is_returned_and_acknowledged(tmp_path: Path, open_log: OpenLog) -> None:
    async with opened_stage(tmp_path, open_log=open_log) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        for body in ("one", "two", "three"):
            sent = await stage.rendered.send_message(luna, room_id="work", body=body)
        await stage.log.archive(int(str(sent["event_seq"])))

        given = await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)
        with_turn = await stage.claim(nova, after_event_seq=0)
        await bring_back(stage, nova, given)

        assert bodies(given) == bodies(with_turn) == ["one", "two", "three"]
        assert stage.texts("nova") == []


async def test_message_archived_during_a_wait_still_ends_the_wait(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        waiting = stage.start(stage.rendered.wait_for_events(nova, room_id="work", event_type="message_sent"))
        await stage.settle()
        sent = await stage.rendered.send_message(luna, room_id="work", body="gone at once")
        await stage.log.archive(int(str(sent["event_seq"])) + 1)

        assert bodies(await done(waiting)) == ["gone at once"]


async def test_archived_mail_is_still_returned_after_a_restart(tmp_path: Path) -> None:
    async with opened_stage(tmp_path, open_log=open_sqlite) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        for body in ("one", "two"):
            sent = await stage.rendered.send_message(luna, room_id="work", body=body)
        await stage.log.archive(int(str(sent["event_seq"])) + 1)

    async with opened_stage(tmp_path, open_log=open_sqlite) as stage:
        given = await stage.rendered.wait_for_events(nova, room_id="work", max_wait_ms=0)
        await bring_back(stage, nova, given)

        assert bodies(given) == ["one", "two"]
        assert stage.texts("nova") == []


async def bring_back(stage: Stage, asking: Caller, answer: RoomResult, **filters: Any) -> RoomResult:
    """Wait for events with the cursor of an earlier result."""
    after = int(str(answer["cursor_event_seq"]))
    page = await stage.rooms.wait_for_events(
        asking, room_id="work", after_event_seq=after, max_wait_ms=0, **filters
    )
    return rendered(page)
