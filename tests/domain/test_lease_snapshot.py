"""A room snapshot: candidates for the stick, recent waiters, and the remaining time."""

import pytest
from tests.domain.room_parts import NOW_MS, POLICY, room_of, snapshot

from palaver.domain.stick import Sight, member_of
from palaver.errors import UnknownMember

ROOM = room_of("ann", "bob", "cid")
LATER_MS = NOW_MS + 2 * POLICY.waiter_grace_ms


def test_absent_or_parked_members_would_not_take_the_stick() -> None:
    now = snapshot(ROOM, bob=Sight(), cid=Sight(is_present=True, is_parked=True))

    assert [member.name for member in now.others()] == ["ann"]
    assert list(now.others("ann")) == []


@pytest.mark.parametrize(
    ("sight", "is_next"),
    [
        (Sight(is_present=True), False),
        (Sight(is_present=True, is_waiting=True), True),
        (Sight(is_present=True, last_wait_ms=LATER_MS - POLICY.waiter_grace_ms), True),
        (Sight(is_present=True, last_wait_ms=LATER_MS - POLICY.waiter_grace_ms - 1), False),
        (Sight(is_waiting=True), False),
    ],
    ids=["only-here", "waits", "waited", "waited-long-ago", "away"],
)
def test_current_or_recent_waiter_is_next(sight: Sight, is_next: bool) -> None:
    now = snapshot(ROOM, LATER_MS, bob=sight, cid=Sight())

    found = now.next_waiter("ann")

    assert (found is not None) == is_next


def test_remaining_time_is_zero_when_over_and_none_without_a_limit() -> None:
    now = snapshot(ROOM)

    assert [now.left_ms(at) for at in (None, NOW_MS + 5, NOW_MS, NOW_MS - 5)] == [None, 5, 0, 0]


def test_only_a_member_is_found() -> None:
    assert member_of(ROOM, "ann").name == "ann"
    with pytest.raises(UnknownMember):
        member_of(ROOM, "eve")
