"""The input and output of decisions about a room: a `Moment`, and a `Move` or an `Answer`.

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
    """An event to write: its type, its payload and the other party."""

    type: str
    payload: Payload
    to: tuple[str, ...] = ()
    id: str = ""
    """The id that the event must have, so that a repeat is the same event. Empty for a new id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A result without an event to write. The fields have the meaning of `Turn`."""

    status: str
    reason: str = ""
    look_again_ms: int | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A room with the facts about its members and the limits, at one time."""

    room: Room
    facts: Facts
    policy: Policy

    def others(self, *names: str) -> Iterator[Member]:
        """Yield the present members, except these, that would take a free stick.

        A person counts only while waiting: a person in the room does not delay others.
        """
        for member in self.room.members:
            sight = self.facts.of(member.name)
            is_willing = sight.is_waiting or member.name != HUMAN
            if member.name not in names and sight.is_present and not sight.is_parked and is_willing:
                yield member

    def next_waiter(self, giver: str, *names: str) -> Member | None:
        """Return the fairest member, except these, that waits or waited recently."""
        waiters = [member for member in self.others(giver, *names) if self._has_waited(member)]
        return first_in_line(self.room, waiters, giver)

    def left_ms(self, moment_ms: int | None) -> int | None:
        """Return the time until a moment, at least 0; None for None."""
        return None if moment_ms is None else max(0, moment_ms - self.facts.now_ms)

    def _has_waited(self, member: Member) -> bool:
        sight = self.facts.of(member.name)
        joined = max(sight.last_wait_ms or 0, member.joined_ms)
        return sight.is_waiting or self.facts.now_ms - joined <= self.policy.waiter_grace_ms


def member_of(room: Room, name: str) -> Member:
    """Return a member by its full name; raises `UnknownMember`."""
    member = room.member(name)
    if member is None:
        raise UnknownMember(name, room.id)
    return member
