"""Requests about rooms, the stick and notes. Orders, not facts: nothing here has happened yet.

A room is named by its id, or by its short name if that is unique among open rooms, with or without `#`.
"""

from typing import Final

import msgspec

HARNESS_GONE: Final = "harness_gone"
INACTIVE: Final = "inactive"
KICKED: Final = "kicked"


class JoinRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Join the room of a workspace, or the nearest one above it; create one if there are no rooms there."""

    places: tuple[str, ...]
    """The canonical path first, then those above it, the nearest first."""
    inside: tuple[str, ...] = ()
    """Folders inside it, the deepest first: a nested room there is joined, but never created."""
    is_new: bool = False
    """Create a room at the workspace itself, even if there is one above it."""
    name_hint: str = ""
    """The displayed name of the room; its folder's name if empty."""


class LeaveRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Leave a room. An owner gives up the stick, without a handoff."""

    room: str
    reason: str = "left"


class KickMember(msgspec.Struct, frozen=True, kw_only=True):
    """Remove an absent member; with `is_forced`, which needs an operator, also a present one."""

    room: str
    target: str
    is_forced: bool = False
    reason: str = ""


class CloseRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Close a room. Its history stays readable."""

    room: str
    reason: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for the stick once: a waiting member asks again when something has changed."""

    room: str
    is_parked: bool = False
    """Take only a stick that is reserved for the caller."""
    allows_solo: bool = True
    """Take the stick also if no other member is present."""


class ReleaseStick(msgspec.Struct, frozen=True, kw_only=True):
    """Release the stick for the waiting member that is next by fairness."""

    room: str
    turn: int
    lease: str
    handoff: dict[str, object]


class PassStick(msgspec.Struct, frozen=True, kw_only=True):
    """Pass the stick to a member by name; with `is_override`, for operators, also to an absent one."""

    room: str
    turn: int
    lease: str
    to: str
    handoff: dict[str, object]
    is_override: bool = False


class TakeOver(msgspec.Struct, frozen=True, kw_only=True):
    """Take the stick from an owner whose time is over; with `is_override`, for operators, from any owner."""

    room: str
    turn: int
    reason: str
    is_override: bool = False


class AddNote(msgspec.Struct, frozen=True, kw_only=True):
    """Add a lasting note, about a turn or about none."""

    room: str
    text: str
    turn: int | None = None


class ResolveNote(msgspec.Struct, frozen=True, kw_only=True):
    """Resolve a note. `note` is its id, or an end of it that is unique in the room."""

    room: str
    note: str


class HandOn(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of this turn has certainly exited: the stick moves on. Only for the bus."""

    room: str
    turn: int
    reason: str = HARNESS_GONE


class ExpireReservation(msgspec.Struct, frozen=True, kw_only=True):
    """The reservation after this turn was not claimed: the stick is free again. Only for the bus."""

    room: str
    turn: int


class RetireMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member has been absent for too long and is removed. Only for the bus."""

    room: str
    member: str
    reason: str = INACTIVE


class TellKick(msgspec.Struct, frozen=True, kw_only=True):
    """Announce once that a member was removed. Changes nothing. Only for the bus."""

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
