"""Rooms in the state: workspace, members, stick, notes. Their rows, their fold and their queries. Pure."""

import enum
import hashlib
import re
from base64 import b32encode
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from palaver.errors import (
    AmbiguousRecipient,
    BadName,
    BodyTooLarge,
    InvalidBody,
    InvalidCursor,
    NotFound,
    RoomNotFound,
    UnknownMember,
    cut_name,
    nearest,
)
from palaver.protocol import events as payloads
from palaver.protocol.agents import split_name
from palaver.protocol.envelope import Event, body_as, room_id_of
from palaver.protocol.events import (
    IRC_LEVELS,
    Closed,
    Freed,
    Granted,
    Kicked,
    MemberJoined,
    MemberLeft,
    NoteAdded,
    NoteResolved,
    Passed,
    Released,
    ReservationExpired,
    RoomBody,
    SettingChanged,
    TakenOver,
)
from palaver.protocol.query import fold_channel
from palaver.protocol.text import check_text
from palaver.state.rows import Change, Rows, decode_count, encode_row
from palaver.state.watches import PAGE, walk

# --------------------
# A room as stored: its workspace, its members and its stick. Values only.
#
# Presence, waits and the remaining lease are not part of it: see `MemberPresence` and `conditions` in
# `domain/stick.py`. Times are Unix milliseconds, 0 for never.


class StickState(enum.StrEnum):
    """The state of the stick."""

    IDLE = "idle"
    OWNED = "owned"
    RESERVED = "reserved"
    CLOSED = "closed"


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a room. A member that returns keeps its ordinal and its turns."""

    name: str
    ordinal: int
    """Its position in the circular order: the order of first joining."""
    harness: str = ""
    joined_ms: int = 0
    last_turn: int = 0
    """The number of its last turn; 0 if it never had one."""
    last_owned_ms: int = 0
    """When its last turn started."""


class Handover(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The notes from one owner to the next: the author, the event and the content."""

    by: str
    seq: int
    """The seq of the event that contains it."""
    fields: dict[str, object]


class Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One room. All text defaults are empty: a row must be read exactly as it was written."""

    id: str
    base: str
    """The id of the first room at this path: decisions are committed on `stick/<base>`."""
    path: str
    name: str
    """The folder name, as people see it."""
    made_ms: int
    seq: int
    """The seq of the event that created it."""
    state: str
    members: tuple[Member, ...] = ()
    """In circular order."""
    next_ordinal: int = 0
    turn: int = 0
    """The number of turns so far."""
    owner: str = ""
    lease: str = ""
    lease_until_ms: int = 0
    """When the lease ends if it is not renewed."""
    claimed_ms: int = 0
    brought: Handover | None = None
    """The handoff that the current owner received."""
    reserved_for: str = ""
    is_direct: bool = False
    """The stick was passed to `reserved_for` by name."""
    claim_until_ms: int = 0
    pending: Handover | None = None
    """The handoff for the next owner, also before the next owner is known."""
    prior_owner: str = ""
    """The member that last released, passed or lost the stick."""
    idle_since_ms: int = 0
    """When the stick became free or reserved; 0 while it is owned, and before its first turn."""
    lapsed: str = ""
    """The recipient of the last expired reservation."""
    closed_ms: int = 0

    @property
    def is_open(self) -> bool:
        return self.state != StickState.CLOSED

    @property
    def slug(self) -> str:
        """The short name: the base without its hash."""
        return self.base.rpartition("-")[0]

    @property
    def names(self) -> Iterator[str]:
        """The names of the members, in circular order."""
        return (member.name for member in self.members)

    def member(self, name: str) -> Member | None:
        """Return a member by its full name."""
        return next((member for member in self.members if member.name == name), None)


# --------------------
# Room ids, and finding a member by name. Pure.

_LIMIT_SLUG: Final = 32
_NO_SLUG: Final = re.compile(r"[^a-z0-9_]+")
_HASH_CHARACTERS: Final = 4
_BASE: Final = re.compile(r"[a-z0-9_-]+-[a-z2-7]{4}")
_NUMBER: Final = re.compile(r"(-[1-9][0-9]{0,8})?", re.ASCII)


def folder_name(path: str) -> str:
    """Return the last part of a path, or the whole path if it has no parts."""
    return path.rstrip("/").rpartition("/")[2] or path


def room_base(path: str) -> str:
    """Return the id of the first room at a path: the folder name in lower case and a hash of the path."""
    # `strip` comes after the cut, which may leave a hyphen at the end: one hyphen must divide slug and hash.
    slug = _NO_SLUG.sub("-", folder_name(path).lower())[:_LIMIT_SLUG].strip("-") or "room"
    # The hash separates folders of the same name. It is part of the stored ids, so it must never change.
    digest = b32encode(hashlib.sha256(path.encode()).digest()).decode().lower()
    return f"{slug}-{digest[:_HASH_CHARACTERS]}"


def room_id(base: str, number: int) -> str:
    """Return the id of the room with this number and base, counted from 1."""
    return base if number == 1 else f"{base}-{number}"


def check_room_id(id: str, base: str) -> None:
    """Raise ValueError for an id and a base that `room_base` and `room_id` cannot have made."""
    number = id.removeprefix(base)
    if not _BASE.fullmatch(base) or not id.startswith(base) or not _NUMBER.fullmatch(number):
        raise ValueError(f"{id!r} is not the id of a room")


def find_member(room: Room, word: str, is_present: Callable[[str], bool], *, asking: str = "") -> Member:
    """Find the one member with a full name, base name or harness, with or without `@`.

    A base name or harness never selects the member that is `asking`. If several others match, it selects the
    one that is present. Raises `AmbiguousRecipient` with the candidates, and `UnknownMember`.
    """
    # A full name is exact, so it may select the caller: the caller then gets the fitting error.
    wanted = _folded(word)
    if (member := room.member(wanted)) is not None:
        return member
    others = [member for member in room.members if member.name != asking]
    found = [member for member in others if _base(member.name) == wanted]
    found = found or [member for member in others if wanted and member.harness.lower() == wanted]
    if len(found) > 1:
        found = [member for member in found if is_present(member.name)] or found
    if len(found) > 1:
        raise AmbiguousRecipient(word, [member.name for member in found])
    if not found:
        raise UnknownMember(word, room.id)
    return found[0]


def _folded(word: str) -> str:
    """Return a name as stored: lower case, with the device in upper case."""
    name, colon, device = word.removeprefix("@").partition(":")
    return name.lower() + colon + device.upper()


def _base(name: str) -> str:
    try:
        return split_name(name).base
    except BadName:  # Names from the log can be invalid.
        return name


# --------------------
# Notes: lasting remarks in a room, open until they are resolved. Pure.

LIMIT_LIST: Final = 200


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One note. Times are Unix milliseconds, 0 for not yet."""

    id: str
    room: str
    by: str
    ts: int
    seq: int
    text: str
    turn_id: int | None = None
    resolved_ms: int = 0
    resolved_by: str = ""

    @property
    def is_open(self) -> bool:
        return not self.resolved_ms


def checked_note(text: str, limit_bytes: int) -> str:
    """Return the text of a note as it is stored, without surrounding blanks.

    Raises `InvalidBody` for an empty note, `BadText` and `BodyTooLarge`.
    """
    trimmed = text.strip()
    if not trimmed:
        raise InvalidBody("a note needs a text")
    # Only for its characters: no text is larger than four bytes each. The size has its own error below.
    check_text(trimmed, "the note", 4 * len(trimmed))
    size_bytes = len(trimmed.encode())
    if size_bytes > limit_bytes:
        raise BodyTooLarge(size_bytes, limit_bytes)
    return trimmed


def note_from(event: Event, payload: NoteAdded) -> Note:
    """Return the note that an event adds."""
    return Note(
        id=payload.note,
        room=payload.room,
        by=event.sender,
        ts=event.ts,
        seq=event.seq,
        text=payload.text,
        turn_id=payload.turn_id,
    )


def resolved(note: Note, event: Event) -> Note:
    """Return a resolved note; raises ValueError if it is resolved already."""
    if not note.is_open:
        raise ValueError(f"{note.id} is settled")
    return msgspec.structs.replace(note, resolved_ms=event.ts, resolved_by=event.sender)


def page_size(limit: int) -> int:
    """Return the number of notes in a list for a requested limit."""
    return max(1, min(limit, LIMIT_LIST))


# --------------------
# Apply events to a room. Pure and strict: an event that does not fit the room raises ValueError.
#
# So each turn has one owner, and only the owner passes the stick on, whatever the log contains.


def apply_to_room(room: Room | None, event: Event, former: Member | None = None) -> Room:
    """Return the room after an event; `former` is the earlier membership of a joining agent.

    Raises ValueError, TypeError or a msgspec error for an event that cannot have happened.
    """
    payload = body_as(event, RoomBody)
    if isinstance(payload, MemberJoined):
        return _joined(room or _made(event, payload), event, payload, former)
    if room is None or not room.is_open:
        raise ValueError(f"no open room {payload.room}")
    return _APPLY[event.type](room, event, payload)


def _made(event: Event, payload: MemberJoined) -> Room:
    check_room_id(payload.room, payload.base)
    return Room(
        id=payload.room,
        base=payload.base,
        path=payload.path,
        name=payload.name,
        made_ms=event.ts,
        seq=event.seq,
        state=StickState.IDLE.value,
    )


def _joined(room: Room, event: Event, payload: MemberJoined, former: Member | None) -> Room:
    if not room.is_open or room.member(event.sender) is not None:
        raise ValueError(f"{event.sender} cannot join {room.id}")
    # With its former ordinal and turns: otherwise leaving and joining would put a member first in line.
    if former is not None:
        back = replace(former, joined_ms=event.ts, harness=payload.harness)
        members = sorted((*room.members, back), key=lambda member: member.ordinal)
        return replace(room, members=tuple(members))
    # An ordinal is never used again, so that the order of members is unique.
    ordinal = room.next_ordinal
    new = Member(name=event.sender, ordinal=ordinal, harness=payload.harness, joined_ms=event.ts)
    return replace(room, members=(*room.members, new), next_ordinal=ordinal + 1)


def _left(room: Room, event: Event, payload: MemberLeft) -> Room:
    if payload.kick:
        return room  # The kick removed the member already, and it may have joined again.
    return _without(room, payload.member or event.sender, event.ts)


def _kicked(room: Room, event: Event, payload: Kicked) -> Room:
    # Here and below the unpacking raises ValueError unless there is exactly one recipient, as in a valid
    # event.
    (target,) = event.to
    return _without(room, target, event.ts)


def _without(room: Room, name: str, ts: int) -> Room:
    """Remove a member. The turn of an owner ends with it; the handoff of a reservation stays for the next."""
    if room.member(name) is None:
        raise ValueError(f"{name} is not in {room.id}")
    left = replace(room, members=tuple(member for member in room.members if member.name != name))
    if name == room.owner:
        return _free_stick(left, giver=name, ts=ts)
    if name == room.reserved_for:
        return _free_stick(left, giver=room.prior_owner, ts=ts, pending=room.pending)
    return left


def _closed(room: Room, event: Event, payload: Closed) -> Room:
    free = _free_stick(room, giver=room.owner or room.prior_owner, ts=event.ts, pending=room.pending)
    return replace(free, state=StickState.CLOSED.value, closed_ms=event.ts)


def _claimed(room: Room, event: Event, payload: Granted) -> Room:
    (grantee,) = event.to
    if room.state == StickState.OWNED or room.reserved_for not in ("", grantee):
        raise ValueError(f"{grantee} cannot claim turn {payload.turn_id} of {room.id}")
    return _holds(room, grantee, event, payload)


def _taken_over(room: Room, event: Event, payload: TakenOver) -> Room:
    (revoked,) = event.to
    if revoked not in (room.owner, room.reserved_for) or revoked == event.sender:
        raise ValueError(f"{revoked} has nothing to lose in {room.id}")
    # An owner that loses the stick counts as the last owner. The recipient of a reservation never owned it.
    return _holds(replace(room, prior_owner=room.owner or room.prior_owner), event.sender, event, payload)


def _holds(room: Room, grantee: str, event: Event, payload: Granted | TakenOver) -> Room:
    member = room.member(grantee)
    if member is None or payload.turn_id != room.turn + 1:
        raise ValueError(f"turn {payload.turn_id} of {room.id} is not {grantee}'s")
    holder = replace(member, last_turn=payload.turn_id, last_owned_ms=event.ts)
    # From the free state, so that nothing of an earlier owner or reservation is left.
    return replace(
        _free_stick(room, giver=room.prior_owner, ts=0),
        members=tuple(holder if one.name == grantee else one for one in room.members),
        state=StickState.OWNED.value,
        turn=payload.turn_id,
        owner=grantee,
        lease=payload.lease_id,
        lease_until_ms=payload.until,
        claimed_ms=event.ts,
        brought=room.pending,
    )


def _released(room: Room, event: Event, payload: Released) -> Room:
    """Apply a release. If the bus releases the stick for an exited owner, there is no handoff."""
    return _given_up(room, event, payload, giver=payload.sender or event.sender)


def _passed(room: Room, event: Event, payload: Passed) -> Room:
    return _given_up(room, event, payload, giver=event.sender)


def _given_up(room: Room, event: Event, payload: Released | Passed, *, giver: str) -> Room:
    if giver != room.owner or payload.turn_id != room.turn:
        raise ValueError(f"{giver} has not the stick of {room.id}")
    left = None
    if payload.handoff is not None:
        left = Handover(by=giver, seq=event.seq, fields=payload.handoff)
    return _is_next(room, event, payload, giver=giver, pending=left)


def _lapsed(room: Room, event: Event, payload: ReservationExpired) -> Room:
    (late,) = event.to
    if late != room.reserved_for or payload.turn_id != room.turn:
        raise ValueError(f"nothing is reserved for {late} in {room.id}")
    freed = _is_next(room, event, payload, giver=room.prior_owner, pending=room.pending)
    return replace(freed, lapsed=late)


def _is_next(room: Room, event: Event, payload: Freed, *, giver: str, pending: Handover | None) -> Room:
    free = _free_stick(room, giver=giver, ts=event.ts, pending=pending)
    if not payload.reserved_for:
        return free
    # `room` is the state before the event: the member that gives up the stick cannot also be the next one.
    if room.member(payload.reserved_for) is None or payload.reserved_for == room.owner:
        raise ValueError(f"{payload.reserved_for} cannot be next in {room.id}")
    return replace(
        free,
        state=StickState.RESERVED.value,
        reserved_for=payload.reserved_for,
        is_direct=isinstance(payload, Passed),
        claim_until_ms=payload.until,
    )


def _free_stick(room: Room, *, giver: str, ts: int, pending: Handover | None = None) -> Room:
    """Free the stick: it has no owner and is not reserved."""
    return replace(
        room,
        state=StickState.IDLE.value,
        owner="",
        lease="",
        lease_until_ms=0,
        claimed_ms=0,
        brought=None,
        reserved_for="",
        is_direct=False,
        claim_until_ms=0,
        pending=pending,
        prior_owner=giver,
        idle_since_ms=ts,
        lapsed="",
    )


_APPLY: Final[Mapping[str, Callable[..., Room]]] = {
    payloads.MEMBER_LEFT: _left,
    payloads.KICK: _kicked,
    payloads.CLOSE: _closed,
    payloads.CLAIM: _claimed,
    payloads.TAKEOVER: _taken_over,
    payloads.RELEASE: _released,
    payloads.PASS: _passed,
    payloads.RESERVATION_EXPIRED: _lapsed,
}

# --------------------
# The rooms in the state, and functions to read them. Pure; the functions below apply events.
#
# room          every room, by id; closed ones too
# room.at       the newest room at each path
# room.count    the number of rooms that had a base
# room.open     the open rooms: `<short name>/<id>`
# room.of       memberships: `<agent>/<id>`
# room.former   members that left, in case they return: `<id>/<agent>`
# note          every note: `<room>/<id>`
# note.open     the unresolved notes

ROOMS: Final = "room"
ROOM_AT: Final = "room.at"
ROOM_COUNT: Final = "room.count"
OPEN_ROOMS: Final = "room.open"
MEMBERSHIPS: Final = "room.of"
FORMER: Final = "room.former"
NOTES: Final = "note"
OPEN_NOTES: Final = "note.open"

_SHORTEST_END: Final = 4
_NEAREST: Final = 3

_decode_room: Final = msgspec.json.Decoder(Room).decode
_decode_member: Final = msgspec.json.Decoder(Member).decode
_decode_note: Final = msgspec.json.Decoder(Note).decode


def fold_room(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of an event to its room; raise an error that the fold skips for an invalid event."""
    id_ = room_id_of(event)
    if id_ is None:
        raise ValueError("room")
    before = read_room(rows, id_)
    value = rows.get(FORMER, f"{id_}/{event.sender}")
    after = apply_to_room(before, event, None if value is None else _decode_member(value))
    changes: list[Change] = [(ROOMS, id_, encode_row(after))]
    if before is None:
        changes += _opened(rows, after)
    changes += _moved(before, after)
    # The members stay in the room's own row, as a part of its history.
    if not after.is_open:
        changes.append((OPEN_ROOMS, _open_key(after), None))
        # Otherwise a closed room would still be among the rooms of its members.
        changes += [(MEMBERSHIPS, f"{name}/{id_}", None) for name in after.names]
    return changes


def _opened(rows: Rows, room: Room) -> list[Change]:
    return [
        (ROOM_AT, room.path, room.id.encode()),
        (ROOM_COUNT, room.base, encode_row(count_rooms(rows, room.base) + 1)),
        (OPEN_ROOMS, _open_key(room), b""),
    ]


def _moved(before: Room | None, after: Room) -> list[Change]:
    """Return the changes of memberships. A member that left is kept as former until it returns."""
    old = {} if before is None else {member.name: member for member in before.members}
    changes: list[Change] = []
    for member in after.members:
        if member.name not in old:
            changes += [
                (MEMBERSHIPS, f"{member.name}/{after.id}", b""),
                (FORMER, f"{after.id}/{member.name}", None),
            ]
    for name in old.keys() - set(after.names):
        changes += [
            (MEMBERSHIPS, f"{name}/{after.id}", None),
            (FORMER, f"{after.id}/{name}", encode_row(old[name])),
        ]
    return changes


def _open_key(room: Room) -> str:
    return f"{room.slug}/{room.id}"


def read_room(rows: Rows, id: str) -> Room | None:
    """Return a room by its id, or None."""
    value = rows.get(ROOMS, id)
    return None if value is None else _decode_room(value)


def read_room_at(rows: Rows, path: str) -> Room | None:
    """Return the newest room at a canonical path, open or closed, or None."""
    value = rows.get(ROOM_AT, path)
    return None if value is None else read_room(rows, value.decode())


def count_rooms(rows: Rows, base: str) -> int:
    """Return how many rooms have had a base so far."""
    value = rows.get(ROOM_COUNT, base)
    return 0 if value is None else decode_count(value)


def find_room(rows: Rows, word: str) -> Room:
    """Return the room with this id, or with a short name that only one open room has.

    Raises `RoomNotFound`, and `AmbiguousRecipient` with the ids.
    """
    wanted = word.removeprefix("#").lower()
    if (room := read_room(rows, wanted)) is not None:
        return room
    found = [key.rpartition("/")[2] for key, _ in rows.scan(OPEN_ROOMS, f"{wanted}/", limit=PAGE)]
    if len(found) > 1:
        raise AmbiguousRecipient(f"#{wanted}", found)
    only = read_room(rows, found[0]) if found else None
    if only is None:
        raise RoomNotFound(word)
    return only


def find_past_room(rows: Rows, word: str) -> Room:
    """Return a room like `find_room`, or a closed one if no other room has had that short name.

    Raises `AmbiguousRecipient` with the ids, and `RoomNotFound` with the most similar ones.
    """
    try:
        return find_room(rows, word)
    except RoomNotFound:
        wanted = word.removeprefix("#").lower()
    # Every room is read, which is slow, but only for a name that no open room has.
    known = {room.id: room for room in read_all_rooms(rows)}
    found = [room for room in known.values() if room.slug == wanted]
    if len(found) > 1:
        raise AmbiguousRecipient(f"#{wanted}", [room.id for room in found])
    if not found:
        raise RoomNotFound(word, _nearest(wanted, known))
    return found[0]


def _nearest(wanted: str, known: Mapping[str, Room]) -> list[str]:
    """Return the ids that are most similar to a word, or whose short names are; the best first."""
    words: dict[str, str] = {}
    for id_, room in known.items():
        words |= {id_: id_, room.slug: words.get(room.slug, id_)}
    alike = nearest(wanted, words, _NEAREST)
    return list(dict.fromkeys(words[word] for word in alike))


def read_open_rooms(rows: Rows) -> Iterator[Room]:
    """Iterate over the open rooms, by name."""
    return _rooms(rows, OPEN_ROOMS, "")


def read_all_rooms(rows: Rows) -> Iterator[Room]:
    """Iterate over all rooms that ever existed, by id."""
    return (_decode_room(value) for _, value in walk(rows, ROOMS, ""))


def read_rooms_of(rows: Rows, agent: str) -> Iterator[Room]:
    """Iterate over the open rooms of which an agent is a member."""
    return _rooms(rows, MEMBERSHIPS, f"{agent}/")


def read_memberships(rows: Rows, agent: str = "") -> dict[str, tuple[str, ...]]:
    """Return the ids of the open rooms of one agent, or of every agent that is in a room."""
    found: dict[str, tuple[str, ...]] = {}
    for key, _ in walk(rows, MEMBERSHIPS, f"{agent}/" if agent else ""):
        name, _, id_ = key.rpartition("/")
        found[name] = (*found.get(name, ()), id_)
    return found


def _rooms(rows: Rows, table: str, prefix: str) -> Iterator[Room]:
    for key, _ in walk(rows, table, prefix):
        room = read_room(rows, key.rpartition("/")[2])
        assert room is not None  # one event wrote both
        yield room


def add_note(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a new note."""
    note = note_from(event, body_as(event, NoteAdded))
    key = f"{note.room}/{note.id}"
    # Keys are split at their last slash, so an id with a slash could not be read back.
    is_new = rows.get(NOTES, key) is None and "/" not in note.id
    if not is_new or read_room(rows, note.room) is None:
        raise ValueError(note.id)
    return [(NOTES, key, encode_row(note)), (OPEN_NOTES, key, b"")]


def resolve_note(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a resolved note."""
    payload = body_as(event, NoteResolved)
    key = f"{payload.room}/{payload.note}"
    note = read_note(rows, payload.room, payload.note)
    if note is None:
        raise ValueError(payload.note)
    return [(NOTES, key, encode_row(resolved(note, event))), (OPEN_NOTES, key, None)]


def read_note(rows: Rows, room: str, id: str) -> Note | None:
    """Return a note by its complete id, or None."""
    value = rows.get(NOTES, f"{room}/{id}")
    return None if value is None else _decode_note(value)


def find_note(rows: Rows, room: str, word: str) -> Note:
    """Return the note of a room by its id, or by an end of the id that is unique in the room.

    Raises `NotFound`, also if several ids have this end.
    """
    # Ids are ULIDs, which are written in capitals.
    wanted = word.removeprefix("#").upper()
    if (note := read_note(rows, room, wanted)) is not None:
        return note
    found = []
    if len(wanted) >= _SHORTEST_END:
        found = [value for key, value in walk(rows, NOTES, f"{room}/") if key.endswith(wanted)]
    if len(found) != 1:
        hint = "several notes match; write more characters" if found else "'pal note list' shows the notes"
        raise NotFound(f"note {cut_name(word)} in {room}", hint)
    return _decode_note(found[0])


def read_notes(
    rows: Rows, room: str, *, after: str = "", include_resolved: bool = False, limit: int = 50
) -> list[Note]:
    """Return a room's notes, oldest first, after a note; raise `InvalidCursor` if that does not exist.

    At least one and at most two hundred at once.
    """
    if after and read_note(rows, room, after) is None:
        raise InvalidCursor(after)
    table = NOTES if include_resolved else OPEN_NOTES
    start_key = f"{room}/{after}" if after else ""
    found = []
    for key, _ in rows.scan(table, f"{room}/", after=start_key, limit=page_size(limit)):
        note = read_note(rows, room, key.rpartition("/")[2])
        assert note is not None  # one event wrote both
        found.append(note)
    return found


# --------------------
# IRC channels: how much their notices show, and their topics.

IRC_VERBOSITY: Final = "irc_verbosity"
IRC_TOPIC: Final = "irc_topic"
_AGENT_CHANNEL: Final = "#agent-"


def fold_irc_level(setting: SettingChanged) -> list[Change]:
    """Return the changes of a new level of a channel."""
    if not setting.channel or setting.value not in IRC_LEVELS:
        raise ValueError(setting.key)
    return [(IRC_VERBOSITY, setting.channel, encode_row(setting.value))]


def read_irc_level(rows: Rows, channel: str) -> str:
    """Return how much the notices of an IRC channel, written in any case, show: one of `IRC_LEVELS`."""
    name = fold_channel(channel)
    if (value := rows.get(IRC_VERBOSITY, name)) is not None:
        return msgspec.json.decode(value, type=str)
    if name == "#general":
        return "minimal"
    return "full" if name.startswith(_AGENT_CHANNEL) else "actions"


def read_irc_levels(rows: Rows) -> dict[str, str]:
    """Return the level of each channel that has another one than the default, or had one, by name."""
    return {name: msgspec.json.decode(value, type=str) for name, value in walk(rows, IRC_VERBOSITY, "")}


class IrcTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The topic of an IRC channel that a client has set."""

    text: str
    by: str
    """The sender that set it."""
    ts: int


def fold_irc_topic(event: Event, setting: SettingChanged) -> list[Change]:
    """Return the changes of a new topic of a channel. An empty topic removes it."""
    if not setting.channel or not isinstance(setting.value, str):
        raise ValueError(setting.key)
    topic = IrcTopic(text=setting.value, by=event.sender, ts=event.ts)
    return [(IRC_TOPIC, setting.channel, encode_row(topic) if topic.text else None)]


def read_irc_topic(rows: Rows, channel: str) -> IrcTopic | None:
    """Return the topic that a client has set in an IRC channel, written in any case; None without one."""
    value = rows.get(IRC_TOPIC, fold_channel(channel))
    return None if value is None else msgspec.json.decode(value, type=IrcTopic)
