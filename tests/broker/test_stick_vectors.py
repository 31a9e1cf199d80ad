"""Behaviour of an earlier system with rooms and the stick, case by case, except where the design differs."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.scene import HANDOFF, PLACE, POLICY, Scene
from tests.fakes import Bus

from palaver.domain.stick import check_holder
from palaver.protocol.requests import Claim, JoinRoom, KickMember, PassStick, ReleaseStick, TakeOver

FILE = Path(__file__).parents[1] / "vectors" / "rooms_and_stick.json"
IDS = [case["id"] for case in json.loads(FILE.read_text(encoding="utf-8"))["stick"]]

Play = Callable[[Scene], Awaitable[None]]
CASES: dict[str, Play] = {}

ELSEWHERE = {"st-43"}
"""One of several sessions in one process: this is a matter of seats, which are older than rooms."""


def case(id: str) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        CASES[id] = play
        return play

    return keep


def test_every_vector_has_a_case() -> None:
    assert sorted([*CASES, *ELSEWHERE]) == sorted(IDS)


@pytest.mark.parametrize("id", sorted({*IDS} - ELSEWHERE))
async def test_vector_holds(id: str, bus: Bus) -> None:
    await CASES[id](Scene(bus))


@case("st-01")
async def _open_claim(scene: Scene) -> None:
    await scene.join("ann")
    assert (scene.room.state, scene.room.turn) == ("idle", 0)

    turn = await scene.wait("ann")

    assert (turn.status, turn.reason, turn.turn) == ("your_turn", "open_claim", 1)
    assert (turn.handoff, turn.sender) == (None, "")
    assert (scene.room.state, scene.room.owner) == ("owned", "ann")


@case("st-03")
async def _direct_pass(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")

    passed = await scene.pass_on("ann", "bob")
    turn = await scene.wait("bob")

    assert (passed.to, passed.payload["reserved_for"]) == (("bob",), "bob")
    assert (turn.status, turn.reason, turn.turn) == ("your_turn", "direct_pass", 2)
    assert (turn.handoff, turn.sender) == (HANDOFF, "ann")


@case("st-05")
async def _expired_owner_waits(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.advance_ms(POLICY.lease_ms + 1)

    turn = await scene.wait("ann")

    assert turn.status == "not_yet"


@case("st-07")
async def _expired_owner_beats(scene: Scene) -> None:
    await scene.join("ann", "bob")
    held = await scene.wait("ann")
    scene.advance_ms(POLICY.lease_ms + 1)
    assert (await scene.wait("bob")).status == "takeover_available"

    check_holder(scene.room, "ann", held.turn, held.lease)
    scene.heartbeat("ann")

    assert (await scene.wait("bob")).status == "not_yet"


@case("st-09")
async def _takeover_of_a_live_owner(scene: Scene) -> None:
    await scene.join("ann")
    await scene.operator("bob")
    await scene.wait("ann")

    refused = await scene.refused("bob", TakeOver(room=scene.id, turn=1, reason="x"))
    turn = await scene.take_over("bob", is_override=True)

    assert refused == "takeover_not_available"
    assert (turn.status, turn.reason, turn.revoked) == ("your_turn", "operator_override", "ann")


@case("st-11")
async def _turn_before_lease(scene: Scene) -> None:
    await scene.join("ann")
    await scene.wait("ann")
    asked = {"room": scene.id, "lease": "wrong", "handoff": dict(HANDOFF)}

    assert await scene.refused("ann", ReleaseStick(turn=7, **asked)) == "turn_mismatch"  # type: ignore[arg-type]
    assert await scene.refused("ann", ReleaseStick(turn=1, **asked)) == "stale_lease"  # type: ignore[arg-type]


@case("st-13")
async def _claim_timeout(scene: Scene) -> None:
    """The earlier system only allowed a takeover; now the stick returns to the queue with its handoff."""
    await scene.join("ann", "bob", "cat")
    await scene.wait("ann")
    released = await scene.release("ann")
    assert released.payload["reserved_for"] == "bob"
    scene.advance_ms(POLICY.claim_ms + 1)

    refused = await scene.refused("ann", TakeOver(room=scene.id, turn=1, reason="late"))
    taken = await scene.wait("cat")

    assert refused == "takeover_ineligible"
    assert (taken.status, taken.reason, taken.turn) == ("your_turn", "sequence", 2)
    assert taken.handoff == HANDOFF


@case("st-15")
async def _late_recipient(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.release("ann")
    scene.advance_ms(POLICY.claim_ms + 1)

    turn = await scene.wait("bob")

    assert (turn.status, turn.reason) == ("your_turn", "sequence")


@case("st-17")
async def _prior_owner_after_the_cooldown(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.advance_ms(POLICY.waiter_grace_ms + 1)
    await scene.release("ann")
    assert (await scene.wait("ann")).reason == "prior_owner_cooldown"
    scene.advance_ms(60_001)

    turn = await scene.wait("ann")

    assert (turn.status, turn.reason) == ("your_turn", "sequence")


@case("st-19")
async def _less_fair(scene: Scene) -> None:
    await scene.join("one", "three", "two")
    await scene.wait("one")
    await scene.pass_on("one", "two")
    await scene.wait("two")
    scene.advance_ms(POLICY.waiter_grace_ms + 1)
    released = await scene.release("two")
    assert "reserved_for" not in released.payload

    first, second = await scene.wait("one"), await scene.wait("three")

    assert (first.status, first.look_again_ms) == ("not_yet", POLICY.waiter_grace_ms)
    assert (second.status, second.reason) == ("your_turn", "sequence")


@case("st-21")
async def _unreachable(scene: Scene) -> None:
    await scene.operator("ann")
    await scene.join("bob")
    await scene.wait("ann")
    scene.bus.present.discard("bob")
    asked = PassStick(room=scene.id, turn=1, lease=scene.room.lease, to="bob", handoff=dict(HANDOFF))

    assert await scene.refused("ann", asked) == "recipient_unreachable"
    assert (await scene.pass_on("ann", "bob", is_override=True)).payload["reserved_for"] == "bob"


@case("st-23")
async def _parked(scene: Scene) -> None:
    """The room service shows the hint once; the broker returns it each time."""
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.advance_ms(POLICY.waiter_grace_ms + 1)
    await scene.release("ann")

    for name in ("ann", "bob"):
        turn = await scene.wait(name, is_parked=True)

        assert (turn.status, turn.reason) == ("not_yet", "auto_claim_disabled")
        assert "pending handoff" in turn.hint


@case("st-25")
async def _owner_parks(scene: Scene) -> None:
    await scene.join("ann")
    await scene.wait("ann")

    assert await scene.refused("ann", Claim(room=scene.id, is_parked=True)) == "park_requires_release"


@case("st-27")
async def _a_peer_is_there(scene: Scene) -> None:
    """The room service adds the messages sent meanwhile; here only the stick is tested."""
    await scene.join("ann")
    alone = await scene.wait("ann", allows_solo=False)
    await scene.join("bob")

    turn = await scene.wait("ann", allows_solo=False)

    assert (alone.status, alone.reason) == ("not_yet", "solo_claim_disabled")
    assert turn.status == "your_turn"


@case("st-29")
async def _pass_to_one_who_parked(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.parks("bob")

    await scene.pass_on("ann", "bob")
    turn = await scene.wait("bob", is_parked=True)

    assert (turn.status, turn.reason) == ("your_turn", "direct_pass")


@case("st-31")
async def _recipient_leaves(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    await scene.release("ann")

    await scene.leave("bob")
    state = scene.room.state
    turn = await scene.wait("ann")

    assert state == "idle"
    assert (turn.status, turn.handoff) == ("your_turn", HANDOFF)


@case("st-33")
async def _owner_leaves(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")

    await scene.leave("ann")

    room = scene.room
    assert (room.state, room.owner, room.lease, room.pending) == ("idle", "", "", None)


@case("st-35")
async def _kicks(scene: Scene) -> None:
    await scene.join("ann", "bob", "cat")
    await scene.operator("opal")
    scene.callers["eve"] = await scene.bus.join("eve")

    def kick(target: str, *, is_forced: bool = False) -> KickMember:
        return KickMember(room=scene.id, target=target, is_forced=is_forced)

    assert await scene.refused("ann", kick("ann")) == "cannot_kick_self"
    assert await scene.refused("eve", kick("ann")) == "unknown_member"
    assert await scene.refused("ann", kick("ghost")) == "unknown_target"
    assert await scene.refused("ann", kick("bob")) == "target_active"
    assert await scene.refused("ann", kick("bob", is_forced=True)) == "not_allowed"
    assert (await scene.kick("opal", "bob", is_forced=True)).to == ("bob",)
    await scene.wait("cat")
    scene.ends("cat")
    scene.advance_ms(POLICY.gone_grace_ms + 1)
    assert (await scene.kick("ann", "cat", reason="asleep")).payload["reason"] == "asleep"
    assert (scene.room.state, scene.room.owner) == ("idle", "")
    scene.ends("opal")
    scene.advance_ms(POLICY.gone_grace_ms + 1)
    await scene.kick("ann", "opal")
    scene.bus.present.discard("ann")
    assert scene.conditions == ("dormant",)


@case("st-37")
async def _signs_of_one_who_is_gone(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.ends("ann")

    for _ in range(3):
        scene.advance_ms(POLICY.gone_grace_ms - 1)
        scene.bus.member_presence.seen["ann"] = scene.now_ms

        assert (await scene.wait("bob")).status == "not_yet"
        assert scene.room.owner == "ann"


@case("st-39")
async def _idle_owner(scene: Scene) -> None:
    """The room service decides which results end a wait; here they are distinguished."""
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.bus.member_presence.idle["ann"] = scene.now_ms
    scene.advance_ms(POLICY.owner_idle_ms)

    idle = await scene.wait("bob")
    scene.advance_ms(POLICY.lease_ms)
    timeout = await scene.wait("bob")

    assert (idle.status, idle.reason) == ("takeover_available", "owner_idle")
    assert (timeout.status, timeout.reason) == ("takeover_available", "owner_timeout")


@case("st-41")
async def _relinquished(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.ends("ann")
    assert await scene.hand_on(turn=7) is None
    scene.advance_ms(POLICY.gone_grace_ms - 1)
    assert await scene.hand_on() is None
    scene.bus.member_presence.seen["ann"] = scene.now_ms
    scene.advance_ms(POLICY.gone_grace_ms - 1)
    assert await scene.hand_on() is None
    scene.advance_ms(1)

    event = await scene.hand_on()

    assert event is not None
    assert (event.type, event.payload["reason"], event.payload["from"]) == ("release", "harness_gone", "ann")
    assert (scene.room.state, scene.room.pending) == ("idle", None)


@case("st-45")
async def _dormant(scene: Scene) -> None:
    await scene.join("ann", "bob")
    await scene.wait("ann")
    scene.ends("ann")
    scene.ends("bob")
    scene.advance_ms(POLICY.gone_grace_ms)
    assert "dormant" in scene.conditions

    await scene.join("cat")
    turn = await scene.wait("cat")

    assert turn.status == "your_turn"


@case("st-47")
async def _removed_waiter(scene: Scene) -> None:
    await scene.operator("ann")
    await scene.join("bob")

    await scene.kick("ann", "bob", is_forced=True)

    assert await scene.refused("bob", Claim(room=scene.id)) == "unknown_member"


@case("st-49")
async def _observer(scene: Scene) -> None:
    """The room stays when no member is left in it: nothing is deleted."""
    await scene.join("ann")
    scene.callers["eve"] = await scene.bus.join("eve", role="observer")

    seated = await scene.ask("eve", JoinRoom(workspaces=(PLACE,)))
    await scene.wait("ann")
    asked = PassStick(room=scene.id, turn=1, lease=scene.room.lease, to="eve", handoff=dict(HANDOFF))

    assert (seated.event, [*scene.room.names]) == (None, ["ann"])  # type: ignore[union-attr]
    assert await scene.refused("eve", Claim(room=scene.id)) == "observer_cannot_hold_turn"
    assert await scene.refused("ann", asked) == "unknown_member"
    await scene.leave("ann")
    assert scene.room.is_open
