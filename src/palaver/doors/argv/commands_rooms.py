"""`pal room` and `pal note`: read the options, call the service for rooms, and show the result."""

from palaver.broker.outcome import Written
from palaver.doors.argv.call import Call
from palaver.doors.argv.room_page import join_lines, note_lines, room_table, short_id, state_lines
from palaver.doors.argv.table_rooms import DEFAULT_NOTES
from palaver.doors.desk import Answer
from palaver.errors import BadRequest, RoomNotFound, UsageError
from palaver.links.environment import read_home
from palaver.model.room import LeaveRoom
from palaver.model.text import LIMIT_BODY_BYTES


async def room_of(call: Call, path: str = "") -> str:
    """Return the room of a command: the named one, the one at or above a path, or the caller's room.

    The caller's room is the one that it is in at the current directory, else the only one that it is in.
    """
    if (named := call.parsed.value("--room")) is not None:
        if path:
            raise UsageError("--room and PATH both say which room: leave one out")
        return await named_room(call, named)
    return await _room_at(call, path) if path else await _own_room(call)


async def room_here_or_named(call: Call, path: str = "") -> str:
    """Return the room to close or to remove a member from: one in another workspace only if it was named."""
    return await room_of(call, path or ("" if call.parsed.has("--room") else "."))


async def named_room(call: Call, word: str) -> str:
    """Return the room that `--room` names: for a path the room at or above it, else the name as it is."""
    is_path = "/" in word or word.startswith(".")
    return await _room_at(call, word) if is_path else word


async def _room_at(call: Call, path: str) -> str:
    where = call.absolute(path)
    room = await call.services.desk.room_here(call.caller, where) or await room_of_repeat(call)
    if room is None:
        raise RoomNotFound(f"at {where} or above it")
    return room


async def _own_room(call: Call) -> str:
    desk, where = call.services.desk, call.absolute(".")
    room = await desk.own_room_here(call.caller, where) or await room_of_repeat(call)
    room = room or await desk.room_meant(call.caller, where)
    if room is None:
        raise RoomNotFound(f"at {where} or above it, and you are in no other")
    return room


async def room_of_repeat(call: Call) -> str | None:
    """Return the room in which this same request was already done; None if it was not.

    A client that lost the daemon repeats its request. It must not be refused because it succeeded before.
    """
    done = await call.services.broker.outcome(LeaveRoom, call.asked.key)
    event = done.event if isinstance(done, Written) else None
    return None if event is None else str(event.payload["room"])


async def text_from_stdin(call: Call, limit_bytes: int) -> str:
    """Let the client read its standard input; raise BadRequest if it is not UTF-8."""
    try:
        return (await call.connection.read_stdin(limit_bytes)).decode()
    except UnicodeDecodeError:
        raise BadRequest("standard input is not UTF-8; nothing was done") from None


async def join(call: Call) -> int:
    """Make the caller a member of the room at a path."""
    answer = await call.services.desk.join_path(
        call.caller,
        context_path=call.absolute(_path(call)),
        force_new=call.parsed.has("--new"),
        home=read_home(call.connection.peer.pid),
        key=call.asked.key,
    )
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say_lines(join_lines(call, answer))
    return 0


async def leave(call: Call) -> int:
    """End the caller's membership in a room."""
    room = await room_of(call, _path(call, ""))
    answer = await call.services.desk.leave_room(call.caller, room_id=room, key=call.asked.key)
    return await _said(call, answer, f"you have left {room}")


async def list_rooms(call: Call) -> int:
    """Show all rooms, or the rooms around a path."""
    path = _path(call, "")
    answer = await call.services.desk.list_rooms(
        call.caller,
        context_path=call.absolute(path) if path else None,
        include_closed=call.parsed.has("--all"),
    )
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say_lines(room_table(call, answer))
    return 0


async def state(call: Call) -> int:
    """Show the present state of one room."""
    answer = await call.services.desk.get_room_state(
        call.caller, room_id=await room_of(call, _path(call, ""))
    )
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say_lines(state_lines(call, answer))
    return 0


async def kick(call: Call) -> int:
    """Remove a member."""
    name, *rest = call.parsed.positionals
    room = await room_here_or_named(call, rest[0] if rest else "")
    answer = await call.services.desk.kick_member(
        call.caller,
        room_id=room,
        target_agent_id=name,
        force=call.parsed.has("--force"),
        reason=call.parsed.value("--reason") or "",
        key=call.asked.key,
    )
    had_it = "; the stick is free" if answer.get("target_was_owner") else ""
    return await _said(call, answer, f"{answer.get('target_agent_id', name)} was removed from {room}{had_it}")


async def close(call: Call) -> int:
    """Close a room permanently."""
    room = await room_here_or_named(call, _path(call, ""))
    answer = await call.services.desk.close_room(
        call.caller, room_id=room, reason=call.parsed.value("--reason") or "", key=call.asked.key
    )
    return await _said(call, answer, f"{room} is closed; what happened in it stays readable")


async def add_note(call: Call) -> int:
    """Add a note to a room."""
    room = await room_of(call)
    turn = call.parsed.number("--turn")
    answer = await call.services.desk.add_note(
        call.caller, room_id=room, body=await _text(call), turn_id=turn, key=call.asked.key
    )
    return await _said(call, answer, f"note {short_id(str(answer['note_id']))} is kept in {room}")


async def list_notes(call: Call) -> int:
    """Show the notes of a room."""
    limit = call.parsed.number("--limit", least=1)
    answer = await call.services.desk.list_notes(
        call.caller,
        room_id=await room_of(call),
        after_note_id=call.parsed.value("--after"),
        include_resolved=call.parsed.has("--all"),
        limit=DEFAULT_NOTES if limit is None else limit,
    )
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say_lines(note_lines(call, answer))
    return 0


async def resolve_note(call: Call) -> int:
    """Mark a note as resolved."""
    answer = await call.services.desk.resolve_note(
        call.caller,
        room_id=await room_of(call),
        note_id=call.parsed.positionals[0],
        key=call.asked.key,
    )
    return await _said(call, answer, f"note {short_id(str(answer['note_id']))} is resolved")


def _path(call: Call, otherwise: str = ".") -> str:
    return call.parsed.positionals[0] if call.parsed.positionals else otherwise


async def _text(call: Call) -> str:
    words = call.parsed.positionals
    if call.parsed.has("--stdin") == bool(words):
        raise UsageError("a note has one text: pal note add TEXT, or --stdin to read it")
    return words[0] if words else await text_from_stdin(call, LIMIT_BODY_BYTES)


async def _said(call: Call, answer: Answer, sentence: str) -> int:
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say(call.safe(sentence))
    return 0
