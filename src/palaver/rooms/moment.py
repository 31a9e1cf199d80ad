"""What every decision about a room begins and ends with: a moment in which it is made, a move it comes to.

Pure. Nothing is decided here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from palaver.errors import UnknownMember
from palaver.model.message import HUMAN
from palaver.rooms.attendance import Facts
from palaver.rooms.fairness import first_in_line
from palaver.rooms.payloads import Payload
from palaver.rooms.policy import Policy
from palaver.rooms.room import Member, Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is to be written: the type, what it holds, and the other party."""

    type: str
    payload: Payload
    to: tuple[str, ...] = ()
    id: str = ""
    """The id that the event must have: a repeat is the same event. Otherwise a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is said where nothing is to be written. The fields mean what `Turn` says."""

    status: str
    reason: str = ""
    look_again_ms: int | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A room as somebody finds it, with what is known about now, and the limits."""

    room: Room
    facts: Facts
    policy: Policy

    def others(self, *names: str) -> Iterator[Member]:
        """Walk the members but these that are there and would take the stick if it lay free.

        A person would only while they wait: that they are in the room holds nobody up.
        """
        for member in self.room.members:
            sight = self.facts.of(member.name)
            is_willing = sight.is_waiting or member.name != HUMAN
            if member.name not in names and sight.is_present and not sight.is_parked and is_willing:
                yield member

    def next_waiter(self, giver: str, *names: str) -> Member | None:
        """Give the fairest member, but these, that waits or did so a moment ago."""
        waiters = [member for member in self.others(giver, *names) if self._has_waited(member)]
        return first_in_line(self.room, waiters, giver)

    def left_ms(self, moment_ms: int | None) -> int | None:
        """How long it is until a moment."""
        return None if moment_ms is None else max(0, moment_ms - self.facts.now_ms)

    def _has_waited(self, member: Member) -> bool:
        sight = self.facts.of(member.name)
        joined = max(sight.last_wait_ms or 0, member.joined_ms)
        return sight.is_waiting or self.facts.now_ms - joined <= self.policy.waiter_grace_ms


def member_of(room: Room, name: str) -> Member:
    """Look a member up by its full name; raises `UnknownMember`."""
    member = room.member(name)
    if member is None:
        raise UnknownMember(name, room.id)
    return member
