"""The rooms in the state, and functions to read them. Pure; `rooms.apply` applies events.

room          every room, by id; closed ones too
room.at       the newest room at each path
room.count    the number of rooms that had a base
room.open     the open rooms: `<short name>/<id>`
room.of       memberships: `<agent>/<id>`
room.former   members that left, in case they return: `<id>/<agent>`
note          every note: `<room>/<id>`
note.open     the unresolved notes
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from palaver.errors import AmbiguousRecipient, InvalidCursor, NotFound, RoomNotFound
from palaver.log.api import Change, Rows
from palaver.log.walk import PAGE, walk
from palaver.model.envelope import Event
from palaver.model.mail import decode_count, encode_row
from palaver.rooms.apply import apply_to_room
from palaver.rooms.notes import Note, note_from, page_size, resolved
from palaver.rooms.payloads import NoteAdded, NoteResolved
from palaver.rooms.room import Member, Room

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
_LEAST_ALIKE: Final = 0.5

_decode_room: Final = msgspec.json.Decoder(Room).decode
_decode_member: Final = msgspec.json.Decoder(Member).decode
_decode_note: Final = msgspec.json.Decoder(Note).decode


def fold_room(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of an event to its room; raise an error that the fold skips for an invalid event."""
    id_ = str(event.payload["room"])
    before = read_room(rows, id_)
    value = rows.get(FORMER, f"{id_}/{event.sender}")
    after = apply_to_room(before, event, None if value is None else _decode_member(value))
    changes: list[Change] = [(ROOMS, id_, encode_row(after))]
    if before is None:
        changes += _opened(rows, after)
    changes += _moved(before, after)
    if not after.is_open:
        changes.append((OPEN_ROOMS, _open_key(after), None))
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
    alike = difflib.get_close_matches(wanted, words, _NEAREST, _LEAST_ALIKE)
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


def _rooms(rows: Rows, table: str, prefix: str) -> Iterator[Room]:
    for key, _ in walk(rows, table, prefix):
        room = read_room(rows, key.rpartition("/")[2])
        assert room is not None  # one event wrote both
        yield room


def add_note(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a new note."""
    note = note_from(event, msgspec.convert(event.payload, NoteAdded))
    key = f"{note.room}/{note.id}"
    is_new = rows.get(NOTES, key) is None and "/" not in note.id
    if not is_new or read_room(rows, note.room) is None:
        raise ValueError(note.id)
    return [(NOTES, key, encode_row(note)), (OPEN_NOTES, key, b"")]


def resolve_note(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a resolved note."""
    payload = msgspec.convert(event.payload, NoteResolved)
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
    wanted = word.removeprefix("#").upper()
    if (note := read_note(rows, room, wanted)) is not None:
        return note
    found = []
    if len(wanted) >= _SHORTEST_END:
        found = [value for key, value in walk(rows, NOTES, f"{room}/") if key.endswith(wanted)]
    if len(found) != 1:
        raise NotFound(
            f"note {word} in {room}", "several notes match; write more characters" if found else ""
        )
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
    behind = f"{room}/{after}" if after else ""
    found = []
    for key, _ in rows.scan(table, f"{room}/", after=behind, limit=page_size(limit)):
        note = read_note(rows, room, key.rpartition("/")[2])
        assert note is not None  # one event wrote both
        found.append(note)
    return found
