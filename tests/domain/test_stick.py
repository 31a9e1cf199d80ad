"""The stick: rules for claims, releases, passes and takeovers."""

import pytest
from tests.domain.room_parts import (
    HANDOFF,
    HERE,
    NOW_MS,
    POLICY,
    event,
    held_by,
    released,
    room_of,
    snapshot,
    written,
)

from palaver.domain import stick
from palaver.domain.stick import Move, NoChange, RoomSnapshot, Sight
from palaver.errors import (
    BadRequest,
    NotOwner,
    ParkRequiresRelease,
    RecipientUnreachable,
    RequestError,
    RoomClosed,
    TakeoverIneligible,
    TakeoverNotAvailable,
    TurnMismatch,
    UnknownMember,
)
from palaver.protocol.events import Freed, Granted, Released, ReservationExpired, TakenOver
from palaver.state.rooms import Room, apply_to_room

IDLE = room_of("ann", "bob", "cat")
OWNED = held_by(IDLE, "ann")
CLOSED = apply_to_room(IDLE, event("close", "human"))
WAITS = Sight(is_present=True, is_waiting=True)
PARKED = Sight(is_present=True, is_waiting=True, is_parked=True)
AWAY = Sight()
LONG_MS = NOW_MS + POLICY.claim_ms


def claim(
    now: RoomSnapshot, name: str, *, is_parked: bool = False, allows_solo: bool = True
) -> Move | NoChange:
    return stick.claim(now, name, "lease", is_parked=is_parked, allows_solo=allows_solo)


def unchanged(now: RoomSnapshot, name: str, **fields: bool) -> NoChange:
    found = claim(now, name, **fields)
    assert isinstance(found, NoChange)
    return found


def freed(move: Move | None) -> Freed:
    assert move is not None
    assert isinstance(move.payload, Freed)
    return move.payload


def test_claim_event_contains_all_of_its_effects() -> None:
    move = claim(snapshot(released(OWNED)), "bob")

    assert move == Move(
        payload=Granted(
            room="repo-abcd",
            turn_id=2,
            lease_id="lease",
            reason="sequence",
            sender="ann",
            until=NOW_MS + POLICY.lease_ms,
        ),
        to=("bob",),
    )


def test_owner_gets_its_turn_while_its_lease_runs() -> None:
    live, over = snapshot(OWNED), snapshot(OWNED, NOW_MS + POLICY.lease_ms)

    assert unchanged(live, "ann") == NoChange(
        status="your_turn", reason="already_owner", look_again_ms=POLICY.lease_ms
    )
    for is_parked in (False, True):
        answer = unchanged(over, "ann", is_parked=is_parked)
        assert (answer.status, answer.reason) == ("not_yet", "lease_expired")
        assert "heartbeat" in answer.hint


def test_waiter_gets_the_time_of_the_next_check() -> None:
    assert unchanged(snapshot(OWNED), "bob") == NoChange(status="not_yet", look_again_ms=POLICY.lease_ms)


def test_stick_reserved_for_another_is_not_granted() -> None:
    room = released(OWNED, "bob")

    assert unchanged(snapshot(room), "cat") == NoChange(status="not_yet", look_again_ms=POLICY.claim_ms)
    assert unchanged(snapshot(room, LONG_MS + 1), "cat") == NoChange(status="not_yet", look_again_ms=0)


def test_parked_member_hears_only_of_a_handoff() -> None:
    assert unchanged(snapshot(IDLE), "bob", is_parked=True) == NoChange(status="not_yet")
    assert unchanged(snapshot(released(OWNED)), "bob", is_parked=True).reason == "auto_claim_disabled"


def test_without_solo_claims_a_member_waits_for_another_one() -> None:
    alone = snapshot(IDLE, bob=AWAY, cat=AWAY)

    assert unchanged(alone, "ann", allows_solo=False).reason == "solo_claim_disabled"
    assert isinstance(claim(alone, "ann"), Move)
    assert isinstance(claim(snapshot(IDLE), "ann", allows_solo=False), Move)


def test_closed_room_is_reported_and_non_members_are_refused() -> None:
    assert unchanged(snapshot(CLOSED), "ann") == NoChange(status="closed")
    with pytest.raises(UnknownMember):
        claim(snapshot(IDLE), "eve")


def test_last_owner_may_claim_again_when_no_other_member_wants_it() -> None:
    room = released(OWNED)

    assert unchanged(snapshot(room), "ann").reason == "prior_owner_cooldown"
    assert isinstance(claim(snapshot(room, bob=AWAY, cat=PARKED), "ann"), Move)
    assert isinstance(claim(snapshot(room, NOW_MS + POLICY.cooldown_ms), "ann"), Move)


def test_fairer_members_go_first_briefly_except_after_a_lapse() -> None:
    room = released(OWNED)
    late = released(OWNED, "bob")
    late = written(late, "x", _move(stick.expire(snapshot(late, LONG_MS), 1)), ts=NOW_MS)

    assert unchanged(snapshot(room), "cat").hint == "bob is before you in line."
    assert isinstance(claim(snapshot(room, bob=AWAY), "cat"), Move)
    assert isinstance(claim(snapshot(room, NOW_MS + POLICY.waiter_grace_ms), "cat"), Move)
    assert late.lapsed == "bob"
    assert isinstance(claim(snapshot(late), "cat"), Move)
    assert isinstance(claim(snapshot(late, cat=AWAY), "ann"), Move)


def _move(found: Move | None) -> Move:
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sights", "reserved_for"),
    [
        ({"bob": WAITS, "cat": WAITS}, "bob"),
        ({"bob": HERE, "cat": WAITS}, "cat"),
        ({"bob": PARKED, "cat": WAITS}, "cat"),
        ({"bob": AWAY, "cat": Sight(is_present=True, last_wait_ms=LONG_MS - POLICY.waiter_grace_ms)}, "cat"),
        ({"bob": AWAY, "cat": Sight(is_present=True, last_wait_ms=LONG_MS - POLICY.waiter_grace_ms - 1)}, ""),
        ({"bob": HERE, "cat": HERE}, ""),
    ],
)
def test_release_reserves_the_stick_for_the_fairest_waiter(
    sights: dict[str, Sight], reserved_for: str
) -> None:
    move = stick.release(snapshot(OWNED, LONG_MS, 0, **sights), "ann", 1, "lease", HANDOFF)

    assert freed(move).reserved_for == reserved_for
    assert freed(move).until == (LONG_MS + POLICY.claim_ms if reserved_for else 0)
    assert move.to == ((reserved_for,) if reserved_for else ())
    assert freed(move).handoff == HANDOFF


def test_member_that_just_joined_counts_as_waiting() -> None:
    move = stick.release(snapshot(OWNED, NOW_MS + POLICY.waiter_grace_ms), "ann", 1, "lease", HANDOFF)

    assert freed(move).reserved_for == "bob"


@pytest.mark.parametrize(
    ("room", "name", "turn", "lease", "code"),
    [
        (CLOSED, "ann", 1, "lease", "room_closed"),
        (OWNED, "eve", 1, "lease", "unknown_member"),
        (OWNED, "ann", 2, "lease", "turn_mismatch"),
        (OWNED, "bob", 2, "x", "turn_mismatch"),
        (OWNED, "ann", 1, "x", "stale_lease"),
        (released(OWNED), "ann", 1, "lease", "stale_lease"),
        (OWNED, "bob", 1, "lease", "not_owner"),
    ],
)
def test_only_the_owner_can_release_the_stick(
    room: Room, name: str, turn: int, lease: str, code: str
) -> None:
    now = snapshot(room)

    with pytest.raises(RequestError) as released_:
        stick.release(now, name, turn, lease, HANDOFF)
    with pytest.raises(RequestError) as passed:
        stick.pass_on(now, name, turn, lease, "cat", HANDOFF, is_override=False)

    assert (released_.value.code, passed.value.code) == (code, code)


def test_lease_of_another_member_is_refused() -> None:
    with pytest.raises(NotOwner):
        stick.check_holder(OWNED, "bob", 1, "lease")


def test_owner_cannot_park_with_the_stick() -> None:
    with pytest.raises(ParkRequiresRelease):
        claim(snapshot(OWNED), "ann", is_parked=True)


def test_pass_needs_a_present_recipient_or_an_override() -> None:
    away = snapshot(OWNED, bob=AWAY)

    with pytest.raises(RecipientUnreachable):
        stick.pass_on(away, "ann", 1, "lease", "bob", HANDOFF, is_override=False)
    move = stick.pass_on(away, "ann", 1, "lease", "bob", HANDOFF, is_override=True)

    found = claim(snapshot(written(OWNED, "ann", move)), "bob", is_parked=True)
    assert isinstance(found, Move)
    assert isinstance(found.payload, Granted)
    assert found.payload.reason == "direct_pass"


def test_stick_cannot_be_passed_to_oneself_or_a_non_member() -> None:
    def give(to: str) -> Move:
        return stick.pass_on(snapshot(OWNED), "ann", 1, "lease", to, HANDOFF, is_override=False)

    with pytest.raises(BadRequest):
        give("@ann")
    with pytest.raises(UnknownMember):
        give("eve")


@pytest.mark.parametrize(
    ("room", "error"),
    [(CLOSED, RoomClosed), (held_by(released(OWNED), "cat"), TurnMismatch), (IDLE, TurnMismatch)],
)
def test_takeover_needs_the_current_turn(room: Room, error: type[RequestError]) -> None:
    with pytest.raises(error):
        stick.take_over(snapshot(room), "bob", 1, "lease", "", is_override=True)


@pytest.mark.parametrize(
    ("room", "name", "error"),
    [
        (OWNED, "eve", UnknownMember),
        (OWNED, "ann", TakeoverIneligible),
        (OWNED, "bob", TakeoverNotAvailable),
        (released(OWNED), "bob", TakeoverNotAvailable),
        (released(OWNED, "bob"), "cat", TakeoverNotAvailable),
        (released(OWNED, "bob"), "bob", TakeoverIneligible),
    ],
)
def test_takeover_is_refused_before_it_is_available(room: Room, name: str, error: type[RequestError]) -> None:
    with pytest.raises(error):
        stick.take_over(snapshot(room), name, 1, "lease", "", is_override=False)


def test_previous_owner_lets_others_take_over_first() -> None:
    room = held_by(released(OWNED, "bob"), "bob")
    late = NOW_MS + POLICY.lease_ms

    assert unchanged(snapshot(room, late), "ann").status == "not_yet"
    assert unchanged(snapshot(room, late), "cat").status == "takeover_available"
    assert unchanged(snapshot(room, late, cat=AWAY), "ann").status == "takeover_available"
    with pytest.raises(TakeoverIneligible):
        stick.take_over(snapshot(room, late), "ann", 2, "lease", "", is_override=False)


def test_takeover_event_contains_all_of_its_effects() -> None:
    late = NOW_MS + POLICY.lease_ms

    move = stick.take_over(snapshot(OWNED, late), "bob", 1, "new", "stuck", is_override=False)

    assert move == Move(
        payload=TakenOver(
            room="repo-abcd",
            turn_id=2,
            lease_id="new",
            cause="owner_timeout",
            until=late + POLICY.lease_ms,
            reason="stuck",
        ),
        to=("ann",),
    )


def test_reservation_is_taken_over_with_its_handoff() -> None:
    room = released(OWNED, "bob")

    move = stick.take_over(snapshot(room, LONG_MS), "cat", 1, "new", "", is_override=False)
    taken = written(room, "cat", move)

    assert move.to == ("bob",)
    assert taken.brought == room.pending


def test_stick_of_an_exited_owner_goes_to_a_waiter_without_a_handoff() -> None:
    gone = Sight(gone_since_ms=NOW_MS)
    now = snapshot(OWNED, NOW_MS + POLICY.gone_grace_ms, ann=gone, cat=WAITS)

    move = stick.hand_on(now, 1, "harness_gone")

    assert move is not None
    assert move.payload == Released(
        room="repo-abcd",
        turn_id=1,
        reserved_for="cat",
        until=now.facts.now_ms + POLICY.claim_ms,
        reason="harness_gone",
        sender="ann",
    )
    assert written(OWNED, "[pal-events]", move).pending is None
    assert stick.hand_on(now, 2, "harness_gone") is None
    assert stick.hand_on(snapshot(OWNED), 1, "harness_gone") is None
    assert stick.hand_on(snapshot(IDLE), 0, "harness_gone") is None


def test_expired_reservation_goes_to_the_next_waiter() -> None:
    room = released(OWNED, "bob")
    now = snapshot(room, LONG_MS, bob=WAITS, cat=WAITS)

    move = stick.expire(now, 1)

    assert move is not None
    assert move.to == ("bob",)
    assert move.payload == ReservationExpired(
        room="repo-abcd", turn_id=1, reserved_for="cat", until=LONG_MS + POLICY.claim_ms, sender="ann"
    )
    assert stick.expire(now, 2) is None
    assert stick.expire(snapshot(room), 1) is None
    assert stick.expire(snapshot(IDLE), 0) is None
