"""Payloads of room events, one struct per kind. Pure.

They contain outcomes, such as the next owner and a time limit, so that `apply` needs no clock, setting or
presence.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from palaver.model.envelope import Event

MEMBER_JOINED: Final = "member_joined"
MEMBER_LEFT: Final = "member_left"
KICK: Final = "kick"
CLOSE: Final = "close"
CLAIM: Final = "claim"
TAKEOVER: Final = "takeover"
RELEASE: Final = "release"
PASS: Final = "pass"  # noqa: S105 - a type of event
RESERVATION_EXPIRED: Final = "reservation_expired"
NOTE_ADDED: Final = "note_added"
NOTE_RESOLVED: Final = "note_resolved"

ROOM_TYPES: Final = frozenset(
    {MEMBER_JOINED, MEMBER_LEFT, KICK, CLOSE, CLAIM, TAKEOVER, RELEASE, PASS, RESERVATION_EXPIRED}
)
"""Event types that change a room; notes are stored separately."""


class MemberJoined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sender is a member; the first member creates the room."""

    room: str
    base: str
    path: str
    name: str
    harness: str = ""


class MemberLeft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member has left: the sender, or the named member if the bus writes the event.

    With `kick` the member was removed by that event already, and this one only notifies agents that wait for
    leaves.
    """

    room: str
    reason: str
    member: str | None = msgspec.field(default=None, name="from")
    kick: str = ""
    """The id of the kick."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kick of the member in `to`, or a close."""

    room: str
    reason: str = ""


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: the member in `to` owns the stick. `from` is the previous owner, if any."""

    room: str
    turn_id: int
    lease_id: str
    reason: str
    sender: str | None = msgspec.field(name="from")
    until: int


class TakenOver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A takeover: the sender owns the stick, the member in `to` has lost it; `cause` is the reason."""

    room: str
    turn_id: int
    lease_id: str
    cause: str
    until: int
    reason: str = ""


class Freed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release, a pass, or an expired reservation, with the next recipient and its time limit.

    `from` is the previous owner if the bus writes the event for it.
    """

    room: str
    turn_id: int
    handoff: dict[str, object] | None = None
    reserved_for: str = ""
    until: int = 0
    reason: str = ""
    sender: str | None = msgspec.field(default=None, name="from")


class NoteAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note of the sender."""

    room: str
    note: str
    text: str
    turn_id: int | None = None


class NoteResolved(msgspec.Struct, frozen=True, kw_only=True):
    """The sender has resolved a note."""

    room: str
    note: str


Payload = MemberJoined | MemberLeft | Ended | Granted | TakenOver | Freed | NoteAdded | NoteResolved


def payload_of(payload: Payload) -> dict[str, object]:
    """Encode a payload; the pair of `read_payload`."""
    made: dict[str, object] = msgspec.to_builtins(payload)
    return made


_KINDS: Final[Mapping[str, type[Payload]]] = {
    MEMBER_JOINED: MemberJoined,
    MEMBER_LEFT: MemberLeft,
    KICK: Ended,
    CLOSE: Ended,
    CLAIM: Granted,
    TAKEOVER: TakenOver,
    RELEASE: Freed,
    PASS: Freed,
    RESERVATION_EXPIRED: Freed,
    NOTE_ADDED: NoteAdded,
    NOTE_RESOLVED: NoteResolved,
}


def read_payload(event: Event) -> Payload:
    """Decode the payload of a room event; raises a msgspec error, and KeyError for another type."""
    return msgspec.convert(event.payload, _KINDS[event.type])
