"""Notes: added by members that may write in a room, resolved once."""

from palaver.broker.context import Context
from palaver.broker.outcome import Written
from palaver.broker.room_moves import stick_key
from palaver.broker.rooms import check_may_write
from palaver.errors import BadRequest, RoomClosed
from palaver.log.api import Rows
from palaver.log.fold_rooms import find_note, find_room, read_note, read_room
from palaver.model.agent import Caller
from palaver.model.envelope import Draft
from palaver.model.room import AddNote, ResolveNote
from palaver.rooms.notes import checked_note
from palaver.rooms.payloads import NOTE_ADDED, NOTE_RESOLVED, NoteAdded, NoteResolved, Payload, payload_of


async def add(context: Context, caller: Caller, request: AddNote, key: bytes | None) -> Written:
    """Store a note. Its id is that of its event."""
    text = checked_note(request.text, context.policy.note_bytes)
    if request.turn is not None and request.turn < 0:
        raise BadRequest("a turn is a number of 0 or more")
    room = find_room(context.log.rows, request.room)
    id_ = context.ids.next()
    payload = NoteAdded(room=room.id, note=id_, text=text, turn_id=request.turn)
    draft = _draft(context, caller, NOTE_ADDED, payload, id_)

    def decide(rows: Rows) -> Draft:
        _check(rows, room.id, caller)
        return draft

    # On the room's key: no note is written after the room was closed.
    return Written(event=(await context.log.commit(stick_key(room.base), decide, request_key=key)).event)


async def resolve(context: Context, caller: Caller, request: ResolveNote, key: bytes | None) -> Written:
    """Write that a note is resolved; nothing if it already is."""
    room = find_room(context.log.rows, request.room)
    _check(context.log.rows, room.id, caller)
    note = find_note(context.log.rows, room.id, request.note)
    payload = NoteResolved(room=room.id, note=note.id)
    draft = _draft(context, caller, NOTE_RESOLVED, payload, context.ids.next())

    def decide(rows: Rows) -> Draft | None:
        _check(rows, room.id, caller)
        known = read_note(rows, room.id, note.id)
        return draft if known is not None and known.is_open else None

    return Written(event=(await context.log.commit(f"note/{note.id}", decide, request_key=key)).event)


def _check(rows: Rows, id: str, caller: Caller) -> None:
    room = read_room(rows, id)
    assert room is not None  # it was found just now, and rooms are never removed
    if not room.is_open:
        raise RoomClosed(id)
    check_may_write(room, caller)


def _draft(context: Context, caller: Caller, type: str, payload: Payload, id: str) -> Draft:
    return Draft(
        type=type,
        sender=caller.name,
        payload=payload_of(payload),
        id=id,
        ts=context.clock.now_ms(),
        by=caller.by,
    )
