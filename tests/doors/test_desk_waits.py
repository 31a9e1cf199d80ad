"""Waiting in rooms: what is stored is looked through to its end, and cursors stay before what is unread."""

from pathlib import Path

from tests.doors.room_stage import opened_stage
from tests.fakes import SCRIPT

from palaver.rooms.events import event_filter


async def test_what_is_wanted_is_found_however_much_lies_before_it(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        await stage.claim(luna)
        for number in range(600):
            await stage.desk.send_message(nova, room_id="work", body=str(number), to_agent_id="nova")
        last = await stage.desk.send_message(nova, room_id="work", body="at last", to_agent_id="luna")

        answer = await stage.claim(luna, after_event_seq=0)

        assert answer["cursor_event_seq"] == last["event_seq"]
        [event] = [one for one in answer["events"] if one["event_type"] == "message_sent"]  # type: ignore[attr-defined]
        assert event["payload"]["body"] == "at last"


async def test_no_more_are_given_than_were_asked_for(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, *_ = await stage.seat(tmp_path / "work", "luna", "nova", "rosa")

        found = await stage.desk.waits.stored(stage.room(), lambda event: True, 0, 2)

        assert [event.sender for event in found] == ["luna", "nova"]
        assert luna.name == "luna"


async def test_a_cursor_is_before_the_oldest_unread_message_of_the_room_and_else_the_end(
    tmp_path: Path,
) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        await stage.send(luna, "elsewhere", "@nova")
        assert stage.desk.waits.cursor(nova, stage.room()) == stage.log.last()
        first = await stage.desk.send_message(luna, room_id="work", body="one")
        await stage.desk.send_message(luna, room_id="work", body="two")

        assert stage.desk.waits.cursor(nova, stage.room()) == int(str(first["event_seq"])) - 1
        assert stage.desk.waits.cursor(luna, stage.room()) == stage.log.last()
        assert stage.desk.waits.cursor(SCRIPT, stage.room()) == stage.log.last()


async def test_only_what_was_shown_and_is_asked_for_is_acknowledged(tmp_path: Path) -> None:
    async with opened_stage(tmp_path) as stage:
        luna, nova = await stage.seat(tmp_path / "work", "luna", "nova")
        for body in ("one", "two"):
            sent = await stage.desk.send_message(luna, room_id="work", body=body)
        room, seq = stage.room(), int(str(sent["event_seq"]))
        stage.book.shown.add("nova", room.id, [seq])

        await stage.desk.waits.acknowledge(nova, room, event_filter(caller="nova", event_type="pass"), seq)
        assert stage.texts("nova") == ["one", "two"]
        await stage.desk.waits.acknowledge(nova, room, event_filter(caller="nova"), seq)

        assert stage.texts("nova") == ["one"]
        assert not stage.book.shown.has("nova", room.id, seq)
