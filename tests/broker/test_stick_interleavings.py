"""Concurrent requests in any order: each turn has one owner, and the log alone decides which."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.broker.scene import HANDOFF, PLACE, POLICY, Scene
from tests.fakes import Bus, open_memory, opened_bus

from palaver.errors import RequestError
from palaver.protocol.envelope import Event
from palaver.protocol.events import ROOM_TYPES
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    Claim,
    JoinRoom,
    KickMember,
    LeaveRoom,
    PassStick,
    ReleaseStick,
    Request,
    TakeOver,
)
from palaver.state.fold import SKIPPED
from palaver.state.rooms import Member, Room, apply_to_room, read_room

NAMES = ("ann", "bob", "cat", "opal")
TABLES = ("room", "room.at", "room.count", "room.open", "room.of", "room.former", SKIPPED)
WAYS = ("claim", "claim", "claim", "release", "pass", "takeover", "override", "leave", "join", "kick", "bus")
STEPS_MS = (0, 1, POLICY.waiter_grace_ms, POLICY.gone_grace_ms, POLICY.claim_ms, POLICY.lease_ms)

Deed = tuple[str, str, str, bool]
Story = list[tuple[list[Deed], int]]

deed = st.tuples(st.sampled_from(NAMES), st.sampled_from(WAYS), st.sampled_from(NAMES), st.booleans())
rounds = st.lists(st.tuples(st.lists(deed, min_size=1, max_size=8), st.sampled_from(STEPS_MS)), max_size=8)


def request(scene: Scene, way: str, other: str, is_odd: bool) -> Request:
    """Return the request of a member that has read the room first; `is_odd` makes it use wrong values."""
    room = scene.room
    turn, lease, handoff = room.turn + is_odd, room.lease, dict(HANDOFF)
    match way:
        case "release":
            return ReleaseStick(room=room.id, turn=turn, lease=lease, handoff=handoff)
        case "pass":
            return PassStick(room=room.id, turn=turn, lease=lease, to=other, handoff=handoff)
        case "takeover" | "override":
            return TakeOver(room=room.id, turn=turn, reason="x", is_override=way == "override")
        case "leave":
            return LeaveRoom(room=room.id)
        case "join":
            return JoinRoom(workspaces=(PLACE,))
        case "kick":
            return KickMember(room=room.id, target=other, is_forced=is_odd)
        case _:
            return Claim(room=room.id, is_parked=is_odd)


async def do(scene: Scene, who: str, way: str, other: str, is_odd: bool) -> None:
    with suppress(RequestError):
        if way == "bus":
            await (scene.expire() if is_odd else scene.hand_on())
            return
        await scene.ask(who, request(scene, way, other, is_odd))


def replayed(events: Sequence[Event]) -> Room:
    """Return the room built from its events alone; raise if one of them does not follow."""
    room: Room | None = None
    former: dict[str, Member] = {}
    for event in events:
        room_before = room
        room = apply_to_room(room, event, former.get(event.sender))
        if room_before is not None:
            former |= {one.name: one for one in room_before.members}
    assert room is not None
    return room


def rows_of(bus: Bus) -> list[tuple[str, str, bytes]]:
    return [
        (table, key, value) for table in TABLES for key, value in bus.log.rows.scan(table, "", limit=10_000)
    ]


async def play(story: Story, directory: Path) -> None:
    async with opened_bus(open_memory, directory) as bus:
        scene = Scene(bus)
        await scene.operator("opal")
        await scene.join("ann", "bob", "cat")
        for deeds, advance_ms in story:
            await asyncio.gather(*(do(scene, *one) for one in deeds))
            scene.advance_ms(advance_ms)
            for who, _, _, is_odd in deeds:
                if is_odd:
                    scene.ends(who)
                else:
                    scene.bus.present.add(who)
                    scene.waits(who)
        events = await bus.log.read(Query(types=tuple(ROOM_TYPES), limit=10_000))
        before = rows_of(bus)
        await bus.log.rebuild()

        assert rows_of(bus) == before
    turns = [event.payload["turn_id"] for event in events if event.type in ("claim", "takeover")]
    leases = {event.payload["lease_id"] for event in events if event.type in ("claim", "takeover")}
    assert turns == list(range(1, len(turns) + 1))
    assert len(leases) == len(turns)
    assert not [row for row in before if row[0] == SKIPPED]
    assert replayed(events) == read_room(bus.log.rows, scene.id)


@given(rounds)
def test_each_turn_has_one_owner_and_the_log_alone_decides_which(story: Story) -> None:
    asyncio.run(play(story, Path()))
