"""Leaving a room, removing members, and closing a room."""

import pytest
from tests.domain.room_parts import NOW_MS, POLICY, event, room_of, snapshot

from palaver.domain.stick import Move, Sight, close, kick, leave, retire, tell_kick
from palaver.errors import NotAllowed, RequestError, RoomClosed, TargetActive, UnknownMember
from palaver.protocol.agents import Caller, Standing
from palaver.state.rooms import apply_to_room

ROOM = room_of("ann", "bob")
CLOSED = apply_to_room(ROOM, event("close", "human"))
GONE = Sight(gone_since_ms=NOW_MS)
LATE_MS = NOW_MS + POLICY.gone_grace_ms


def caller(name: str, standing: Standing = Standing.WORKER) -> Caller:
    return Caller(name=name, standing=standing, kind="instance")


def removed(who: Caller, target: str, *, is_forced: bool = False, bob: Sight = GONE) -> Move:
    return kick(snapshot(ROOM, LATE_MS, bob=bob), who, target, "why", is_forced=is_forced)


def test_member_leaves_with_a_reason() -> None:
    move = leave(ROOM, "ann", "done")

    assert (move.type, move.payload.reason) == ("member_left", "done")  # type: ignore[union-attr]  # a leave has one


def test_leaving_a_closed_or_foreign_room_is_refused() -> None:
    with pytest.raises(RoomClosed):
        leave(CLOSED, "ann", "left")
    with pytest.raises(UnknownMember):
        leave(ROOM, "eve", "left")


def test_kick_notice_has_a_stable_id_and_needs_an_open_room() -> None:
    first, again, other = (tell_kick(ROOM, name, "K") for name in ("eve", "eve", "bob"))

    assert first is not None
    assert other is not None
    assert first == again
    assert first.id != other.id
    assert (first.type, first.payload.reason) == ("member_left", "kicked")  # type: ignore[union-attr]  # a leave has one
    assert tell_kick(CLOSED, "eve", "K") is None


def test_removed_member_is_not_removed_again() -> None:
    assert retire(ROOM, "ann", "inactive") is not None
    assert retire(ROOM, "eve", "inactive") is None
    assert retire(CLOSED, "ann", "inactive") is None


def test_member_can_remove_an_exited_member() -> None:
    assert removed(caller("ann"), "bob").to == ("bob",)
    assert removed(caller("ann"), "@bob", is_forced=True).to == ("bob",)


def test_only_an_operator_can_remove_a_present_member() -> None:
    here = Sight(is_present=True)

    with pytest.raises(NotAllowed):
        removed(caller("ann"), "bob", is_forced=True, bob=here)
    assert removed(caller("opal", Standing.OPERATOR), "bob", is_forced=True, bob=here).to == ("bob",)


@pytest.mark.parametrize(
    ("who", "target", "code"),
    [("ann", "ann", "cannot_kick_self"), ("eve", "bob", "unknown_member"), ("eve", "x", "unknown_member")],
)
def test_invalid_removal_is_refused(who: str, target: str, code: str) -> None:
    with pytest.raises(RequestError) as error:
        removed(caller(who), target)

    assert error.value.code == code


def test_present_or_unknown_members_are_not_removed() -> None:
    for target, code in (("bob", "target_active"), ("x", "unknown_target")):
        with pytest.raises(RequestError) as error:
            removed(caller("ann"), target, bob=Sight(is_present=True))

        assert error.value.code == code


def test_error_says_when_a_just_exited_member_can_be_removed() -> None:
    just_gone = Sight(gone_since_ms=LATE_MS - 1_000)
    left_s = POLICY.gone_grace_ms // 1_000 - 1

    with pytest.raises(TargetActive, match=f"any member can remove it in {left_s} seconds"):
        removed(caller("ann"), "bob", bob=just_gone)


def test_closed_room_cannot_be_closed_again() -> None:
    assert close(ROOM, "over").type == "close"
    with pytest.raises(RoomClosed):
        close(CLOSED, "over")
    with pytest.raises(RoomClosed):
        kick(snapshot(CLOSED), caller("ann"), "bob", "", is_forced=False)
