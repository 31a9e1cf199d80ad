"""What can be asked about rooms, the stick and notes. Orders, not facts: nothing here has happened yet.

A room is meant by its id, or by its short name when one open room alone has it, with or without `#` before.
"""

from typing import Final

import msgspec

HARNESS_GONE: Final = "harness_gone"
INACTIVE: Final = "inactive"
KICKED: Final = "kicked"


class JoinRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Become a member of the room at a place, or of the nearest one above it; without any, make one there."""

    places: tuple[str, ...]
    """The canonical path first, then those above it, the nearest first."""
    inside: tuple[str, ...] = ()
    """Folders in it, the deepest first: a room that was nested there is joined, and none is made."""
    is_new: bool = False
    """Make a room at the place itself, also where there is one above it."""
    name_hint: str = ""
    """What people see as the room's name; its folder's name when empty."""


class LeaveRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Be a member no longer. Who holds the stick gives it up, without a hand-over."""

    room: str
    reason: str = "left"


class KickMember(msgspec.Struct, frozen=True, kw_only=True):
    """Remove a member that is gone; with `is_forced`, which needs an operator, also one that is there."""

    room: str
    target: str
    is_forced: bool = False
    reason: str = ""


class CloseRoom(msgspec.Struct, frozen=True, kw_only=True):
    """End a room. Its history stays readable."""

    room: str
    reason: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for the stick, once: whoever waits asks again when something has changed."""

    room: str
    is_parked: bool = False
    """Take only what is reserved for the caller."""
    allows_solo: bool = True
    """Take the stick also when nobody else is there."""


class ReleaseStick(msgspec.Struct, frozen=True, kw_only=True):
    """Give the stick up, for the fairest one that waits."""

    room: str
    turn: int
    lease: str
    handoff: dict[str, object]


class PassStick(msgspec.Struct, frozen=True, kw_only=True):
    """Give the stick to a member by name; with `is_override`, which needs an operator, also to one away."""

    room: str
    turn: int
    lease: str
    to: str
    handoff: dict[str, object]
    is_override: bool = False


class TakeOver(msgspec.Struct, frozen=True, kw_only=True):
    """Take the stick from one who has run out of time; with `is_override`, an operator's, from anybody."""

    room: str
    turn: int
    reason: str
    is_override: bool = False


class AddNote(msgspec.Struct, frozen=True, kw_only=True):
    """Leave a note that lasts, about a turn or about none."""

    room: str
    text: str
    turn: int | None = None


class ResolveNote(msgspec.Struct, frozen=True, kw_only=True):
    """Say that a note is settled. `note` is its id, or an end of it that no other note of the room has."""

    room: str
    note: str


class HandOn(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of this turn is surely gone: the stick goes on. The bus's own."""

    room: str
    turn: int
    reason: str = HARNESS_GONE


class ExpireReservation(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody has claimed what was reserved behind this turn: it goes back in line. The bus's own."""

    room: str
    turn: int


class RetireMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member has been gone for so long that it is one no more. The bus's own."""

    room: str
    member: str
    reason: str = INACTIVE


class TellKick(msgspec.Struct, frozen=True, kw_only=True):
    """A member was removed: those who listen for leaves hear of it, once. Changes nothing. The bus's own."""

    room: str
    member: str
    kick: str
    """The id of the event."""


RoomRequest = (
    JoinRoom
    | LeaveRoom
    | KickMember
    | CloseRoom
    | Claim
    | ReleaseStick
    | PassStick
    | TakeOver
    | AddNote
    | ResolveNote
    | HandOn
    | ExpireReservation
    | RetireMember
    | TellKick
)
