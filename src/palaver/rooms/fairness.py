"""Who is next: who never held the stick, then who held it longest ago; equals go round the circle. Pure."""

from collections.abc import Iterable

from palaver.rooms.room import Member, Room


def rank(member: Member, after: int, size: int) -> tuple[int, int]:
    """Tell how a member stands in line, the smallest first.

    `after` is the ordinal of whoever gave the stick up, -1 for nobody; `size` is larger than every ordinal.
    """
    return member.last_turn, (member.ordinal - after - 1) % size


def fairest(members: Iterable[Member], *, after: int, size: int) -> Member | None:
    """Give the first in line."""
    return min(members, key=lambda member: rank(member, after, size), default=None)


def first_in_line(room: Room, members: Iterable[Member], giver: str) -> Member | None:
    """Give the first in line among some members of a room, behind the one who gives the stick up."""
    return fairest(members, after=_ordinal(room, giver), size=room.next_ordinal)


def is_before(room: Room, one: Member, other: Member) -> bool:
    """Tell whether one member stands before another, behind the one who gave the stick up last."""
    after, size = _ordinal(room, room.prior_owner), room.next_ordinal
    return rank(one, after, size) < rank(other, after, size)


def _ordinal(room: Room, name: str) -> int:
    member = room.member(name)
    return -1 if member is None else member.ordinal
