"""Who is looked at when something is decided about a room."""

import pytest
from tests.rooms.parts import HERE, held_by, moment, room_of

from palaver.errors import UnknownMember
from palaver.rooms.attendance import Sight
from palaver.rooms.moment import member_of

WAITS = Sight(is_present=True, is_waiting=True)
PARKED = Sight(is_present=True, is_parked=True)


def test_the_others_are_those_who_are_there_and_would_take_the_stick() -> None:
    found = moment(room_of("ann", "bob", "cat", "dan"), cat=PARKED, dan=Sight())

    assert [member.name for member in found.others("ann")] == ["bob"]


def test_a_person_is_one_of_them_only_while_they_wait() -> None:
    room = room_of("ann", "human")

    assert [one.name for one in moment(room, ann=HERE, human=HERE).others("ann")] == []
    assert [one.name for one in moment(room, ann=HERE, human=WAITS).others("ann")] == ["human"]


def test_the_stick_is_never_kept_for_a_person_who_only_came_in() -> None:
    found = moment(held_by(room_of("ann", "human"), "ann"), ann=HERE, human=HERE)

    assert found.next_waiter("ann") is None


def test_time_that_is_left_is_never_negative() -> None:
    found = moment(room_of("ann"))

    assert found.left_ms(None) is None
    assert found.left_ms(found.facts.now_ms + 5) == 5
    assert found.left_ms(found.facts.now_ms - 5) == 0


def test_one_who_is_no_member_is_refused() -> None:
    with pytest.raises(UnknownMember):
        member_of(room_of("ann"), "bob")
