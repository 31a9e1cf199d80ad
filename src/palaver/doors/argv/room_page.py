"""Format rooms, the stick and notes for people, from results of the service for rooms. Makes no requests."""

import textwrap
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from palaver.doors.argv.call import Call
from palaver.doors.argv.handoff_page import handoff_lines
from palaver.doors.argv.style import Column, display_width, lay_out
from palaver.doors.argv.timeouts import relative_time
from palaver.doors.desk import Answer

_SHORT: Final = 8
"""Characters of a note's id that are shown."""
_WIDEST: Final = 100

_CONDITIONS: Final = {
    "stale_owner": "the holder's lease is over: 'pal stick takeover' is possible",
    "owner_gone": "the holder's process has ended: the stick is handed on unless it comes back",
    "owner_idle": "the holder is idle: 'pal stick takeover' is possible",
    "recipient_gone": "the one it is reserved for has ended: the stick goes on unless it comes back",
    "dormant": "no member is present",
}
_GRANTS: Final = {
    "direct_pass": "passed by {}",
    "sequence": "after {}",
    "already_owner": "you have it already",
}
_TAKEOVERS: Final = {
    "owner_gone": "{} holds the stick and is gone",
    "owner_timeout": "{} holds the stick and is out of time",
    "owner_idle": "{} holds the stick and is idle",
    "claim_timeout": "{} did not fetch the stick",
}


class _Stick(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the stick."""

    room_id: str
    room_state: str
    turn_id: int = 0
    owner_agent_id: str | None = None
    lease_expires_at: int | None = None
    reserved_for: str | None = None
    claim_expires_at: int | None = None
    conditions: list[str] = []
    status: str = ""
    reason: str | None = None
    hint: str = ""


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    agent_id: str
    harness: str | None
    status: str
    state: str | None
    waiting: bool
    parked: bool
    is_owner: bool
    last_turn_id: int | None


class _Left(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff that waits for the next owner."""

    from_agent_id: str
    handoff: dict[str, object]


class _State(_Stick, frozen=True, kw_only=True):
    canonical_path: str
    members: list[_Member]
    pending_handoff: _Left | None = None


class _Line(_Stick, frozen=True, kw_only=True):
    canonical_path: str
    member_count: int
    present_count: int
    is_member: bool


class _Granted(msgspec.Struct, frozen=True, kw_only=True):
    room_id: str
    turn_id: int
    lease_expires_at: int
    handoff: dict[str, object] | None = None
    from_agent_id: str | None = None
    reason: str | None = None
    revoked: str = ""


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    note_id: str
    author_agent_id: str
    body: str
    created_at: int
    turn_id: int | None = None
    resolved_at: int | None = None
    resolved_by_agent_id: str | None = None


def join_lines(call: Call, answer: Answer) -> Iterator[str]:
    """Show the room that was joined, and its members."""
    yield from _sentence(call, f"you are in {answer['room_id']}, the room of {answer['canonical_path']}")
    members = msgspec.convert(answer["members"], list[_Member])
    yield from _sentence(call, f"members: {', '.join(member.agent_id for member in members) or 'nobody'}")
    if warning := answer.get("warning"):
        yield from _sentence(call, str(warning), call.paint.yellow)


def room_table(call: Call, answer: Answer) -> list[str]:
    """Return the rooms as a table; rooms of which the caller is a member have a star."""
    rooms = msgspec.convert(answer["rooms"], list[_Line])
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


def state_lines(call: Call, answer: Answer) -> Iterator[str]:
    """Show one room: the stick, unusual conditions, the members, and a waiting handoff."""
    room, paint = msgspec.convert(answer, _State), call.paint
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
        by = room.pending_handoff.from_agent_id
        yield from _sentence(call, f"a hand-over by {by} waits for the next holder:")
        yield from handoff_lines(room.pending_handoff.handoff, width=call.width, paint=paint)


def turn_lines(call: Call, answer: Answer) -> Iterator[str]:
    """Show that it is the caller's turn, the handoff of the previous owner, and the lease."""
    turn, paint = msgspec.convert(answer, _Granted), call.paint
    how = f"taken from {turn.revoked}" if turn.revoked else _GRANTS.get(turn.reason or "", "")
    if turn.from_agent_id is None and "{}" in how:
        how = ""
    why = f", {how.format(turn.from_agent_id)}" if how else ""
    yield from _sentence(call, f"it is your turn: turn {turn.turn_id} in {turn.room_id}{why}", paint.green)
    if turn.handoff is not None:
        yield from handoff_lines(turn.handoff, width=call.width, paint=paint)
    yield from lease_lines(call, answer)


def lease_lines(call: Call, answer: Answer) -> Iterator[str]:
    """Show when the lease expires."""
    moment = _moment(call, int(str(answer["lease_expires_at"])))
    text = f"your lease runs until {moment} and is renewed while you work"
    return _sentence(call, text, call.paint.dim)


def not_yet_line(call: Call, answer: Answer) -> str:
    """Return why it is not the caller's turn, and what the caller can do."""
    room = msgspec.convert(answer, _Stick)
    if room.status == "closed":
        return f"{room.room_id} is closed; 'pal room join' opens a new room"
    if room.status == "takeover_available":
        whose = room.owner_agent_id or room.reserved_for or "somebody"
        why = _TAKEOVERS.get(room.reason or "", "{} has lost the stick").format(whose)
        return f"{why}; 'pal stick takeover --reason TEXT' takes it"
    hint = f". {room.hint}" if room.hint else ""
    return f"not yet: {_stick_sentence(call, room)}{hint}"


def note_lines(call: Call, answer: Answer) -> Iterator[str]:
    """Show notes, each with a head and its text."""
    notes = msgspec.convert(answer["notes"], list[_Note])
    if not notes:
        yield "no notes; 'pal note add TEXT' leaves one"
    for note in notes:
        words = [note.author_agent_id, _from_now(call, note.created_at)]
        words += [] if note.turn_id is None else [f"turn {note.turn_id}"]
        if note.resolved_at is not None:
            words.append(f"resolved by {note.resolved_by_agent_id} {_from_now(call, note.resolved_at)}")
        yield f"{call.paint.bold(short_id(note.note_id))} {call.paint.dim(call.safe(', '.join(words)))}"
        yield from _body(call, note.body)


def short_id(note_id: str) -> str:
    """Return the part of a note's id that is shown."""
    return note_id[-_SHORT:].lower()


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
    return textwrap.wrap(line, max(width, 1), break_on_hyphens=False)


def _stick_words(room: _Stick) -> str:
    """Return the state of the stick for a table."""
    marks = f" ({', '.join(room.conditions)})" if room.conditions else ""
    if room.owner_agent_id:
        return f"{room.owner_agent_id}{marks}"
    return f"for {room.reserved_for}{marks}" if room.reserved_for else f"{room.room_state}{marks}"


def _stick_sentence(call: Call, room: _Stick) -> str:
    if room.owner_agent_id:
        until = room.lease_expires_at or 0
        word = "over since" if until <= call.services.clock.now_ms() else "until"
        lease = f"lease {word} {_moment(call, until)}"
        return f"{room.owner_agent_id} holds the stick: turn {room.turn_id}, {lease}"
    if room.reserved_for:
        return f"the stick waits for {room.reserved_for} until {_moment(call, room.claim_expires_at or 0)}"
    if room.room_state == "closed":
        return "the room is closed"
    turns = f"{room.turn_id} turn{'' if room.turn_id == 1 else 's'} so far"
    return f"the stick is free; {turns}" if room.turn_id else "the stick is free"


def _member_words(member: _Member) -> str:
    """Return a member's state if it is active, else its status."""
    if member.status != "active":
        return member.status
    return member.state or "here"


def _stick_of(member: _Member) -> str:
    """Return whether a member has the stick, waits for it, or is parked."""
    if member.is_owner:
        return "has it"
    return ("parked" if member.parked else "waits") if member.waiting else "-"


def _moment(call: Call, moment_ms: int) -> str:
    return f"{call.clock_time(moment_ms)} ({_from_now(call, moment_ms)})"


def _from_now(call: Call, moment_ms: int) -> str:
    return relative_time(moment_ms - call.services.clock.now_ms())
