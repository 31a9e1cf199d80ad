"""The stick as the broker decides about it: one holder, one answer for one request, nothing lost."""

import asyncio

import pytest
from tests.broker.scene import HANDOFF, POLICY, Scene
from tests.fakes import SCRIPT, Bus

from palaver.broker.outcome import Seated, Turn
from palaver.errors import RequestError, UnknownMember
from palaver.log.fold_rooms import find_room
from palaver.model.query import Query
from palaver.model.room import Claim, CloseRoom, JoinRoom, PassStick, ReleaseStick, TakeOver


@pytest.fixture
def scene(bus: Bus) -> Scene:
    return Scene(bus)


async def types(scene: Scene) -> list[str]:
    return [event.type for event in await scene.bus.log.read(Query(rooms=(scene.id,)))]


async def test_of_twenty_who_ask_at_once_one_has_the_stick(scene: Scene) -> None:
    names = [f"agent{number}" for number in range(20)]
    await scene.join(*names)

    turns = await asyncio.gather(*(scene.wait(name) for name in names))

    assert [turn.status for turn in turns].count("your_turn") == 1
    assert (await types(scene)).count("claim") == 1


async def test_the_same_claim_again_gives_the_same_lease(scene: Scene) -> None:
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


async def test_claim_of_a_turn_that_is_over_is_refused_once_its_owner_left(scene: Scene) -> None:
    await scene.join("ann")
    key = b"k" * 16
    await scene.ask("ann", Claim(room=scene.id), key=key)
    await scene.release("ann")
    await scene.leave("ann")

    with pytest.raises(RequestError):
        await scene.ask("ann", Claim(room=scene.id), key=key)


async def test_a_holder_that_asks_again_is_given_its_lease_and_hand_over_again(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.pass_on("ann", "bob")
    first = await scene.wait("bob")

    again = await scene.wait("bob")

    assert again.reason == "already_owner"
    assert (again.turn, again.lease, again.handoff, again.sender) == (2, first.lease, HANDOFF, "ann")


async def test_who_takes_over_is_told_from_whom(scene: Scene) -> None:
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


async def test_overriding_is_an_operators(scene: Scene) -> None:
    await scene.join("ann", "bob")
    held = await scene.wait("ann")
    handoff = dict(HANDOFF)
    given = PassStick(room=scene.id, turn=1, lease=held.lease, to="bob", handoff=handoff, is_override=True)

    assert await scene.refused("ann", given) == "not_allowed"
    taken = TakeOver(room=scene.id, turn=1, reason="x", is_override=True)
    assert await scene.refused("bob", taken) == "not_allowed"


async def test_who_looks_on_takes_nothing_over(scene: Scene) -> None:
    await scene.join("ann")
    await scene.wait("ann")
    scene.callers["eve"] = await scene.bus.join("eve", role="observer")

    asked = TakeOver(room=scene.id, turn=1, reason="x")

    assert await scene.refused("eve", asked) == "observer_cannot_hold_turn"


async def test_a_script_without_a_name_holds_no_stick(scene: Scene) -> None:
    await scene.join("ann")

    with pytest.raises(UnknownMember):
        await scene.bus.broker.submit(SCRIPT, Claim(room=scene.id))


async def test_a_hand_over_is_looked_at_before_the_room(scene: Scene) -> None:
    await scene.join("ann")

    asked = ReleaseStick(room="none", turn=1, lease="x", handoff={"status": "x"})

    assert await scene.refused("ann", asked) == "invalid_handoff"
    assert await scene.refused("ann", Claim(room="none")) == "room_not_found"


async def test_a_closed_room_ends_a_wait(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.written("", CloseRoom(room=scene.id))

    turn = await scene.wait("bob")

    assert turn.status == "closed"
    asked = ReleaseStick(room=scene.id, turn=1, lease="x", handoff=dict(HANDOFF))
    assert await scene.refused("ann", asked) == "room_closed"


async def test_asking_does_what_is_due_without_the_daemons_clock(scene: Scene) -> None:
    await scene.join("ann", "bob", "cat")
    await scene.wait("ann")
    await scene.release("ann")
    scene.advance_ms(POLICY.claim_ms)
    scene.waits("cat")

    turn = await scene.wait("cat")

    assert (turn.status, turn.reason, turn.handoff) == ("your_turn", "sequence", HANDOFF)
    assert (await types(scene))[-3:] == ["release", "reservation_expired", "claim"]


async def test_a_holder_that_is_gone_is_done_with_when_somebody_asks(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.ends("ann")
    scene.advance_ms(POLICY.gone_grace_ms)

    turn = await scene.wait("bob")

    assert (turn.status, turn.reason, turn.handoff) == ("your_turn", "open_claim", None)
    assert (await types(scene))[-2:] == ["release", "claim"]


async def test_asking_in_vain_writes_nothing(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    before = scene.bus.log.last()

    for _ in range(100):
        assert (await scene.wait("bob")).status == "not_yet"

    assert scene.bus.log.last() == before
    assert await scene.hand_on() is None
    assert await scene.expire() is None


async def test_who_joins_while_a_stick_is_released_is_looked_at_too(scene: Scene) -> None:
    """The decision is made again with everybody in the room, however late somebody came."""
    await scene.join("ann")
    held = await scene.wait("ann")
    bob = await scene.bus.join("bob")
    asked = ReleaseStick(room=scene.id, turn=1, lease=held.lease, handoff=dict(HANDOFF))

    joined, _ = await asyncio.gather(
        scene.bus.broker.submit(bob, JoinRoom(places=(scene.room.path,))), scene.ask("ann", asked)
    )

    assert isinstance(joined, Seated)
    room = find_room(scene.bus.log.rows, scene.id)
    order = await types(scene)
    assert room.reserved_for == ("bob" if order.index("release") > order.index("claim") + 1 else "")


async def test_a_lease_is_the_id_of_the_event_that_gave_it(scene: Scene) -> None:
    await scene.join("ann")

    turn = await scene.wait("ann")

    assert turn.event is not None
    assert turn.lease == turn.event.id == turn.event.payload["lease_id"]
