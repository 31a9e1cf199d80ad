"""Rooms in the broker: one per workspace, each member once, nothing deleted."""

import asyncio

import pytest
from tests.broker.scene import PLACE, Scene
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER, Seated
from palaver.errors import BadRequest, BadText, NotAllowed, RoomNotFound, WhoAreYou
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    CloseRoom,
    Gone,
    JoinRoom,
    KickMember,
    Leave,
    LeaveRoom,
    Put,
    RetireMember,
    TellKick,
)
from palaver.state.rooms import find_room, read_all_rooms, read_room_at, read_rooms_of

ABOVE = "/home/ann"


@pytest.fixture
def scene(bus: Bus) -> Scene:
    return Scene(bus)


async def seat(scene: Scene, asking: Caller, *paths: str, **fields: object) -> Seated:
    outcome = await scene.bus.broker.submit(asking, JoinRoom(workspaces=paths or (PLACE,), **fields))  # type: ignore[arg-type]  # its fields
    assert isinstance(outcome, Seated)
    return outcome


async def types(bus: Bus, *names: str) -> list[str]:
    return [event.type for event in await bus.log.read(Query(types=names))]


async def test_first_member_creates_the_room_and_the_next_one_joins_it(scene: Scene) -> None:
    ann, bob = await scene.bus.join("ann", harness="codex"), await scene.bus.join("bob")

    first, second = await seat(scene, ann), await seat(scene, bob)

    assert (first.is_new, second.is_new) == (True, False)
    assert first.room.id == second.room.id
    assert (first.room.path, first.room.name, first.room.slug) == (PLACE, "repo", "repo")
    assert [(one.name, one.harness) for one in second.room.members] == [("ann", "codex"), ("bob", "")]
    assert second.event is not None


async def test_joining_again_writes_nothing(scene: Scene) -> None:
    ann = await scene.bus.join("ann", session="s", harness="codex")

    for _ in range(50):
        ann = await scene.bus.join("ann", session="s", harness="codex")
        again = await seat(scene, ann)

    assert (again.event, again.is_new, [*again.room.names]) == (None, False, ["ann"])
    assert await types(scene.bus, "member_joined") == ["member_joined"]


async def test_agent_that_exited_and_returned_is_still_a_member(scene: Scene) -> None:
    await scene.join("ann")

    await scene.bus.broker.submit(SYSTEM_CALLER, Gone(name="ann", reason="its process ended"))
    await scene.bus.submit(scene.callers["ann"], Leave(reason="exited with 0"))

    assert [*scene.room.names] == ["ann"]
    assert await types(scene.bus, "member_left") == []


async def test_agent_that_leaves_the_bus_leaves_its_rooms(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await seat(scene, scene.callers["ann"], "/other")
    bye = Draft(type="agent.bye", id="b", sender="bob", payload={})

    await scene.bus.submit(scene.callers["ann"], Leave())
    await scene.bus.submit(scene.callers["bob"], Put(envelope=bye))

    assert list(read_rooms_of(scene.bus.log.rows, "ann")) == []
    assert [*scene.room.names] == []
    assert await types(scene.bus, "member_left", "agent.bye") == [
        *("member_left", "member_left", "agent.bye"),
        *("member_left", "agent.bye"),
    ]


async def test_join_enters_the_deepest_room_above_a_path(scene: Scene) -> None:
    ann, bob = await scene.bus.join("ann"), await scene.bus.join("bob")
    above = await seat(scene, ann, ABOVE)

    found = await seat(scene, bob, PLACE, ABOVE)

    assert (found.room.id, found.is_new, found.ancestor_of) == (above.room.id, False, PLACE)


async def test_room_can_be_created_inside_another(scene: Scene) -> None:
    ann = await scene.bus.join("ann")
    above = await seat(scene, ann, ABOVE)

    nested = await seat(scene, ann, PLACE, ABOVE, is_new=True, name_hint="the repo")
    again = await seat(scene, ann, PLACE, ABOVE, is_new=True)

    assert (nested.is_new, nested.nested_in, nested.ancestor_of) == (True, above.room.id, "")
    assert nested.room.name == "the repo"
    assert (again.is_new, again.nested_in, again.event) == (False, "", None)


async def test_twenty_joins_at_once_create_one_room(scene: Scene) -> None:
    agents = [await scene.bus.join(f"agent{number}") for number in range(20)]

    seated = await asyncio.gather(*(seat(scene, agent) for agent in agents))

    assert len({one.room.id for one in seated}) == 1
    assert [one.is_new for one in seated].count(True) == 1
    room = read_room_at(scene.bus.log.rows, PLACE)
    assert room is not None
    assert len(room.members) == 20


async def test_same_request_again_returns_the_same_result(scene: Scene) -> None:
    ann = await scene.bus.join("ann")
    asked, key = JoinRoom(workspaces=(PLACE,)), b"k" * 16

    first = await scene.bus.broker.submit(ann, asked, key=key)
    room = first.room.id  # type: ignore[union-attr]  # it is seated
    await scene.bus.broker.submit(ann, LeaveRoom(room=room))
    await scene.bus.broker.submit(HUMAN, CloseRoom(room=room))
    again = await scene.bus.broker.submit(ann, asked, key=key)

    assert isinstance(again, Seated)
    assert again.event == first.event  # type: ignore[union-attr]
    assert len(list(read_all_rooms(scene.bus.log.rows))) == 1


async def test_outcome_of_a_join_is_found_by_its_key(scene: Scene) -> None:
    ann, key = await scene.bus.join("ann"), b"k" * 16
    await scene.bus.broker.submit(ann, JoinRoom(workspaces=(PLACE,)), key=key)

    known = await scene.bus.broker.outcome(JoinRoom, key)

    assert isinstance(known, Seated)
    assert known.is_new


async def test_human_can_be_a_member(scene: Scene) -> None:
    seated = await seat(scene, HUMAN)

    assert [(one.name, one.harness) for one in seated.room.members] == [("human", "human")]


async def test_caller_without_a_name_cannot_be_a_member(scene: Scene) -> None:
    with pytest.raises(WhoAreYou):
        await seat(scene, SCRIPT)


async def test_observer_joins_without_an_event_and_creates_no_room(scene: Scene) -> None:
    eve = await scene.bus.join("eve", role="observer")
    with pytest.raises(RoomNotFound):
        await seat(scene, eve)
    await scene.join("ann")

    seated = await seat(scene, eve, f"{PLACE}/src", PLACE)

    assert (seated.event, seated.is_new, seated.ancestor_of) == (None, False, f"{PLACE}/src")


@pytest.mark.parametrize(
    ("paths", "error"),
    [
        ((), BadRequest),
        (("repo",), BadRequest),
        (("/a\x1bb",), BadText),
        (("/a\udcff",), BadText),
    ],
)
async def test_workspace_must_be_an_absolute_path(
    scene: Scene, paths: tuple[str, ...], error: type[Exception]
) -> None:
    ann = await scene.bus.join("ann")

    with pytest.raises(error):
        await scene.bus.broker.submit(ann, JoinRoom(workspaces=paths))


async def test_room_after_a_closed_one_is_a_new_room(scene: Scene) -> None:
    await scene.join("ann")
    first = scene.id
    await scene.written("", CloseRoom(room=first, reason="done"))

    await scene.join("ann")

    assert scene.id == f"{first}-2"
    assert await scene.refused("ann", LeaveRoom(room=first)) == "room_closed"
    assert len(await scene.bus.log.read(Query(rooms=(first,)))) == 2


async def test_join_during_a_close_ends_in_one_room(
    scene: Scene,
) -> None:
    await scene.join("ann")
    bob = await scene.bus.join("bob")

    await asyncio.gather(scene.ask("", CloseRoom(room=scene.id)), seat(scene, bob, f"{PLACE}/src", PLACE))

    joined = await scene.bus.log.read(Query(types=("member_joined",), senders=("bob",)))
    (only,) = joined
    room = find_room(scene.bus.log.rows, str(only.payload["room"]))
    assert room.member("bob") is not None


async def test_two_paths_with_the_same_base_are_two_rooms(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.broker.rooms.room_base", lambda path: "repo-aaaa")
    ann = await scene.bus.join("ann")

    one, other = await seat(scene, ann, "/a/repo"), await seat(scene, ann, "/b/repo")

    assert (one.room.id, other.room.id) == ("repo-aaaa", "repo-aaaa-2")
    assert (await seat(scene, ann, "/a/repo")).room.id == "repo-aaaa"


async def test_only_an_operator_closes_a_room(scene: Scene) -> None:
    await scene.join("ann")

    assert await scene.refused("ann", CloseRoom(room=scene.id)) == "not_allowed"


async def test_only_the_bus_announces_a_kick_and_does_so_once(scene: Scene) -> None:
    ann, bob = await scene.bus.join("ann"), await scene.bus.join("bob")
    room = (await seat(scene, ann)).room.id
    await seat(scene, bob)
    kick = await scene.bus.submit(HUMAN, KickMember(room=room, target="bob", is_forced=True))
    assert kick is not None
    announcement = TellKick(room=room, member="bob", kick=kick.id)

    for _ in range(2):
        await scene.bus.submit(SYSTEM_CALLER, announcement)
    with pytest.raises(NotAllowed):
        await scene.bus.submit(HUMAN, announcement)
    await scene.bus.submit(HUMAN, CloseRoom(room=room))
    late = await scene.bus.submit(SYSTEM_CALLER, TellKick(room=room, member="eve", kick=kick.id))

    assert await types(scene.bus, "member_left") == ["member_left"]
    assert late is None


async def test_nested_room_is_joined_if_it_exists_and_never_created(scene: Scene) -> None:
    ann, bob, eve = [await scene.bus.join(name) for name in ("ann", "bob", "eve")]
    inner = f"{PLACE}/api"

    first = await seat(scene, ann, PLACE, inside=(inner,))
    nested = await seat(scene, ann, inner, PLACE, is_new=True)
    second = await seat(scene, bob, PLACE, inside=(f"{inner}/deep", inner))
    await scene.bus.submit(HUMAN, CloseRoom(room=nested.room.id))
    third = await seat(scene, eve, PLACE, inside=(inner,))

    assert [one.room.path for one in (first, nested, second, third)] == [PLACE, inner, inner, PLACE]
    assert [one.ancestor_of for one in (first, nested, second, third)] == ["", "", "", ""]
    assert nested.nested_in == first.room.id


async def test_bus_retires_a_member_once(scene: Scene) -> None:
    await scene.join("ann", "bob")
    asked = RetireMember(room=scene.id, member="bob")

    with pytest.raises(NotAllowed):
        await scene.ask("", asked)
    first, second = [await scene.bus.submit(SYSTEM_CALLER, asked) for _ in range(2)]

    assert first is not None
    assert (first.payload["from"], first.payload["reason"], second) == ("bob", "inactive", None)
    assert [*scene.room.names] == ["ann"]


async def test_kick_has_a_reason_and_accepts_any_form_of_address(scene: Scene) -> None:
    await scene.operator("opal")
    await scene.join("luna", tag="api", harness="codex")

    event = await scene.kick("opal", "codex", is_forced=True, reason="asleep")

    assert (event.to, event.payload) == (("api-luna",), {"room": scene.id, "reason": "asleep"})
    assert await scene.refused("opal", KickMember(room=scene.id, target="codex")) == "unknown_target"


async def test_history_outlives_the_last_member(scene: Scene) -> None:
    await scene.join("ann")
    await scene.leave("ann")

    assert scene.room.is_open
    assert scene.conditions == ("dormant",)
    assert [event.type for event in await scene.bus.log.read(Query(rooms=(scene.id,)))] == [
        "member_joined",
        "member_left",
    ]
