"""Notes: lasting remarks in a room, open until they are resolved. Pure."""

from typing import Final

import msgspec

from palaver.errors import BodyTooLarge, InvalidBody
from palaver.model.envelope import Event
from palaver.model.text import check_text
from palaver.rooms.payloads import NoteAdded

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
