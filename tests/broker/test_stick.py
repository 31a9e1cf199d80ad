"""The stick in the broker: one owner, one result per request, nothing lost."""

import asyncio
from pathlib import Path

import pytest
from tests.broker.scene import HANDOFF, POLICY, Scene
from tests.fakes import SCRIPT, Bus, open_sqlite, opened_bus

from palaver.broker.context import Seated, Turn
from palaver.errors import DiskFull, RequestError, UnknownMember
from palaver.log.sqlite import SqliteLog
from palaver.protocol.query import Query
from palaver.protocol.requests import Claim, CloseRoom, JoinRoom, PassStick, ReleaseStick, TakeOver
from palaver.state.rooms import find_room


@pytest.fixture
def scene(bus: Bus) -> Scene:
    return Scene(bus)


async def types(scene: Scene) -> list[str]:
    return [event.type for event in await scene.bus.log.read(Query(rooms=(scene.id,)))]


async def test_twenty_claims_at_once_have_one_owner(scene: Scene) -> None:
    names = [f"agent{number}" for number in range(20)]
    await scene.join(*names)

    turns = await asyncio.gather(*(scene.wait(name) for name in names))

    assert [turn.status for turn in turns].count("your_turn") == 1
    assert (await types(scene)).count("claim") == 1


async def test_claim_that_must_wait_writes_nothing_even_on_a_full_disk(tmp_path: Path) -> None:
    async with opened_bus(open_sqlite, tmp_path) as bus:
        scene = Scene(bus)
        await scene.join("ann", "bob")
        await scene.wait("ann")
        assert isinstance(bus.log, SqliteLog)
        bus.log.refuse_commits(DiskFull("no room"))

        turn = await scene.wait("bob")

        assert (turn.status, turn.room.owner) == ("not_yet", "ann")


async def test_same_claim_again_returns_the_same_lease(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.release("ann")
    asked, key = Claim(room=scene.id), b"k" * 16

    first, again = [await scene.ask("bob", asked, key=key) for _ in range(2)]

    assert isinstance(first, Turn)
    assert isinstance(again, Turn)
    assert (first.turn, first.handoff, first.sender) == (2, HANDOFF, "ann")
    assert again == first
    assert (await types(scene)).count("claim") == 2


async def test_repeated_claim_has_the_same_outcome_while_its_turn_lasts(scene: Scene) -> None:
    await scene.join("ann")
    key = b"k" * 16

    first = await scene.ask("ann", Claim(room=scene.id), key=key)
    again = await scene.ask("ann", Claim(room=scene.id), key=key)

    assert isinstance(first, Turn)
    assert isinstance(again, Turn)
    assert (again.status, again.turn, again.lease) == ("your_turn", first.turn, first.lease)


async def test_repeated_claim_whose_turn_has_moved_on_is_decided_again(scene: Scene) -> None:
    await scene.join("ann", "bob")
    key = b"k" * 16
    await scene.ask("ann", Claim(room=scene.id), key=key)
    await scene.pass_on("ann", "bob")
    await scene.wait("bob")

    waiting = await scene.ask("ann", Claim(room=scene.id), key=key)
    await scene.pass_on("bob", "ann")
    second = await scene.ask("ann", Claim(room=scene.id), key=key)
    again = await scene.ask("ann", Claim(room=scene.id), key=key)

    assert isinstance(waiting, Turn)
    assert (waiting.status, waiting.lease) == ("not_yet", "")
    assert isinstance(second, Turn)
    assert (second.status, second.turn) == ("your_turn", 3)
    assert again == second


async def test_claim_of_an_ended_turn_is_refused_after_its_owner_left(scene: Scene) -> None:
    await scene.join("ann")
    key = b"k" * 16
    await scene.ask("ann", Claim(room=scene.id), key=key)
    await scene.release("ann")
    await scene.leave("ann")

    with pytest.raises(RequestError):
        await scene.ask("ann", Claim(room=scene.id), key=key)


async def test_owner_that_claims_again_gets_its_lease_and_handoff_again(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.pass_on("ann", "bob")
    first = await scene.wait("bob")

    again = await scene.wait("bob")

    assert again.reason == "already_owner"
    assert (again.turn, again.lease, again.handoff, again.sender) == (2, first.lease, HANDOFF, "ann")


async def test_takeover_names_the_previous_owner(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.advance_ms(POLICY.lease_ms)
    key = b"k" * 16
    asked = TakeOver(room=scene.id, turn=1, reason="stuck")

    turn, again = [await scene.ask("bob", asked, key=key) for _ in range(2)]

    assert isinstance(turn, Turn)
    assert (turn.status, turn.reason, turn.revoked, turn.turn) == ("your_turn", "owner_timeout", "ann", 2)
    assert again == turn
    assert await scene.refused("bob", TakeOver(room=scene.id, turn=1, reason="x")) == "turn_mismatch"


async def test_takeover_without_a_reason_is_refused(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.advance_ms(POLICY.lease_ms)

    assert await scene.refused("bob", TakeOver(room=scene.id, turn=1, reason=" \t")) == "bad_request"


async def test_only_an_operator_can_override(scene: Scene) -> None:
    await scene.join("ann", "bob")
    held = await scene.wait("ann")
    handoff = dict(HANDOFF)
    given = PassStick(room=scene.id, turn=1, lease=held.lease, to="bob", handoff=handoff, is_override=True)

    assert await scene.refused("ann", given) == "not_allowed"
    taken = TakeOver(room=scene.id, turn=1, reason="x", is_override=True)
    assert await scene.refused("bob", taken) == "not_allowed"


async def test_observer_cannot_take_over(scene: Scene) -> None:
    await scene.join("ann")
    await scene.wait("ann")
    scene.callers["eve"] = await scene.bus.join("eve", role="observer")

    asked = TakeOver(room=scene.id, turn=1, reason="x")

    assert await scene.refused("eve", asked) == "observer_cannot_hold_turn"


async def test_script_without_a_name_cannot_have_the_stick(scene: Scene) -> None:
    await scene.join("ann")

    with pytest.raises(UnknownMember):
        await scene.bus.broker.submit(SCRIPT, Claim(room=scene.id))


async def test_handoff_is_validated_before_the_room(scene: Scene) -> None:
    await scene.join("ann")

    asked = ReleaseStick(room="none", turn=1, lease="x", handoff={"status": "x"})

    assert await scene.refused("ann", asked) == "invalid_handoff"
    assert await scene.refused("ann", Claim(room="none")) == "room_not_found"


async def test_closed_room_ends_a_wait_for_the_stick(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.written("", CloseRoom(room=scene.id))

    turn = await scene.wait("bob")

    assert turn.status == "closed"
    asked = ReleaseStick(room=scene.id, turn=1, lease="x", handoff=dict(HANDOFF))
    assert await scene.refused("ann", asked) == "room_closed"


async def test_claim_applies_due_changes_without_the_clock_of_the_daemon(scene: Scene) -> None:
    await scene.join("ann", "bob", "cat")
    await scene.wait("ann")
    await scene.release("ann")
    scene.advance_ms(POLICY.claim_ms)
    scene.waits("cat")

    turn = await scene.wait("cat")

    assert (turn.status, turn.reason, turn.handoff) == ("your_turn", "sequence", HANDOFF)
    assert (await types(scene))[-3:] == ["release", "reservation_expired", "claim"]


async def test_exited_owner_is_released_when_another_member_claims(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.ends("ann")
    scene.advance_ms(POLICY.gone_grace_ms)

    turn = await scene.wait("bob")

    assert (turn.status, turn.reason, turn.handoff) == ("your_turn", "open_claim", None)
    assert (await types(scene))[-2:] == ["release", "claim"]


async def test_claim_without_success_writes_nothing(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    before = scene.bus.log.last()

    for _ in range(100):
        assert (await scene.wait("bob")).status == "not_yet"

    assert scene.bus.log.last() == before
    assert await scene.hand_on() is None
    assert await scene.expire() is None


async def test_member_that_joins_during_a_release_is_considered(scene: Scene) -> None:
    """The decision is made again with all members of the room, however late one joined."""
    await scene.join("ann")
    held = await scene.wait("ann")
    bob = await scene.bus.join("bob")
    asked = ReleaseStick(room=scene.id, turn=1, lease=held.lease, handoff=dict(HANDOFF))

    joined, _ = await asyncio.gather(
        scene.bus.broker.submit(bob, JoinRoom(workspaces=(scene.room.path,))), scene.ask("ann", asked)
    )

    assert isinstance(joined, Seated)
    room = find_room(scene.bus.log.rows, scene.id)
    order = await types(scene)
    assert room.reserved_for == ("bob" if order.index("release") > order.index("claim") + 1 else "")


async def test_lease_is_the_id_of_the_event_that_granted_it(scene: Scene) -> None:
    await scene.join("ann")

    turn = await scene.wait("ann")

    assert turn.event is not None
    assert turn.lease == turn.event.id == turn.event.payload["lease_id"]
