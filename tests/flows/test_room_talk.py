"""Messages, events and notes in rooms, through every door."""

import asyncio
from pathlib import Path

from tests.flows.behaviours import behaviour
from tests.flows.room_door import RoomDoor, RoomSeat
from tests.flows.test_rooms import claim, refusal, seated, types_in, until_waiting
from tests.limits import LIMIT_S


async def mail(seat: RoomSeat) -> list[str]:
    """Return the texts of all messages ever sent to an agent, newest last."""
    found = await seat.ask("inbox")
    return [message["text"] for message in sorted(found["messages"], key=lambda one: one["seq"])]


async def say(seat: RoomSeat, room: str, body: str, *to: str, **more: str) -> int:
    """Send a message in a room and return its seq."""
    whom = {"to_agent_id": to[0] if len(to) == 1 else list(to)} if to else {}
    sent = await seat.ask("send_message", room_id=room, body=body, **whom, **more)
    seq: int = sent["event_seq"]
    return seq


# Messages


@behaviour("room-message-member")
async def test_message_to_a_member_is_delivered_and_shown_in_the_room(
    rooms: RoomDoor, workspace: Path
) -> None:
    room, (luna, nova, kira) = await seated(rooms, workspace, "luna", "nova", "kira")

    at = await say(luna, room, "the bug is in token.ts", "nova")

    assert (await mail(nova), await mail(kira), await mail(luna)) == (["the bug is in token.ts"], [], [])
    # The recipients are notified; every member can read it.
    *_, event = (await kira.ask("get_room_events", room_id=room))["events"]
    assert (event["event_seq"], event["event_type"], event["from_agent_id"]) == (at, "message_sent", "luna")
    assert event["payload"]["body"] == "the bug is in token.ts"
    assert event["payload"]["delivery_hint"] == "normal"


@behaviour("room-message-several")
async def test_message_to_several_members_is_delivered_once_to_each(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova, kira) = await seated(rooms, workspace, "luna", "nova", "kira")

    await say(luna, room, "both of you", "nova", "@kira", "NOVA")

    assert (await mail(nova), await mail(kira)) == (["both of you"], ["both of you"])


@behaviour("room-message-all")
async def test_message_to_the_room_reaches_all_members_except_its_sender(
    rooms: RoomDoor, workspace: Path
) -> None:
    room, (luna, nova, kira) = await seated(rooms, workspace, "luna", "nova", "kira")
    outsider = await rooms.join("zora")

    await say(luna, room, "the schema is final")

    assert [await mail(seat) for seat in (nova, kira)] == [["the schema is final"]] * 2
    assert [await mail(seat) for seat in (luna, outsider)] == [[], []]


@behaviour("room-message-self")
async def test_message_to_self_is_delivered(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")

    await say(luna, room, "remember", "luna")

    assert (await mail(luna), await mail(nova)) == (["remember"], [])


@behaviour("room-message-harness")
async def test_harness_name_means_the_only_member_that_runs_it(rooms: RoomDoor, workspace: Path) -> None:
    luna = await rooms.join("luna")
    nova, kira = await rooms.join("nova", "claude"), await rooms.join("kira", "claude")
    joined = await luna.ask("join_path", context_path=str(workspace))
    await nova.ask("join_path", context_path=str(workspace))
    await say(luna, joined["room_id"], "you alone", "claude")
    await kira.ask("join_path", context_path=str(workspace))

    refused = await refusal("ambiguous_recipient", say(luna, joined["room_id"], "which?", "claude"))

    assert (await mail(nova), await mail(kira)) == (["you alone"], [])
    assert sorted(refused.details["candidates"]) == ["kira", "nova"]


@behaviour("room-message-interrupt")
async def test_interrupt_is_one_in_the_ledger_and_does_not_move_the_stick(
    rooms: RoomDoor, workspace: Path
) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)

    await say(nova, room, "stop", "luna", delivery_hint="interrupt")

    ((message,),) = [(await luna.ask("inbox"))["messages"]]
    assert (message["priority"], message["room"]) == ("interrupt", room)
    state = await nova.ask("get_room_state", room_id=room)
    assert (state["owner_agent_id"], state["turn_id"]) == ("luna", turn["turn_id"])


@behaviour("room-message-unknown")
async def test_message_to_a_stranger_is_refused_and_not_delivered(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    await rooms.join("kira")

    await refusal("unknown_member", say(luna, room, "hello", "kira"))
    await refusal("unknown_member", say(luna, room, "hello", "nova", "nobody"))

    assert await mail(nova) == []
    assert await types_in(luna, room) == ["member_joined", "member_joined"]


@behaviour("room-message-size")
async def test_body_is_kept_complete_or_refused(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    longest = "ö" * 2048

    await refusal("message_too_large", say(luna, room, longest + "x", "nova"))
    await refusal("invalid_body", say(luna, room, "", "nova"))
    await say(luna, room, longest, "nova")

    assert await mail(nova) == [longest]


@behaviour("room-message-outsider")
async def test_stranger_cannot_send_to_a_room(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna,) = await seated(rooms, workspace, "luna")
    kira = await rooms.join("kira")

    await refusal("unknown_member", say(kira, room, "let me in"))

    assert await mail(luna) == []


# Events


@behaviour("events-history")
async def test_history_is_read_page_by_page(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    at = [await say(luna, room, f"{number}") for number in range(3)]

    whole = await nova.ask("get_room_events", room_id=room)
    behind = await nova.ask("get_room_events", room_id=room, after_event_seq=at[0])

    assert [event["event_seq"] for event in whole["events"]][-3:] == at
    assert [event["event_seq"] for event in behind["events"]] == at[1:]
    assert whole["cursor_event_seq"] == behind["cursor_event_seq"] == at[-1]


@behaviour("events-wait", needs="events")
async def test_wait_ends_with_the_first_match_or_empty(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    start = (await luna.ask("get_room_state", room_id=room))["cursor_event_seq"]

    empty = await nova.ask(
        "wait_for_events", room_id=room, after_event_seq=start, event_type="pass", max_wait_ms=0
    )
    waiting = asyncio.create_task(
        nova.ask("wait_for_events", room_id=room, after_event_seq=start, event_type=["pass", "message_sent"])
    )
    await luna.ask("add_note", room_id=room, body="not this")
    at = await say(luna, room, "this")
    async with asyncio.timeout(LIMIT_S):
        found = await waiting

    assert (empty["events"], empty["cursor_event_seq"]) == ([], start)
    assert [event["event_seq"] for event in found["events"]] == [at]
    assert found["cursor_event_seq"] == at


@behaviour("events-self", needs="events")
async def test_default_filter_returns_messages_to_the_agent_and_membership(
    rooms: RoomDoor, workspace: Path
) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    start = (await luna.ask("get_room_state", room_id=room))["cursor_event_seq"]
    kira = await rooms.join("kira")
    await kira.ask("join_path", context_path=str(workspace))
    await say(kira, room, "to luna", "luna")
    await say(kira, room, "to nova", "nova")
    await say(kira, room, "to all")
    await say(nova, room, "my own word")
    await kira.ask("leave_room", room_id=room)

    found = await nova.ask("wait_for_events", room_id=room, after_event_seq=start)

    assert [(event["event_type"], (event["payload"] or {}).get("body")) for event in found["events"]] == [
        ("member_joined", None),
        ("message_sent", "to nova"),
        ("message_sent", "to all"),
        ("member_left", None),
    ]


@behaviour("events-filters", needs="events")
async def test_events_are_filtered_by_type_sender_and_target(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova, kira) = await seated(rooms, workspace, "luna", "nova", "kira")
    for seat, body, to in ((luna, "l to n", "nova"), (nova, "n to l", "luna"), (luna, "l to k", "kira")):
        await say(seat, room, body, to)

    async def bodies(**filters: object) -> list[str]:
        found = await kira.ask(
            "wait_for_events", room_id=room, after_event_seq=0, event_type="message_sent", **filters
        )
        return [event["payload"]["body"] for event in found["events"]]

    assert await bodies(target_agent_id="any") == ["l to n", "n to l", "l to k"]
    assert await bodies(target_agent_id="nova") == ["l to n"]
    assert await bodies(target_agent_id="any", from_agent_id="luna") == ["l to n", "l to k"]
    assert await bodies() == ["l to k"]


@behaviour("events-acknowledge", needs="events")
async def test_returned_cursor_marks_messages_as_read(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    await say(luna, room, "read me", "nova")
    found = await nova.ask("wait_for_events", room_id=room, event_type="message_sent")
    before = [message["state"] for message in (await nova.ask("inbox"))["messages"]]

    await nova.ask("wait_for_events", room_id=room, after_event_seq=found["cursor_event_seq"], max_wait_ms=0)

    assert before == ["queued"]
    assert [message["state"] for message in (await nova.ask("inbox"))["messages"]] == ["seen"]


@behaviour("events-change-nothing", needs="events")
async def test_waiting_for_events_does_not_queue_for_the_stick(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)
    start = (await luna.ask("get_room_state", room_id=room))["cursor_event_seq"]

    for _ in range(5):
        await nova.ask("wait_for_events", room_id=room, after_event_seq=start, max_wait_ms=0)

    state = await luna.ask("get_room_state", room_id=room)
    assert [member["waiting"] for member in state["members"]] == [False, False]
    assert (state["cursor_event_seq"], state["turn_id"]) == (start, turn["turn_id"])
    waiting = asyncio.create_task(nova.ask("wait_for_turn", room_id=room, max_wait_ms=LIMIT_MS))
    await until_waiting(luna, room, "nova")
    waiting.cancel()


LIMIT_MS = int(LIMIT_S * 1000)


# Notes


@behaviour("notes")
async def test_note_is_stored_and_announced(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    first, second = [await luna.ask("add_note", room_id=room, body=body) for body in ("one", "two")]

    page = await nova.ask("list_notes", room_id=room, limit=1)
    rest = await nova.ask("list_notes", room_id=room, after_note_id=page["notes"][0]["note_id"])

    assert [note["note_id"] for note in page["notes"] + rest["notes"]] == [
        first["note_id"],
        second["note_id"],
    ]
    assert [(note["author_agent_id"], note["body"]) for note in rest["notes"]] == [("luna", "two")]
    assert (await types_in(nova, room))[-2:] == ["note_added", "note_added"]


@behaviour("note-size")
async def test_note_is_kept_complete_or_refused(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna,) = await seated(rooms, workspace, "luna")
    longest = "x" * 16_384

    await refusal("body_too_large", luna.ask("add_note", room_id=room, body=longest + "x"))
    await luna.ask("add_note", room_id=room, body=longest)

    (note,) = (await luna.ask("list_notes", room_id=room))["notes"]
    assert note["body"] == longest


@behaviour("note-resolve")
async def test_resolved_note_is_shown_only_on_request(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    note = await luna.ask("add_note", room_id=room, body="done soon")

    resolved = await nova.ask("resolve_note", room_id=room, note_id=note["note_id"])

    assert resolved["resolved_by_agent_id"] == "nova"
    assert (await luna.ask("list_notes", room_id=room))["notes"] == []
    (shown,) = (await luna.ask("list_notes", room_id=room, include_resolved=True))["notes"]
    assert shown["note_id"] == note["note_id"]
    assert (await types_in(luna, room))[-1] == "note_resolved"
