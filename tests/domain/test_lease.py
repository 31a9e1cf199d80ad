"""Time limits cause conditions; conditions permit actions but perform none."""

from dataclasses import replace

import pytest
from tests.domain.room_parts import HERE, NOW_MS, POLICY, event, held_by, released, room_of, snapshot

from palaver.domain.stick import (
    Cause,
    RoomSnapshot,
    Sight,
    conditions,
    gone_at_ms,
    is_gone,
    lease_until_ms,
    outlook,
    reservation_until_ms,
    retires_at_ms,
)
from palaver.state.rooms import apply_to_room

LEASE = POLICY.lease_ms
GRACE = POLICY.gone_grace_ms
IDLE = POLICY.owner_idle_ms
OWNED = held_by(room_of("ann", "bob"), "ann")
RESERVED = released(OWNED, "bob")
AWAY = Sight()


def shown(now: RoomSnapshot) -> list[str]:
    return [*conditions(now.room, now.facts, now.policy)]


def outlook_of(now: RoomSnapshot) -> tuple[Cause | None, int | None]:
    found = outlook(now.room, now.facts, now.policy)
    return found.cause, found.changes_ms


@pytest.mark.parametrize(
    ("sight", "started_ms", "until_ms"),
    [
        (AWAY, 0, NOW_MS + LEASE),
        (Sight(beat_ms=NOW_MS + 5), 0, NOW_MS + 5 + LEASE),
        (Sight(beat_ms=NOW_MS - 5), 0, NOW_MS + LEASE),
        (Sight(seen_ms=NOW_MS + 7, is_present=True), 0, NOW_MS + 7 + LEASE),
        (Sight(seen_ms=NOW_MS + 7), 0, NOW_MS + LEASE),
        (AWAY, NOW_MS + 9, NOW_MS + 9 + LEASE),
        (Sight(token_ms=NOW_MS + 11), 0, NOW_MS + 11 + LEASE),
        (Sight(is_active=True), 0, NOW_MS + LEASE),
    ],
)
def test_lease_restarts_with_each_sign_of_a_present_owner(
    sight: Sight, started_ms: int, until_ms: int
) -> None:
    now = snapshot(OWNED, started_ms=started_ms, ann=sight)

    assert lease_until_ms(now.room, now.facts, now.policy) == until_ms


def test_active_owner_always_has_a_full_lease() -> None:
    later = NOW_MS + 10 * LEASE
    now = snapshot(OWNED, later, ann=Sight(is_present=True, is_active=True))

    assert lease_until_ms(now.room, now.facts, now.policy) == later + LEASE
    assert shown(now) == []


@pytest.mark.parametrize(
    ("sight", "started_ms", "gone_ms"),
    [
        (Sight(is_present=True), 0, None),
        (AWAY, 0, None),
        (Sight(is_present=True, gone_since_ms=1, token_ms=NOW_MS), 0, NOW_MS + LEASE),
        (Sight(gone_since_ms=1, token_ms=1), 0, NOW_MS + GRACE),
        (Sight(gone_since_ms=NOW_MS + 1), 0, NOW_MS + 1 + GRACE),
        (Sight(gone_since_ms=1), 0, NOW_MS + GRACE),
        (Sight(gone_since_ms=1, seen_ms=NOW_MS + 2), 0, NOW_MS + 2 + GRACE),
        (Sight(gone_since_ms=1, beat_ms=NOW_MS + 3), 0, NOW_MS + 3 + GRACE),
        (Sight(gone_since_ms=1), NOW_MS + 4, NOW_MS + GRACE),
        (Sight(gone_since_ms=1), NOW_MS + GRACE, NOW_MS + GRACE + POLICY.waiter_grace_ms),
    ],
)
def test_owner_counts_as_exited_a_grace_after_its_last_sign(
    sight: Sight, started_ms: int, gone_ms: int | None
) -> None:
    now = snapshot(OWNED, started_ms=started_ms, ann=sight)

    assert gone_at_ms(now.room, "ann", now.facts, now.policy) == gone_ms


@pytest.mark.parametrize(
    ("sight", "started_ms", "retires_ms"),
    [
        (HERE, 0, None),
        (Sight(gone_since_ms=NOW_MS), 0, NOW_MS + POLICY.presence_ms),
        (Sight(gone_since_ms=NOW_MS), NOW_MS + 4, NOW_MS + POLICY.presence_ms),
        (Sight(gone_since_ms=1, token_ms=NOW_MS), 0, NOW_MS + LEASE - GRACE + POLICY.presence_ms),
        (Sight(gone_since_ms=1), NOW_MS + POLICY.presence_ms, NOW_MS + POLICY.presence_ms + 10_000),
    ],
)
def test_absent_member_is_removed_on_time_despite_restarts(
    sight: Sight, started_ms: int, retires_ms: int | None
) -> None:
    now = snapshot(room_of("ann", "bob"), started_ms=started_ms, bob=sight)

    assert retires_at_ms(now.room, "bob", now.facts, now.policy) == retires_ms


def test_restart_does_not_extend_a_short_grace() -> None:
    now = snapshot(OWNED, started_ms=NOW_MS, bob=Sight(gone_since_ms=1))
    short = replace(POLICY, heartbeat_ms=500)

    assert gone_at_ms(now.room, "bob", now.facts, short) == NOW_MS + 1_000


def test_member_counts_as_exited_from_the_end_of_its_grace() -> None:
    gone = Sight(gone_since_ms=NOW_MS)
    before, after = (snapshot(OWNED, NOW_MS + GRACE + step, bob=gone) for step in (-1, 0))

    assert not is_gone(before.room, "bob", before.facts, before.policy)
    assert is_gone(after.room, "bob", after.facts, after.policy)


def test_reservation_ends_with_its_time_or_its_recipient() -> None:
    here, gone = snapshot(RESERVED), snapshot(RESERVED, bob=Sight(gone_since_ms=NOW_MS))

    assert reservation_until_ms(here.room, here.facts, here.policy) == NOW_MS + POLICY.claim_ms
    assert reservation_until_ms(gone.room, gone.facts, gone.policy) == NOW_MS + GRACE


@pytest.mark.parametrize(
    ("after_ms", "sight", "expected"),
    [
        (0, AWAY, (None, NOW_MS + LEASE)),
        (LEASE, AWAY, (Cause.OWNER_TIMEOUT, None)),
        (0, Sight(gone_since_ms=1), (None, NOW_MS + GRACE)),
        (GRACE, Sight(gone_since_ms=1), (Cause.OWNER_GONE, NOW_MS + LEASE)),
        (LEASE, Sight(gone_since_ms=1), (Cause.OWNER_GONE, None)),
        (0, Sight(idle_since_ms=1), (None, NOW_MS + POLICY.owner_idle_ms)),
        (POLICY.owner_idle_ms, Sight(idle_since_ms=1), (Cause.OWNER_IDLE, NOW_MS + LEASE)),
        (
            POLICY.owner_idle_ms,
            Sight(idle_since_ms=1, seen_ms=NOW_MS + 1),
            (None, NOW_MS + 1 + POLICY.owner_idle_ms),
        ),
    ],
)
def test_owner_can_lose_the_stick_for_each_cause(
    after_ms: int, sight: Sight, expected: tuple[Cause | None, int | None]
) -> None:
    assert outlook_of(snapshot(OWNED, NOW_MS + after_ms, ann=sight)) == expected


def test_reservation_can_be_taken_over_late_and_a_free_stick_never() -> None:
    assert outlook_of(snapshot(RESERVED)) == (None, NOW_MS + POLICY.claim_ms)
    assert outlook_of(snapshot(RESERVED, NOW_MS + POLICY.claim_ms)) == (Cause.CLAIM_TIMEOUT, None)
    assert outlook_of(snapshot(room_of("ann"))) == (None, None)


def test_all_conditions_of_a_room_are_listed() -> None:
    late = NOW_MS + LEASE

    assert shown(snapshot(OWNED)) == []
    assert shown(snapshot(OWNED, late, ann=Sight(is_present=True))) == ["stale_owner"]
    gone = Sight(gone_since_ms=1, idle_since_ms=1)
    assert shown(snapshot(OWNED, late, ann=gone)) == ["stale_owner", "owner_gone", "owner_idle"]
    assert shown(snapshot(RESERVED)) == []
    assert shown(snapshot(RESERVED, late, bob=Sight(gone_since_ms=1))) == ["recipient_gone"]
    assert shown(snapshot(room_of("ann"), ann=AWAY)) == ["dormant"]


@pytest.mark.parametrize(
    ("after_ms", "sight", "is_shown"),
    [
        (0, Sight(gone_since_ms=NOW_MS), True),
        (GRACE - 1, Sight(gone_since_ms=NOW_MS), True),
        (GRACE, Sight(gone_since_ms=NOW_MS), True),
        (5, Sight(gone_since_ms=NOW_MS, seen_ms=NOW_MS + 5), True),
        (0, Sight(), False),
        (0, Sight(gone_since_ms=NOW_MS, token_ms=NOW_MS), False),
        (LEASE - GRACE, Sight(gone_since_ms=NOW_MS, token_ms=NOW_MS), True),
    ],
)
def test_exit_is_shown_before_a_takeover_is_possible(after_ms: int, sight: Sight, is_shown: bool) -> None:
    owned = snapshot(OWNED, NOW_MS + after_ms, ann=sight)
    reserved = snapshot(RESERVED, NOW_MS + after_ms, bob=sight)

    assert ("owner_gone" in shown(owned)) is is_shown
    assert ("recipient_gone" in shown(reserved)) is is_shown
    assert (outlook_of(owned)[0] == Cause.OWNER_GONE) is (after_ms == GRACE)
    assert (outlook_of(reserved)[0] == Cause.CLAIM_TIMEOUT) is (after_ms >= GRACE)


def test_closed_room_is_not_dormant() -> None:
    closed = apply_to_room(room_of("ann"), event("close", "human"))

    assert shown(snapshot(closed, ann=AWAY)) == []
