"""What the events of rooms hold, each as one struct that is written and read. Pure.

They carry outcomes: who is next and until when, so that `apply` needs no clock, setting or presence.
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
"""What changes a room; notes lie beside it."""


class MemberJoined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sender is a member; the first one makes the room."""

    room: str
    base: str
    path: str
    name: str
    harness: str = ""


class MemberLeft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member is none any more: the sender, or the one that is named where the bus says it.

    With `kick` it was one until that event, and this only tells those who listen for leaves.
    """

    room: str
    reason: str
    member: str | None = msgspec.field(default=None, name="from")
    kick: str = ""
    """The id of the kick."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kick, of the one in `to`, or a close."""

    room: str
    reason: str = ""


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: the one in `to` holds the stick. `from` is who gave it up last, if anybody."""

    room: str
    turn_id: int
    lease_id: str
    reason: str
    sender: str | None = msgspec.field(name="from")
    until: int


class TakenOver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A takeover: the sender holds the stick, the one in `to` has lost it; `cause` is why it could."""

    room: str
    turn_id: int
    lease_id: str
    cause: str
    until: int
    reason: str = ""


class Freed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A release, a pass, or a reservation that ran out: for whom the stick is now, and until when.

    `from` is who gave it up, where the bus says it in its place.
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
    """The sender says that a note is settled."""

    room: str
    note: str


Payload = MemberJoined | MemberLeft | Ended | Granted | TakenOver | Freed | NoteAdded | NoteResolved


def payload_of(payload: Payload) -> dict[str, object]:
    """Write a payload; the pair of `read_payload`."""
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
    """Read what an event of a room holds; raises what msgspec raises, and KeyError for another type."""
    return msgspec.convert(event.payload, _KINDS[event.type])
