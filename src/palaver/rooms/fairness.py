"""Choose the next owner: never had the stick, then longest ago, then in circular order. Pure."""

from collections.abc import Iterable

from palaver.rooms.room import Member, Room


def rank(member: Member, after: int, size: int) -> tuple[int, int]:
    """Return the rank of a member; the lowest is next.

    `after` is the ordinal of the releasing owner, -1 for none; `size` is larger than every ordinal.
    """
    return member.last_turn, (member.ordinal - after - 1) % size


def fairest(members: Iterable[Member], *, after: int, size: int) -> Member | None:
    """Return the member that is next."""
    return min(members, key=lambda member: rank(member, after, size), default=None)


def first_in_line(room: Room, members: Iterable[Member], giver: str) -> Member | None:
    """Return the member that is next among some members of a room, counted from the releasing owner."""
    return fairest(members, after=_ordinal(room, giver), size=room.next_ordinal)


def is_before(room: Room, one: Member, other: Member) -> bool:
    """Return whether one member comes before another, counted from the last owner."""
    after, size = _ordinal(room, room.prior_owner), room.next_ordinal
    return rank(one, after, size) < rank(other, after, size)


def _ordinal(room: Room, name: str) -> int:
    member = room.member(name)
    return -1 if member is None else member.ordinal
