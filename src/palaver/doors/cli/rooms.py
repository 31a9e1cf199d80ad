"""The commands about rooms: their members, the stick, notes and handoffs."""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from palaver.doors.cli.call import (
    EXIT_NOTHING,
    EXIT_REFUSED,
    Call,
    room_here_or_named,
    room_of,
    room_of_repeat,
)
from palaver.doors.cli.spec import Command, Option, Parsed, Positional, relative_time, timeout_ms
from palaver.errors import BadRequest, InvalidHandoff, NotOwner, RoomClosed, StaleLease, UsageError
from palaver.harness.marks import harness_of
from palaver.identity.process import read_home
from palaver.protocol.display import Column, Paint, display_width, lay_out, paint_for, truncate
from palaver.protocol.message import handoff_parts, short_id
from palaver.protocol.query import RoomEvent
from palaver.protocol.text import LIMIT_BODY_BYTES
from palaver.services.results import (
    DeniedTurn,
    FreedStick,
    GrantedTurn,
    LeaseView,
    MemberView,
    NoteView,
    RoomLine,
    RoomView,
    ServiceResult,
    StickView,
    TurnView,
)
from palaver.state.rooms import find_room

# --------------------
# Rows of the commands about rooms, their notes and their chat.

DEFAULT_NOTES: Final = 50
"""How many notes `pal note list` shows."""

_ROOMS: Final = "Rooms"
_NOTES: Final = "Notes"

ROOM: Final = Option(
    name="--room",
    metavar="ROOM",
    help="Room of 'pal room list', or a path (default: yours here).",
    completes="rooms",
)
"""The room of a command, if it is not the one of the working directory."""

_PATH: Final = Positional(
    name="PATH",
    help="Folder or file in the workspace (default: here).",
    optional=True,
    completes="directories",
)
_NOTE_ID: Final = Positional(
    name="NOTE", help="Note of 'pal note list', or the end of its long id.", completes="notes"
)

ROOM_COMMANDS: Final = (
    Command(
        path=("room",),
        group=_ROOMS,
        summary="Share a workspace with other agents.",
        description=(
            "A room is the group of agents that work in one folder. Its members see each other, exchange "
            "messages, take turns with the stick and keep notes."
        ),
        is_group=True,
        examples=(
            ("pal room join", "join the room of the working directory"),
            ("pal room state", "show members and the owner of the stick"),
        ),
        see=(("rooms", "rooms.md"),),
    ),
    Command(
        path=("room", "join"),
        group=_ROOMS,
        summary="Join the room of a workspace.",
        description=(
            "A room belongs to a folder: the top of a git repository, or the nearest folder that looks like "
            "a project. Worktrees share the room of the main checkout. If a parent folder already has a "
            "room, you join that one; otherwise a new room is opened. With --new, a room is opened at "
            "exactly this folder, and agents that work below it belong to it from then on."
        ),
        positionals=(_PATH,),
        options=(Option(name="--new", help="Open a room at this folder, even inside another room."),),
        examples=(
            ("pal room join", "join the room of the working directory"),
            ("pal room join services/api --new", "open a separate room for a subfolder"),
        ),
    ),
    Command(
        path=("room", "leave"),
        group=_ROOMS,
        summary="Leave a room.",
        description="If you own the stick, it becomes free, without a handoff. History and notes are kept.",
        positionals=(_PATH,),
        options=(ROOM,),
        examples=(("pal room leave", "leave the room of the working directory"),),
    ),
    Command(
        path=("room", "list"),
        group=_ROOMS,
        summary="List rooms.",
        description=(
            "Lists the open rooms, or the rooms of a path and its parent folders. Your rooms are marked "
            "with a star."
        ),
        positionals=(
            Positional(
                name="PATH",
                help="Rooms of this path and its parents (default: all rooms).",
                optional=True,
                completes="directories",
            ),
        ),
        options=(Option(name="--all", help="Include closed rooms."),),
        examples=(
            ("pal room list", "open rooms"),
            ("pal room list .", "rooms of this folder"),
            ("pal room list --all", "also closed rooms"),
        ),
    ),
    Command(
        path=("room", "state"),
        group=_ROOMS,
        summary="Show a room's members and the owner of its stick.",
        description=(
            "Shows the members, the waiting members, the owner of the stick and its lease, unusual "
            "conditions, and a waiting handoff."
        ),
        positionals=(_PATH,),
        options=(ROOM,),
        examples=(
            ("pal room state", "the room of the working directory"),
            ("pal room state --room palaver-x7qa", "another room"),
        ),
    ),
    Command(
        path=("room", "kick"),
        group=_ROOMS,
        summary="Remove a member from a room.",
        description=(
            "Every member can remove a member that is offline. A present member can be removed only with "
            "--force, by an operator or a person."
        ),
        positionals=(Positional(name="NAME", help="The member to remove.", completes="agents"), _PATH),
        options=(
            Option(name="--force", help="Also remove a present member."),
            Option(name="--reason", metavar="TEXT", help="The reason, for the log."),
            ROOM,
        ),
        examples=(('pal room kick nova --reason "machine is off"', "remove an offline member"),),
    ),
    Command(
        path=("room", "close"),
        group=_ROOMS,
        summary="Close a room permanently.",
        description=(
            "The history stays readable. An agent that joins at the same path later opens a new room. For an "
            "operator or a person. A person at a terminal is asked first."
        ),
        positionals=(_PATH,),
        options=(
            Option(name="--reason", metavar="TEXT", help="The reason, for the log."),
            Option(name="--yes", help="Do not ask."),
            ROOM,
        ),
        examples=(("pal room close", "close the room of the working directory"),),
    ),
)

NOTE_COMMANDS: Final = (
    Command(
        path=("note",),
        group=_NOTES,
        summary="Keep lasting notes in a room.",
        description="Notes tell the other members what they need to know later, until a note is resolved.",
        is_group=True,
        examples=(
            ('pal note add "CI has no libpq"', "a note for the other members"),
            ("pal note list", "show open notes"),
        ),
        see=(("notes", "notes.md"),),
    ),
    Command(
        path=("note", "add"),
        group=_NOTES,
        summary="Add a note to a room.",
        description=(
            "A note stays open until it is resolved. You must be a member, but you need not own the stick. "
            "Every agent on this bus can read it."
        ),
        positionals=(Positional(name="TEXT", help="The text (or use --stdin).", optional=True),),
        options=(
            Option(name="--turn", metavar="N", help="The turn that the note is about."),
            Option(name="--stdin", help="Read the text from standard input."),
            ROOM,
        ),
        examples=(
            ('pal note add "CI has no libpq"', "a note for the other members"),
            ("make check 2>&1 | tail -20 | pal note add --stdin", "add the output of a program"),
        ),
    ),
    Command(
        path=("note", "list"),
        group=_NOTES,
        summary="List the notes of a room.",
        description="Shows the oldest first.",
        options=(
            Option(name="--all", help="Include resolved notes."),
            Option(name="--after", metavar="NOTE", help="Only notes after this one.", completes="notes"),
            Option(name="--limit", metavar="N", help=f"At most N notes (default: {DEFAULT_NOTES})."),
            ROOM,
        ),
        examples=(
            ("pal note list", "show open notes"),
            ("pal note list --all --json", "all notes, for programs"),
        ),
    ),
    Command(
        path=("note", "resolve"),
        group=_NOTES,
        summary="Mark a note as resolved.",
        positionals=(_NOTE_ID,),
        options=(ROOM,),
        examples=(("pal note resolve 7f3q9x2m", "the note no longer applies"),),
    ),
)


_CHAT: Final = "__chat"
"""The client runs the chat in its own process."""

CHAT_COMMANDS: Final = (
    Command(
        path=("chat",),
        group="Rooms",
        summary="Chat in a room, as a person at a terminal.",
        description=(
            "Shows the latest messages and follows new ones. A line goes to all members of the room; @name "
            "sends it to one member, !@name interrupts that member. A line with an unknown name is not sent. "
            "Below each message you see who has read it, and why others have not. Routing is not privacy: "
            "everyone in the room can read everything. You do not become a member and never own the stick. "
            "Type /help in the chat for more."
        ),
        positionals=(
            Positional(
                name="PATH",
                help="Folder or file in the workspace (default: here).",
                optional=True,
                completes="directories",
            ),
        ),
        options=(ROOM,),
        examples=(
            ("pal chat", "chat in the room of this folder"),
            ("pal chat --room shop-x4kd", "chat in another room"),
        ),
        see=(("chat", "chat.md"),),
    ),
)

# --------------------
# Functions of `pal room`, `pal note` and `pal chat`: read the options, call the service for rooms, and show
# the result.


async def text_from_stdin(call: Call, limit_bytes: int) -> str:
    """Let the client read its standard input; raise BadRequest if it is not UTF-8."""
    try:
        return (await call.connection.read_stdin(limit_bytes)).decode()
    except UnicodeDecodeError:
        raise BadRequest("standard input is not UTF-8; nothing was done") from None


async def join(call: Call) -> int:
    """Make the caller a member of the room at a path."""
    answer = await call.services.rooms.join_path(
        call.caller,
        context_path=call.absolute(_path(call)),
        force_new=call.parsed.has("--new"),
        # The HOME of the caller, because the daemon may run with another one.
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
    answer = await call.services.rooms.leave_room(call.caller, room_id=room, key=call.asked.key)
    return await _print_result(call, answer, f"you have left {room}")


async def list_rooms(call: Call) -> int:
    """Show all rooms, or the rooms around a path."""
    path = _path(call, "")
    answer = await call.services.rooms.list_rooms(
        call.caller,
        context_path=call.absolute(path) if path else None,
        include_closed=call.parsed.has("--all"),
    )
    if not call.is_json and path and not answer.rooms:
        await call.say(call.safe(f"no open room is at {call.absolute(path)} or above it"))
    elif not call.is_json:
        await call.say_lines(room_table(call, answer.rooms))
    for room in answer.rooms if call.is_json else ():
        await call.say_json(room)
    return 0


async def state(call: Call) -> int:
    """Show the present state of one room."""
    answer = await call.services.rooms.get_room_state(
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
    answer = await call.services.rooms.kick_member(
        call.caller,
        room_id=room,
        target_agent_id=name,
        force=call.parsed.has("--force"),
        reason=call.parsed.value("--reason") or "",
        key=call.asked.key,
    )
    had_it = "; the stick is free" if answer.target_was_owner else ""
    return await _print_result(call, answer, f"{answer.target_agent_id} was removed from {room}{had_it}")


async def close(call: Call) -> int:
    """Close a room permanently."""
    room = await room_here_or_named(call, _path(call, ""))
    if not (call.parsed.has("--yes") or await call.is_agreed(f"close {room} for all its members?")):
        call.warn(f"{room} stays open")
        return EXIT_REFUSED
    answer = await call.services.rooms.close_room(
        call.caller, room_id=room, reason=call.parsed.value("--reason") or "", key=call.asked.key
    )
    return await _print_result(call, answer, f"{room} is closed; its history stays readable")


async def add_note(call: Call) -> int:
    """Add a note to a room."""
    room = await room_of(call)
    turn = call.parsed.number("--turn")
    answer = await call.services.rooms.add_note(
        call.caller, room_id=room, body=await _text(call), turn_id=turn, key=call.asked.key
    )
    return await _print_result(call, answer, f"note {short_id(answer.note_id)} was added to {room}")


async def list_notes(call: Call) -> int:
    """Show the notes of a room."""
    limit = call.parsed.number("--limit", least=1)
    answer = await call.services.rooms.list_notes(
        call.caller,
        room_id=await room_of(call),
        after_note_id=call.parsed.value("--after"),
        include_resolved=call.parsed.has("--all"),
        limit=DEFAULT_NOTES if limit is None else limit,
    )
    if not call.is_json:
        await call.say_lines(note_lines(call, answer.notes))
    for note in answer.notes if call.is_json else ():
        await call.say_json(note)
    return 0


async def resolve_note(call: Call) -> int:
    """Mark a note as resolved."""
    answer = await call.services.rooms.resolve_note(
        call.caller,
        room_id=await room_of(call),
        note_id=call.parsed.positionals[0],
        key=call.asked.key,
    )
    return await _print_result(call, answer, f"note {short_id(answer.note_id)} is resolved")


def _path(call: Call, otherwise: str = ".") -> str:
    return call.parsed.positionals[0] if call.parsed.positionals else otherwise


async def _text(call: Call) -> str:
    words = call.parsed.positionals
    if call.parsed.has("--stdin") == bool(words):
        raise UsageError("a note has one text: pal note add TEXT, or --stdin to read it")
    return words[0] if words else await text_from_stdin(call, LIMIT_BODY_BYTES)


async def _print_result(call: Call, answer: ServiceResult, sentence: str) -> int:
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say(call.safe(sentence))
    return 0


async def chat(call: Call) -> int:
    """Let the client open a conversation in the named room, or in the caller's room."""
    room = await room_of(call, call.parsed.positionals[0] if call.parsed.positionals else "")
    state = await call.services.rooms.get_room_state(call.caller, room_id=room)
    call.connection.run_here(_CHAT, "--room", state.room_id)
    return 0


# --------------------
# Read handoffs from the options of a command line, and format them for a terminal.
#
# Does not check whether a handoff is valid.

# The last colon separates the lines, because a path may contain colons. With DOTALL it may contain line ends
# too.
# At most 15 digits, because `int` raises for a number with thousands of them.
_ARTIFACT: Final = re.compile(r"(.+):([0-9]{1,15})(-[0-9]{1,15})?", re.ASCII | re.DOTALL)
_LISTS: Final = {"artifacts": "--artifact", "open_questions": "--question", "do_not": "--do-not"}
_COLUMN: Final = 11
"""Columns of the labels; the texts begin after them."""
_NARROWEST: Final = 20
"""Columns of a text, however narrow the terminal is: it wraps by itself then."""


def handoff_from(parsed: Parsed, content: str | None) -> dict[str, object]:
    """Return a handoff from the options, or from `content`, which is JSON."""
    if content is not None:
        return handoff_from_json(content)
    made: dict[str, object] = {}
    for key, option in (("status", "--status"), ("next_action", "--next")):
        if (words := parsed.value(option)) is not None:
            made[key] = words
    for key, option in _LISTS.items():
        if values := parsed.values(option):
            made[key] = [_artifact(one) for one in values] if key == "artifacts" else values
    return made


def handoff_from_json(text: str) -> dict[str, object]:
    """Parse a handoff that a program wrote. Raises InvalidHandoff."""
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    # The decoder raises RecursionError for deep nesting, and UnicodeError for surrogates of the command line.
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidHandoff("content", f"must be one JSON object: {error}") from None


def handoff_lines(handoff: Mapping[str, object], *, width: int | None, paint: Paint) -> Iterator[str]:
    """Yield a handoff line by line, each part next to its label; the label of an unknown part is its key."""
    for label, parts in handoff_parts(handoff):
        yield from _labelled(label, parts, width, paint)


def _labelled(label: str, parts: list[str], width: int | None, paint: Paint) -> Iterator[str]:
    """Yield the parts one below the other, wrapped to the terminal, with the label before the first.

    A label that is too long for its column is on a separate line.
    """
    head = paint.safe(f"{label}:")
    indent = " " * (2 + _COLUMN)
    if display_width(head) < _COLUMN:
        first = f"  {paint.dim(head)}" + " " * (_COLUMN - display_width(head))
    else:
        yield f"  {paint.dim(head if width is None else truncate(head, max(_NARROWEST, width - 2)))}"
        first = indent
    for part in parts:
        # An empty part has no lines, but its label must be shown.
        for line in paint.safe(part, keep_lines=True).splitlines() or [""]:
            room = None if width is None else max(_NARROWEST, width - len(indent))
            wrapped = [line] if room is None else textwrap.wrap(line, room, break_on_hyphens=False) or [""]
            for piece in wrapped:
                yield f"{first}{piece}".rstrip()
                first = indent


def _artifact(written: str) -> dict[str, object]:
    found = _ARTIFACT.fullmatch(written)
    if found is None:
        return {"path": written}
    lines: object = [int(found[2])] if found[3] is None else f"{found[2]}{found[3]}"
    return {"path": found[1], "lines": lines}


# --------------------
# Rendering: rooms, the stick and notes for people, from results of the service for rooms. Makes no requests.

_WIDEST: Final = 100

_CONDITIONS: Final = {
    "stale_owner": "the owner's lease has expired: 'pal stick takeover' is possible",
    "owner_gone": "the owner's process has ended: the stick is passed on unless it returns",
    "owner_idle": "the owner is idle: 'pal stick takeover' is possible",
    "recipient_gone": "the member it is reserved for has ended: the stick is passed on unless it returns",
    "dormant": "no member is present",
}
_GRANTS: Final = {
    "direct_pass": "passed by {}",
    "sequence": "after {}",
    "already_owner": "you already own it",
}
_TAKEOVERS: Final = {
    "owner_gone": "{} owns the stick, but has exited",
    "owner_timeout": "{} owns the stick, but its lease has expired",
    "owner_idle": "{} owns the stick, but is idle",
    "claim_timeout": "{} did not claim the stick",
}


def join_lines(call: Call, room: RoomView) -> Iterator[str]:
    """Show the room that was joined, and its members."""
    yield from _sentence(call, f"you are in {room.room_id}, the room of {room.canonical_path}")
    names = ", ".join(member.agent_id for member in room.members)
    yield from _sentence(call, f"members: {names or 'none'}")
    if room.warning:
        yield from _sentence(call, room.warning, call.paint.yellow)


def room_table(call: Call, rooms: Sequence[RoomLine]) -> list[str]:
    """Return the rooms as a table; rooms of which the caller is a member have a star."""
    if not rooms:
        return ["there is no room; 'pal room join' opens one for the working directory"]
    columns = [
        Column(least=1),
        Column(title="ROOM", least=12, paint=call.paint.bold),
        Column(title="HERE", is_right=True),
        Column(title="STICK", least=10),
        Column(title="PATH", least=16),
    ]
    rows = [
        [
            "*" if room.is_member else "",
            room.room_id,
            f"{room.present_count}/{room.member_count}",
            _stick_words(room),
            room.canonical_path,
        ]
        for room in rooms
    ]
    lines = lay_out(columns, rows, width=call.width, paint=call.paint)
    if any(room.is_member for room in rooms):
        lines.append(call.paint.dim("* you are a member"))
    return lines


def state_lines(call: Call, room: RoomView) -> Iterator[str]:
    """Show one room: the stick, unusual conditions, the members, and a waiting handoff."""
    paint = call.paint
    yield f"{paint.bold(paint.safe(room.room_id))}  {paint.safe(room.canonical_path)}"
    yield from _sentence(call, _stick_sentence(call, room))
    for one in room.conditions:
        yield from _sentence(call, _CONDITIONS.get(one, one), paint.yellow)
    if room.members:
        yield ""
        yield from lay_out(
            [
                Column(title="MEMBER", least=8, paint=paint.cyan),
                Column(title="HARNESS", least=6),
                Column(title="STATUS", least=6),
                Column(title="STICK", least=6),
                Column(title="LAST TURN", is_right=True),
            ],
            [
                [
                    member.agent_id,
                    member.harness or "-",
                    _member_words(member),
                    _stick_of(member),
                    str(member.last_turn_id or "-"),
                ]
                for member in room.members
            ],
            width=call.width,
            paint=paint,
        )
    if room.pending_handoff is not None:
        yield ""
        by, seq = room.pending_handoff.from_agent_id, room.pending_handoff.event_seq
        yield from _sentence(call, f"handoff #{seq} by {by} for the next owner:")
        yield from handoff_lines(room.pending_handoff.handoff, width=call.width, paint=paint)


def turn_lines(call: Call, turn: GrantedTurn) -> Iterator[str]:
    """Show that it is the caller's turn, the handoff of the previous owner, and the lease."""
    paint = call.paint
    how = f"taken from {turn.revoked}" if turn.revoked else _GRANTS.get(turn.reason or "", "")
    # The text would name the previous owner, and there was none.
    if turn.from_agent_id is None and "{}" in how:
        how = ""
    why = f", {how.format(turn.from_agent_id)}" if how else ""
    yield from _sentence(call, f"it is your turn: turn {turn.turn_id} in {turn.room_id}{why}", paint.green)
    if turn.handoff is not None:
        yield from handoff_lines(turn.handoff, width=call.width, paint=paint)
    yield from lease_lines(call, turn)


def lease_lines(call: Call, lease: GrantedTurn | LeaseView) -> Iterator[str]:
    """Show when the lease expires."""
    until = _time(call, lease.lease_expires_at or 0)
    text = f"your lease runs until {until} and is renewed while you work"
    return _sentence(call, text, call.paint.dim)


def not_yet_line(call: Call, room: DeniedTurn) -> str:
    """Return why it is not the caller's turn, and what the caller can do."""
    if room.status == "closed":
        return f"{room.room_id} is closed; 'pal room join' opens a new room"
    if room.status == "takeover_available":
        whose = room.owner_agent_id or room.reserved_for or "the owner"
        why = _TAKEOVERS.get(room.reason or "", "{} can lose the stick").format(whose)
        return f"{why}; to take it, run 'pal stick takeover --reason TEXT'"
    hint = f". {room.hint}" if room.hint else ""
    return f"not yet: {_stick_sentence(call, room)}{hint}"


def note_lines(call: Call, notes: Sequence[NoteView]) -> Iterator[str]:
    """Show notes, each with a head and its text."""
    if not notes:
        yield "no notes; 'pal note add TEXT' adds one"
    for note in notes:
        words = [note.author_agent_id, _from_now(call, note.created_at)]
        words += [] if note.turn_id is None else [f"turn {note.turn_id}"]
        if note.resolved_at is not None:
            words.append(f"resolved by {note.resolved_by_agent_id} {_from_now(call, note.resolved_at)}")
        yield f"{call.paint.bold(short_id(note.note_id))} {call.paint.dim(call.safe(', '.join(words)))}"
        yield from _body(call, note.body)


def _body(call: Call, text: str) -> Iterator[str]:
    for line in call.safe(text, keep_lines=True).splitlines():
        yield from (f"  {piece}" for piece in _pieces(call, line, 2))


def _sentence(call: Call, text: str, paint: Callable[[str], str] = str) -> Iterator[str]:
    """Yield a sentence, wrapped between words to the width of the terminal."""
    return (paint(piece) for piece in _pieces(call, call.safe(text), 0))


def _pieces(call: Call, line: str, indent: int) -> list[str]:
    width = None if call.width is None else min(call.width, _WIDEST) - indent
    if width is None or display_width(line) <= width:
        return [line]
    # `wrap` fails for a width below 1.
    return textwrap.wrap(line, max(width, 1), break_on_hyphens=False)


def _stick_words(room: StickView) -> str:
    """Return the state of the stick for a table."""
    marks = f" ({', '.join(room.conditions)})" if room.conditions else ""
    if room.owner_agent_id:
        return f"{room.owner_agent_id}{marks}"
    return f"for {room.reserved_for}{marks}" if room.reserved_for else f"{room.room_state}{marks}"


def _stick_sentence(call: Call, room: StickView | DeniedTurn) -> str:
    if room.owner_agent_id:
        until = room.lease_expires_at or 0
        # An owner keeps the stick after the end of its lease, until another member takes it over.
        word = "over since" if until <= call.now_ms() else "until"
        lease = f"lease {word} {_time(call, until)}"
        return f"{room.owner_agent_id} owns the stick: turn {room.turn_id}, {lease}"
    if room.reserved_for:
        return (
            f"the stick is reserved for {room.reserved_for} until {_time(call, room.claim_expires_at or 0)}"
        )
    if room.room_state == "closed":
        return "the room is closed"
    turns = f"{room.turn_id} turn{'' if room.turn_id == 1 else 's'} so far"
    return f"the stick is free; {turns}" if room.turn_id else "the stick is free"


def _member_words(member: MemberView) -> str:
    """Return a member's state if it is active, else its status."""
    if member.status != "active":
        return member.status
    return member.state or "here"


def _stick_of(member: MemberView) -> str:
    """Return whether a member has the stick, waits for it, or is parked."""
    if member.is_owner:
        return "has it"
    return ("parked" if member.parked else "waits") if member.waiting else "-"


def _time(call: Call, time_ms: int) -> str:
    return f"{call.clock_time(time_ms)} ({_from_now(call, time_ms)})"


def _from_now(call: Call, time_ms: int) -> str:
    return relative_time(time_ms - call.now_ms())


# --------------------
# Rows of the commands about the stick.

_STICK: Final = "The stick"

_LEASE: Final = (
    Option(name="--lease", metavar="LEASE", help="The expected lease (default: your current one)."),
    Option(name="--turn", metavar="N", help="The expected turn (default: the current one)."),
)
_HANDOFF: Final = (
    Option(name="--status", metavar="TEXT", help="Handoff: the current state of the work."),
    Option(name="--next", metavar="TEXT", help="Handoff: the next step."),
    Option(
        name="--artifact",
        metavar="FILE",
        help="Handoff: FILE, FILE:3 or FILE:10-80. May be repeated.",
        many=True,
        completes="files",
    ),
    Option(
        name="--question",
        metavar="TEXT",
        help="Handoff: an open question. May be repeated.",
        many=True,
    ),
    Option(
        name="--do-not",
        metavar="TEXT",
        help="Handoff: an action to avoid. May be repeated.",
        many=True,
    ),
    Option(
        name="--handoff",
        metavar="JSON",
        help="The whole handoff as JSON, or - for standard input.",
    ),
)
_EXCLUSIVE: Final = tuple(("--handoff", option.name) for option in _HANDOFF if option.name != "--handoff")

_WAITING: Final = (
    Option(name="--no-solo", help="Do not take it while you are alone in the room."),
    ROOM,
)

STICK_COMMANDS: Final = (
    Command(
        path=("stick",),
        group=_STICK,
        summary="Take turns: only the owner of the stick may write.",
        description=(
            "Each room has one stick. Only the member that owns it changes files in the workspace. Take it "
            "with 'wait' or 'claim'; give it up with 'release' or 'pass', with notes for the next owner (a "
            "handoff)."
        ),
        is_group=True,
        examples=(("pal stick wait", "wait for my turn"),),
        see=(("the stick", "stick.md"),),
    ),
    Command(
        path=("stick", "wait"),
        group=_STICK,
        summary="Wait until you own the stick.",
        description=(
            "Then shows the handoff of the previous owner. An owner that is only idle does not end the wait."
        ),
        options=(
            Option(
                name="--timeout",
                metavar="TIME",
                help="Longest wait: 30 (seconds), 250ms, 5m (default: no limit).",
            ),
            Option(name="--park", help="Take it only if it is passed to you or reserved for you."),
            Option(name="--events", help="Also show messages and events for you in the meantime."),
            Option(
                name="--after",
                metavar="SEQ",
                help="With --events: after this seq (default: all unread ones).",
            ),
            *_WAITING,
        ),
        examples=(
            ("pal stick wait", "wait without a limit"),
            ("pal stick wait --timeout 10m", "wait at most ten minutes"),
            ("pal stick wait --park", "only if it is passed to me"),
            ("pal stick wait --events", "also show what I have missed"),
        ),
        statuses=(
            (0, "It is your turn."),
            (
                1,
                (
                    "The room was closed, or 'pal stick takeover' is possible because the owner has exited "
                    "or its lease has expired."
                ),
            ),
            (3, "The time of --timeout is over, and it is not your turn."),
        ),
    ),
    Command(
        path=("stick", "claim"),
        group=_STICK,
        summary="Take the stick if it is free.",
        description="Tries once and does not wait.",
        options=_WAITING,
        examples=(("pal stick claim", "take it now, if possible"),),
        statuses=(
            (0, "It is your turn."),
            (1, "As for 'pal stick wait'."),
            (3, "It is not your turn."),
        ),
    ),
    Command(
        path=("stick", "heartbeat"),
        group=_STICK,
        summary="Renew your lease of the stick.",
        description=(
            "Shows that you still work. Every other command renews the lease too, so you need this only if "
            "you are silent for a long time."
        ),
        options=(*_LEASE, ROOM),
        examples=(("pal stick heartbeat", "I am still working"),),
    ),
    Command(
        path=("stick", "release"),
        group=_STICK,
        summary="Release the stick, with a handoff.",
        description=(
            "The stick goes to the waiting member that has never had it or had it longest ago. A handoff "
            "requires --status and --next; the next owner sees all of it."
        ),
        options=(*_HANDOFF, *_LEASE, ROOM),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick release --status "parser done" --next "wire it in"', "with the required notes"),
            (
                'pal stick release --status "tests pass" --next review --artifact a.py:3 --do-not publish',
                "with more notes",
            ),
            ("cat handoff.json | pal stick release --handoff -", "handoff from a program"),
        ),
        see=(("handoffs", "stick.md#handoffs"),),
    ),
    Command(
        path=("stick", "pass"),
        group=_STICK,
        summary="Pass the stick to one member, with a handoff.",
        description=(
            "The stick is reserved for that member. If the member is away, this requires --override and an "
            "operator or a person."
        ),
        positionals=(Positional(name="NAME", help="The next owner.", completes="agents"),),
        options=(
            *_HANDOFF,
            Option(name="--override", help="Also pass it to a member that is away."),
            *_LEASE,
            ROOM,
        ),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick pass nova --status "done" --next "review src/auth"', "nova is the next owner"),
        ),
        see=(("handoffs", "stick.md#handoffs"),),
    ),
    Command(
        path=("stick", "takeover"),
        group=_STICK,
        summary="Take the stick from an owner that has exited or is idle.",
        description=(
            "Possible if the owner has exited, its lease has expired or it has been idle for a long time, or "
            "if a reservation was not claimed. With --override, an operator or a person can take it from any "
            "owner. Check the workspace first: work may be unfinished."
        ),
        options=(
            Option(name="--reason", metavar="TEXT", help="The reason, for the log (required)."),
            Option(name="--override", help="Also take it from an owner that is working."),
            Option(name="--turn", metavar="N", help="The turn you expect to end (default: the current one)."),
            ROOM,
        ),
        examples=(('pal stick takeover --reason "luna has exited"', "continue the work of luna"),),
    ),
)


# --------------------
# Functions of `pal stick`: read the options, call the service for rooms, and show the result.

_OWNER_IDLE: Final = "owner_idle"
_LEASE_EXPIRED: Final = "lease_expired"
_HANDOVER_WAITS: Final = "auto_claim_disabled"
# Bytes that are read. It is above the limit of a handoff, so that its check reports the size.
_LIMIT_HANDOFF_BYTES: Final = 1024 * 1024
_NO_FIELDS: Final[Mapping[str, str]] = {}


async def wait_for_turn(call: Call) -> int:
    """Wait until the caller owns the stick, or until the timeout."""
    timeout = timeout_ms(call.parsed, "--timeout")
    clock = call.services.clock
    # One end for all rounds of the loop below, so that a waiting handoff does not make the wait longer.
    end_s = None if timeout is None else clock.monotonic_s() + timeout / 1000
    after = call.parsed.number("--after")
    if after is not None and not call.parsed.has("--events"):
        raise UsageError("--after requires --events")
    room = await room_of(call)
    _print_hint(call, f"waiting for the stick of {room}; Ctrl-C ends it")
    earlier: dict[str, str] = {}
    while True:
        left = None if end_s is None else max(0, round((end_s - clock.monotonic_s()) * 1000))
        with call.connection.waiting():
            answer = await call.services.rooms.wait_for_turn(
                call.caller,
                room_id=room,
                max_wait_ms=left,
                mode="parked" if call.parsed.has("--park") else "claim",
                allow_solo_claim=not call.parsed.has("--no-solo"),
                events=call.parsed.has("--events"),
                after_event_seq=after,
                # The command ends when it is the caller's turn. Events come with that result and do not end
                # the wait.
                is_woken_by_events=False,
                # The service limits the wait of a tool call. A client can wait as long as --timeout says.
                limit_ms=None,
                # A repeat after a lost connection has the same key. With another one it would be refused as a
                # second wait.
                key=call.asked.key,
            )
        if answer.reason != _HANDOVER_WAITS or left == 0:
            if answer.status != "not_yet" or answer.reason is not None:
                earlier = {}
            return await _turn(call, answer, can_be_idle=True, earlier=earlier)
        # A parked member is notified of a waiting handoff, and continues to wait. The service reports it only
        # once, so the last result of this command repeats it.
        earlier = {"reason": answer.reason, **({"hint": answer.hint} if answer.hint else {})}
        _print_hint(call, answer.hint or "")


async def claim_stick(call: Call) -> int:
    """Take the stick if it is free; do not wait."""
    answer = await call.services.rooms.wait_for_turn(
        call.caller,
        room_id=await room_of(call),
        # A look and no wait: it is allowed while another command of this member waits.
        max_wait_ms=0,
        allow_solo_claim=not call.parsed.has("--no-solo"),
        key=call.asked.key,
    )
    return await _turn(call, answer)


async def renew_lease(call: Call) -> int:
    """Record that the owner is still working, which extends its lease. Nothing is stored in the log."""
    room = await room_of(call)
    lease, turn = await _lease(call, room)
    answer = await call.services.rooms.heartbeat(
        call.caller, room_id=room, lease_id=lease, expected_turn_id=turn
    )
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say_lines(lease_lines(call, answer))
    return 0


async def release_stick(call: Call) -> int:
    """Release the stick, with a handoff."""
    room = await room_of(call)
    lease, turn = await _lease(call, room)
    handoff = await _handoff(call)
    answer = await call.services.rooms.release_stick(
        call.caller,
        room_id=room,
        lease_id=lease,
        expected_turn_id=turn,
        handoff=handoff,
        key=call.asked.key,
    )
    return await _given(call, answer)


async def pass_stick(call: Call) -> int:
    """Pass the stick to one member, with a handoff."""
    room = await room_of(call)
    lease, turn = await _lease(call, room)
    handoff = await _handoff(call)
    answer = await call.services.rooms.pass_stick(
        call.caller,
        room_id=room,
        lease_id=lease,
        expected_turn_id=turn,
        to_agent_id=call.parsed.positionals[0],
        handoff=handoff,
        operator_override=call.parsed.has("--override"),
        key=call.asked.key,
    )
    return await _given(call, answer)


async def take_over_stick(call: Call) -> int:
    """Take the stick from an owner that has lost its right to it, or with --override from any owner."""
    reason = call.parsed.value("--reason") or ""
    if not reason.strip():
        raise UsageError("--reason is required: pal stick takeover --reason TEXT")
    room = await room_of(call)
    turn = call.parsed.number("--turn")
    # By default the turn of now: if another member gets the stick before this is decided, it is refused.
    answer = await call.services.rooms.takeover_stick(
        call.caller,
        room_id=room,
        expected_turn_id=find_room(call.services.queries.rows, room).turn if turn is None else turn,
        reason=reason,
        operator_override=call.parsed.has("--override"),
        key=call.asked.key,
    )
    return await _turn(call, answer)


async def _lease(call: Call, word: str) -> tuple[str, int]:
    """Return the lease and turn: those in the options, or those of the caller as the owner.

    Raises RoomClosed, NotOwner or StaleLease if the caller does not own the stick and names no lease.
    """
    lease, turn = call.parsed.value("--lease"), call.parsed.number("--turn")
    room = find_room(call.services.queries.rows, word)
    is_holder = room.owner == call.caller.name
    # A repeat of the request that gave up the stick comes from a caller that no longer owns it.
    if lease is None and not is_holder and await room_of_repeat(call) is None:
        if not room.is_open:
            raise RoomClosed(room.id)
        raise NotOwner(room.owner) if room.owner else StaleLease(room.turn)
    return room.lease if lease is None else lease, room.turn if turn is None else turn


async def _handoff(call: Call) -> dict[str, object]:
    written = call.parsed.value("--handoff")
    if written == "-":
        written = await text_from_stdin(call, _LIMIT_HANDOFF_BYTES)
    return handoff_from(call.parsed, written)


async def _turn(
    call: Call, answer: TurnView, *, can_be_idle: bool = False, earlier: Mapping[str, str] = _NO_FIELDS
) -> int:
    """Show the result, and return its exit status; with `can_be_idle` an idle owner counts as waiting.

    `earlier` are the reason and the hint of an earlier result. They replace those of this one.
    """
    fields = msgspec.to_builtins(answer) | earlier  # Programs read an earlier hint after the events.
    answer = msgspec.structs.replace(answer, **earlier)
    status, reason = answer.status, answer.reason
    is_waiting = status == "not_yet" or (can_be_idle and reason == _OWNER_IDLE)
    if call.is_json:
        await call.say_json(fields)
    elif isinstance(answer, GrantedTurn):
        await call.say_lines(turn_lines(call, answer))
    else:
        call.warn(not_yet_line(call, answer))
    if not call.is_json and answer.events is not None:
        await call.say_lines(event_lines(call, answer.events))
    if isinstance(answer, GrantedTurn):
        return 0
    # An expired lease is a refusal, because no wait would change it.
    return EXIT_NOTHING if is_waiting and reason != _LEASE_EXPIRED else EXIT_REFUSED


async def _given(call: Call, answer: FreedStick) -> int:
    if call.is_json:
        await call.say_json(answer)
        return 0
    whose = answer.reserved_for
    await call.say(
        call.safe(
            f"the stick is reserved for {whose}" if whose else "the stick is free; no member waits for it"
        )
    )
    return 0


def _print_hint(call: Call, text: str) -> None:
    """Print a hint on a terminal: a command that is silent for a long time looks as if it hangs."""
    asked = call.asked
    if asked.stderr_is_terminal and not call.is_json:
        harness = call.caller.harness or harness_of(asked.environment)
        paint = paint_for(asked.environment, is_terminal=True, harness=harness)
        call.connection.write_error(paint.dim(paint.safe(text)) + "\n")


# --------------------
# Rendering: events of a room for people, from a result of the service for rooms. Makes no requests.


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an event of a room: only a message has a body."""

    body: object = None


def event_lines(call: Call, events: Sequence[RoomEvent]) -> Iterator[str]:
    """Yield messages and other events, each starting on a separate line; a text may have several lines."""
    for one in events:
        to = [one.to_agent_id] if isinstance(one.to_agent_id, str) else one.to_agent_id or []
        paint = call.paint
        whom = f" → {paint.names(to)}" if to else ""
        head = paint.dim(f"#{one.event_seq} {call.clock_time(one.created_at)}")
        yield f"{head} {paint.name(one.from_agent_id or 'unknown')}{whom}: {_event_text(paint, one)}"


def _event_text(paint: Paint, one: RoomEvent) -> str:
    body = msgspec.convert(one.payload or {}, _Content).body
    if one.event_type == "message_sent" and isinstance(body, str):
        # Indented, so that no line of the text can be taken for another event.
        return paint.safe(body, keep_lines=True).replace("\n", "\n  ")
    return paint.safe(one.event_type if not one.reason else f"{one.event_type} ({one.reason})")
