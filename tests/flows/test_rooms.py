"""Rooms and the stick, through every door."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.flows.behaviours import behaviour
from tests.flows.door import Refused
from tests.flows.room_door import Answer, RoomDoor, RoomSeat
from tests.limits import LIMIT_S

HANDOFF = {"status": "half done", "next_action": "go on", "mood": ["good"]}


async def refusal(code: str, asking: object) -> Refused:
    """Await a request that must be refused with this code."""
    with pytest.raises(Refused) as refused:
        await asking  # type: ignore[misc]  # any awaitable
    assert refused.value.code == code
    return refused.value


async def seated(rooms: RoomDoor, workspace: Path, *names: str) -> tuple[str, list[RoomSeat]]:
    """Join agents and let each join the room of the folder; return the room and the agents."""
    seats = [await rooms.join(name) for name in names]
    answers = [await seat.ask("join_path", context_path=str(workspace)) for seat in seats]
    return answers[0]["room_id"], seats


async def claim(seat: RoomSeat, room: str) -> Answer:
    return await seat.ask("wait_for_turn", room_id=room, max_wait_ms=0)


def owner(room: str, turn: Answer, **more: Any) -> dict[str, Any]:
    """Return the arguments that identify the owner of a turn."""
    return {"room_id": room, "lease_id": turn["lease_id"], "expected_turn_id": turn["turn_id"], **more}


def names_of(state: Answer) -> list[str]:
    return [member["agent_id"] for member in state["members"]]


async def until_waiting(seat: RoomSeat, room: str, name: str) -> None:
    """Poll until the room shows that the agent waits."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            state = await seat.ask("get_room_state", room_id=room)
            if any(member["agent_id"] == name and member["waiting"] for member in state["members"]):
                return


async def types_in(seat: RoomSeat, room: str) -> list[str]:
    found = await seat.ask("get_room_events", room_id=room)
    return [event["event_type"] for event in found["events"]]


# Rooms


@behaviour("room-join")
async def test_agents_that_join_a_path_are_in_the_same_room(rooms: RoomDoor, workspace: Path) -> None:
    luna, nova = await rooms.join("luna"), await rooms.join("nova")
    (workspace / "a.txt").touch()

    first = await luna.ask("join_path", context_path=str(workspace))
    second = await nova.ask("join_path", context_path=str(workspace / "a.txt"))

    assert (first["agent_id"], names_of(first)) == ("luna", ["luna"])
    assert (second["agent_id"], names_of(second)) == ("nova", ["luna", "nova"])
    assert first["room_id"] == second["room_id"]
    assert first["canonical_path"] == second["canonical_path"] == str(workspace)
    assert first["policy"]["message_bytes"] == 4096
    assert first["room_state"] == "idle"


@behaviour("room-join-again")
async def test_joining_again_changes_nothing(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")

    for _ in range(3):
        again = await nova.ask("join_path", context_path=str(workspace))

    assert (again["room_id"], names_of(again)) == (room, ["luna", "nova"])
    assert await types_in(luna, room) == ["member_joined", "member_joined"]


@behaviour("room-above")
async def test_inner_path_belongs_to_the_outer_room_until_one_is_opened_there(
    rooms: RoomDoor, workspace: Path
) -> None:
    part = workspace / "part"
    part.mkdir()
    room, (luna,) = await seated(rooms, workspace, "luna")

    above = await luna.ask("join_path", context_path=str(part))
    inside = await luna.ask("join_path", context_path=str(part), force_new=True)
    around = await luna.ask("list_rooms", context_path=str(part))

    assert above["room_id"] == room
    assert above["warning"].startswith("Joined ancestor room")
    assert inside["canonical_path"] == str(part)
    assert inside["warning"].startswith("Created nested room inside")
    assert [one["room_id"] for one in around["rooms"]] == [inside["room_id"], room]


@behaviour("room-nowhere")
async def test_root_directory_has_no_room(rooms: RoomDoor) -> None:
    luna = await rooms.join("luna")

    await refusal("not_a_place", luna.ask("join_path", context_path="/"))


@behaviour("room-unknown")
async def test_unknown_room_is_refused_by_every_tool(rooms: RoomDoor) -> None:
    luna = await rooms.join("luna")

    for tool, more in (
        ("get_room_state", {}),
        ("wait_for_turn", {"max_wait_ms": 0}),
        ("leave_room", {}),
        ("send_message", {"body": "hello"}),
        ("list_notes", {}),
    ):
        await refusal("room_not_found", luna.ask(tool, room_id="nowhere-aaaa", **more))


@behaviour("room-leave")
async def test_agent_that_leaves_is_not_a_member_and_the_history_stays(
    rooms: RoomDoor, workspace: Path
) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")

    left = [await seat.ask("leave_room", room_id=room) for seat in (nova, luna)]

    assert [one["status"] for one in left] == ["left", "left"]
    state = await luna.ask("get_room_state", room_id=room)
    assert names_of(state) == []
    assert state["conditions"] == ["dormant"]
    assert await types_in(luna, room) == ["member_joined", "member_joined", "member_left", "member_left"]
    await refusal("unknown_member", luna.ask("leave_room", room_id=room))


@behaviour("room-kick")
async def test_present_members_and_the_caller_cannot_be_removed(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, _) = await seated(rooms, workspace, "luna", "nova")

    for name, code in (("luna", "cannot_kick_self"), ("zed", "unknown_target"), ("nova", "target_active")):
        await refusal(code, luna.ask("kick_member", room_id=room, target_agent_id=name))
    await refusal("not_allowed", luna.ask("kick_member", room_id=room, target_agent_id="nova", force=True))

    assert names_of(await luna.ask("get_room_state", room_id=room)) == ["luna", "nova"]


# The stick


@behaviour("stick-one-owner")
async def test_stick_has_one_owner(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")

    first, second = await claim(luna, room), await claim(nova, room)
    again = await claim(luna, room)

    assert (first["status"], first["turn_id"], first["handoff"]) == ("your_turn", 1, None)
    assert (second["status"], second["owner_agent_id"], second["turn_id"]) == ("not_yet", "luna", 1)
    assert (again["turn_id"], again["lease_id"]) == (1, first["lease_id"])


@behaviour("stick-release")
async def test_release_passes_the_stick_on_with_the_complete_handoff(
    rooms: RoomDoor, workspace: Path
) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)

    released = await luna.ask("release_stick", **owner(room, turn, handoff=HANDOFF))
    mine = await claim(nova, room)

    assert (released["status"], released["reserved_for"]) == ("released", "nova")
    assert (mine["status"], mine["turn_id"], mine["from_agent_id"]) == ("your_turn", 2, "luna")
    assert mine["handoff"] == HANDOFF
    assert mine["lease_id"] != turn["lease_id"]


@behaviour("stick-pass")
async def test_pass_reserves_the_stick_for_one_member(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova, kira) = await seated(rooms, workspace, "luna", "nova", "kira")
    turn = await claim(luna, room)

    passed = await luna.ask("pass_stick", **owner(room, turn, to_agent_id="kira", handoff=HANDOFF))
    other = await claim(nova, room)
    mine = await claim(kira, room)

    assert (passed["status"], passed["reserved_for"]) == ("passed", "kira")
    assert (other["status"], other["reserved_for"]) == ("not_yet", "kira")
    assert (mine["status"], mine["reason"], mine["handoff"]) == ("your_turn", "direct_pass", HANDOFF)


@behaviour("stick-wakes")
async def test_waiting_agent_is_woken_by_its_turn(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)
    waiting = asyncio.create_task(nova.ask("wait_for_turn", room_id=room))
    await until_waiting(luna, room, "nova")

    await luna.ask("release_stick", **owner(room, turn, handoff=HANDOFF))

    async with asyncio.timeout(LIMIT_S):
        mine = await waiting
    assert (mine["status"], mine["turn_id"]) == ("your_turn", 2)


@behaviour("stick-order-of-refusals")
async def test_wrong_turn_is_refused_before_a_wrong_lease(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)

    for seat, number, lease, code in (
        (luna, 7, "wrong", "turn_mismatch"),
        (luna, 1, "wrong", "stale_lease"),
        (nova, 7, turn["lease_id"], "turn_mismatch"),
    ):
        for tool, more in (("heartbeat", {}), ("release_stick", {"handoff": HANDOFF})):
            asking = {"room_id": room, "lease_id": lease, "expected_turn_id": number, **more}
            await refusal(code, seat.ask(tool, **asking))

    assert (await claim(luna, room))["lease_id"] == turn["lease_id"]


@behaviour("stick-hand-over")
async def test_incomplete_handoff_is_refused_by_its_field(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, _) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)

    for handoff, field in (
        ({"status": "s"}, "next_action"),
        ({"status": " ", "next_action": "n"}, "status"),
        ({**HANDOFF, "do_not": "this"}, "do_not"),
    ):
        refused = await refusal(
            "invalid_handoff", luna.ask("release_stick", **owner(room, turn, handoff=handoff))
        )
        assert refused.details["field"] == field

    assert (await luna.ask("get_room_state", room_id=room))["owner_agent_id"] == "luna"


@behaviour("stick-heartbeat")
async def test_heartbeat_renews_the_lease_and_writes_nothing(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, _) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)
    before = await types_in(luna, room)

    beaten = await luna.ask("heartbeat", **owner(room, turn))

    assert beaten["status"] == "ok"
    assert beaten["lease_expires_at"] >= turn["lease_expires_at"]
    assert await types_in(luna, room) == before


@behaviour("stick-takeover")
async def test_takeover_from_a_present_owner_is_refused(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna, nova) = await seated(rooms, workspace, "luna", "nova")
    turn = await claim(luna, room)

    await refusal(
        "takeover_not_available",
        nova.ask("takeover_stick", room_id=room, expected_turn_id=turn["turn_id"], reason="impatient"),
    )

    assert (await luna.ask("get_room_state", room_id=room))["owner_agent_id"] == "luna"


@behaviour("stick-members")
async def test_stranger_gets_no_turn(rooms: RoomDoor, workspace: Path) -> None:
    room, (luna,) = await seated(rooms, workspace, "luna")
    kira = await rooms.join("kira")
    turn = await claim(luna, room)

    await refusal("unknown_member", claim(kira, room))
    await refusal(
        "unknown_member", luna.ask("pass_stick", **owner(room, turn, to_agent_id="kira", handoff=HANDOFF))
    )
