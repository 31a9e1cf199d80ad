"""All doors at once in one room: a door may change the wire format but never the meaning."""

import asyncio
import json
from pathlib import Path

from tests.flows.behaviours import behaviour
from tests.flows.room_door import HttpRooms, RoomDoor, RoomSeat
from tests.flows.test_room_talk import mail, say
from tests.flows.test_rooms import names_of, owner, until_waiting
from tests.limits import LIMIT_S

Doors = dict[str, RoomDoor]


async def mixed(all_rooms: Doors, workspace: Path) -> tuple[str, dict[str, RoomSeat]]:
    """Join one agent per door, all in one room; each is named after its door."""
    seats = {name: await door.join(f"from_{name}") for name, door in all_rooms.items()}
    for seat in seats.values():
        joined = await seat.ask("join_path", context_path=str(workspace))
    assert names_of(joined) == [seat.name for seat in seats.values()]
    return joined["room_id"], seats


@behaviour("mixed-turn")
async def test_stick_goes_round_through_every_door(all_rooms: Doors, workspace: Path) -> None:
    room, seats = await mixed(all_rooms, workspace)
    order = [seats[name] for name in ("mcp", "cli", "http", "sdk")]
    turn = await order[0].ask("wait_for_turn", room_id=room)

    for number, (holder, heir) in enumerate(zip(order, [*order[1:], order[0]], strict=True), 1):
        handoff = {"status": f"turn {number} is done", "next_action": f"go on, {heir.name}"}
        waiting = asyncio.create_task(heir.ask("wait_for_turn", room_id=room))
        await until_waiting(holder, room, heir.name)
        await holder.ask("pass_stick", **owner(room, turn, to_agent_id=heir.name, handoff=handoff))
        async with asyncio.timeout(LIMIT_S):
            turn = await waiting
        assert (turn["status"], turn["turn_id"], turn["handoff"]) == ("your_turn", number + 1, handoff)
        assert turn["from_agent_id"] == holder.name

    history = await seats["cli"].ask("get_room_events", room_id=room)
    claims = [
        event["payload"]["turn_id"] if "turn_id" in event["payload"] else event.get("turn_id")
        for event in history["events"]
        if event["event_type"] == "claim"
    ]
    assert claims == [1, 2, 3, 4, 5]


@behaviour("mixed-talk")
async def test_message_through_one_door_is_received_through_the_others(
    all_rooms: Doors, workspace: Path
) -> None:
    room, seats = await mixed(all_rooms, workspace)

    for name, seat in seats.items():
        await say(seat, room, f"by {name}")

    for name, seat in seats.items():
        assert await mail(seat) == [f"by {other}" for other in seats if other != name]
    for name in ("sdk", "mcp", "http"):
        found = await seats[name].ask("wait_for_events", room_id=room, event_type="message_sent")
        bodies = [event["payload"]["body"] for event in found["events"]]
        assert bodies == [f"by {other}" for other in seats if other != name]


@behaviour("mixed-self")
async def test_message_to_self_at_one_door_is_read_at_another(all_rooms: Doors, workspace: Path) -> None:
    door = all_rooms["http"]
    assert isinstance(door, HttpRooms)
    luna = await door.join("luna")
    joined = await luna.ask("join_path", context_path=str(workspace))

    at = await say(luna, joined["room_id"], "remember", "luna")

    (shell,) = door.shells
    taken = await shell.run("pal", "recv", "--json")
    (letter,) = [json.loads(line) for line in taken.out.splitlines()]
    assert (letter["seq"], letter["from"], letter["text"]) == (at, "luna", "remember")
    ((message,),) = [(await luna.ask("inbox"))["messages"]]
    assert message["state"] == "seen"
