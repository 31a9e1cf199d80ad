"""Rooms, their members and their stick: each request is decided on the single key of the workspace."""

import hashlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from palaver.broker.context import SYSTEM_CALLER, Context, Seated, Turn, Written
from palaver.domain import stick
from palaver.domain.rights import require
from palaver.domain.stick import Move, NoChange, Policy, RoomFacts, RoomSnapshot, checked_handoff, take_facts
from palaver.errors import (
    BadRequest,
    NotFound,
    ObserverCannotHoldTurn,
    RoomClosed,
    RoomNotFound,
    UnknownMember,
    WhoAreYou,
)
from palaver.protocol import events as payloads
from palaver.protocol.agents import INSTANCE, Caller, Standing
from palaver.protocol.envelope import Draft, Event, body_as
from palaver.protocol.events import (
    Granted,
    MemberJoined,
    NoteAdded,
    NoteResolved,
    Payload,
    TakenOver,
    payload_of,
    type_of,
)
from palaver.protocol.message import HUMAN
from palaver.protocol.requests import (
    HARNESS_GONE,
    LEFT,
    AddNote,
    Claim,
    CloseRoom,
    ExpireReservation,
    HandOn,
    JoinRoom,
    KickMember,
    LeaveRoom,
    PassStick,
    ReleaseStick,
    ResolveNote,
    RetireMember,
    TakeOver,
    TellKick,
)
from palaver.protocol.text import check_text
from palaver.state.rooms import (
    Room,
    checked_note,
    count_rooms,
    find_note,
    find_room,
    folder_name,
    read_note,
    read_room,
    read_room_at,
    read_rooms_of,
    room_base,
    room_id,
)
from palaver.state.rows import Rows

# --------------------
# From a decision about a room to an event: all are committed on the single key of the room's workspace.
#
# Facts outside the log are collected before the commit, once per member, so that the decision can be
# repeated; if a member has joined meanwhile, they are collected again.

Decision = Callable[[RoomSnapshot, str], Move | NoChange | None]
"""Decides about a room; the text is the id that the event will have. Pure: it may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a decision: the event, or the answer and the room that it refers to."""

    event: Event | None
    room: Room
    answer: NoChange | None = None


def stick_key(base: str) -> str:
    """Return the key on which everything about the rooms of one workspace is decided."""
    return f"stick/{base}"


def snapshot_of(context: Context, room: Room) -> RoomSnapshot:
    """Return a snapshot of a room with the current facts."""
    facts = take_facts(context.member_presence, context.clock.now_ms(), room.id, room.names)
    return RoomSnapshot(room=room, facts=facts, policy=context.policy)


async def move(
    context: Context, caller: Caller, room: Room, decide: Decision, key: bytes | None = None
) -> Moved:
    """Decide about a room and write the event. A refusal is raised."""
    while True:
        attempt = _Attempt(
            id=context.ids.next(),
            room=room,
            facts=snapshot_of(context, room).facts,
            policy=context.policy,
            caller=caller,
            decision=decide,
        )
        commit = await context.log.commit(stick_key(room.base), attempt.decide, request_key=key)
        if commit.event is not None or not attempt.is_stale:
            return Moved(event=commit.event, room=attempt.room, answer=attempt.answer)
        # Use the room as the decision saw it: reads may still be older.
        room = attempt.room


def current_room(context: Context, room: Room) -> Room:
    """Return the current state of a room."""
    found = read_room(context.log.rows, room.id)
    assert found is not None  # rooms are never removed
    return found


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One commit, with the facts from its start, and what the last call saw and decided."""

    id: str
    room: Room
    facts: RoomFacts
    policy: Policy
    caller: Caller
    decision: Decision
    answer: NoChange | None = field(default=None, init=False)
    is_stale: bool = field(default=False, init=False)

    def decide(self, rows: Rows) -> Draft | None:
        room = read_room(rows, self.room.id)
        assert room is not None  # rooms are never removed
        # Set again by each call: the engine may decide several times, and only the last call counts.
        self.room = room
        self.answer = None
        # Presence belongs to the event loop, and this may run in the writer's thread: so a member that has
        # joined meanwhile cannot be looked up here.
        self.is_stale = any(name not in self.facts.sights for name in room.names)
        if self.is_stale:
            return None
        made = self.decision(RoomSnapshot(room=room, facts=self.facts, policy=self.policy), self.id)
        if not isinstance(made, Move):
            self.answer = made
            return None
        return Draft(
            type=made.type,
            sender=self.caller.name,
            to=made.to,
            payload=payload_of(made.payload),
            id=made.id or self.id,
            ts=self.facts.now_ms,
            by=self.caller.by,
        )


# --------------------
# The requests about rooms and members.

# The longest path on Linux (PATH_MAX).
LIMIT_PATH_BYTES: Final = 4096
LIMIT_REASON_BYTES: Final = 1024


async def join_room(context: Context, caller: Caller, request: JoinRoom, key: bytes | None) -> Seated:
    """Make the caller a member. For a member, and for an observer, nothing is written."""
    _check_paths(request)
    if caller.standing < Standing.WORKER:
        return _look_on(context.log.rows, request)
    if caller.kind not in (INSTANCE, HUMAN):
        raise WhoAreYou("a room member needs a name; join the bus first with 'pal join'")
    closed: set[str] = set()
    while True:
        wanted = _WantedRoom.of(context, caller, request, closed)
        commit = await context.log.commit(stick_key(wanted.base), wanted.decide, request_key=key)
        if commit.event is None and not wanted.is_seated:
            # It was closed meanwhile, which reads may not show yet: join or create another one.
            closed.add(wanted.room_id)
            continue
        rows = context.log.rows
        id_ = wanted.room_id if commit.event is None else body_as(commit.event, MemberJoined).room
        return _seated(rows, id_, commit.event, request)


def seated_by(context: Context, event: Event) -> Seated:
    """Return the outcome of a join from the event it wrote."""
    room = _known(context.log.rows, body_as(event, MemberJoined).room)
    return Seated(room=room, event=event, is_new=room.seq == event.seq)


def _check_paths(request: JoinRoom) -> None:
    if not request.workspaces:
        raise BadRequest("the path of the room is missing")
    for path in (*request.workspaces, *request.inside):
        check_text(path, "the path", LIMIT_PATH_BYTES)
        if not path.startswith("/"):
            raise BadRequest(f"{path!r} is not an absolute path; write the path of the room from / on")
    check_text(request.name_hint, "the room's name", LIMIT_REASON_BYTES)


def _look_on(rows: Rows, request: JoinRoom) -> Seated:
    room = _nearest(rows, _around(request))
    if room is None:
        raise RoomNotFound(request.workspaces[0])
    return _seated(rows, room.id, None, request)


def _around(request: JoinRoom) -> Sequence[str]:
    """Return the workspaces whose rooms a request can mean, deepest first."""
    return request.workspaces[:1] if request.is_new else (*request.inside, *request.workspaces)


def _nearest(rows: Rows, paths: Sequence[str], closed: Set[str] = frozenset()) -> Room | None:
    """Return the open room at the first workspace that has one; rooms in `closed` are skipped."""
    found = (read_room_at(rows, path) for path in paths)
    return next((room for room in found if room is not None and room.is_open and room.id not in closed), None)


def _seated(rows: Rows, id: str, event: Event | None, request: JoinRoom) -> Seated:
    room = _known(rows, id)
    is_new = event is not None and room.seq == event.seq
    above = _nearest(rows, request.workspaces[1:]) if is_new else None
    return Seated(
        room=room,
        event=event,
        is_new=is_new,
        ancestor_of="" if room.path in (*request.inside, request.workspaces[0]) else request.workspaces[0],
        nested_in="" if above is None else above.id,
    )


def _known(rows: Rows, id: str) -> Room:
    room = read_room(rows, id)
    assert room is not None  # it was read or written just now, and rooms are never removed
    return room


@dataclass(slots=True, kw_only=True)
class _WantedRoom:
    """A room that the caller wants to join: an existing one, or one to create."""

    path: str
    base: str
    is_made: bool
    """There is no open room there yet."""
    name: str
    harness: str
    caller: Caller
    id: str
    now: int
    room_id: str = field(default="", init=False)
    is_seated: bool = field(default=False, init=False)

    @classmethod
    def of(cls, context: Context, caller: Caller, request: JoinRoom, closed: Set[str]) -> "_WantedRoom":
        room = _nearest(context.log.rows, _around(request), closed)
        path = request.workspaces[0] if room is None else room.path
        agent = context.directory.get(caller.name)
        return cls(
            path=path,
            base=room_base(path) if room is None else room.base,
            is_made=room is None,
            name=request.name_hint or folder_name(path),
            harness=(HUMAN if caller.kind == HUMAN else "") if agent is None else agent.harness,
            caller=caller,
            id=context.ids.next(),
            now=context.clock.now_ms(),
        )

    def decide(self, rows: Rows) -> Draft | None:
        """Return the event to write: the caller joins a room, or creates one; None if it is a member."""
        # By path and not by base: two paths can have the same base, and are then different rooms.
        room = read_room_at(rows, self.path)
        self.room_id = "" if room is None else room.id
        self.is_seated = False
        if room is not None and room.is_open:
            self.is_seated = room.member(self.caller.name) is not None
            return None if self.is_seated else self._joined(room.id, room.name)
        # The room that was found has been closed meanwhile. The caller looks for another one.
        if not self.is_made:
            return None
        # Counted inside the commit, so that two new rooms never get the same id.
        return self._joined(room_id(self.base, count_rooms(rows, self.base) + 1), self.name)

    def _joined(self, id: str, name: str) -> Draft:
        joined = MemberJoined(room=id, base=self.base, path=self.path, name=name, harness=self.harness)
        return Draft(
            type=payloads.MEMBER_JOINED,
            sender=self.caller.name,
            payload=payload_of(joined),
            id=self.id,
            ts=self.now,
            by=self.caller.by,
        )


async def leave_room(context: Context, caller: Caller, request: LeaveRoom, key: bytes | None) -> Written:
    """Remove the caller from a room. The room stays, even without members."""
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context, caller, room, lambda now, id: stick.leave(now.room, caller.name, request.reason), key
    )
    return Written(event=moved.event)


async def leave_all_rooms(context: Context, caller: Caller) -> None:
    """Remove an agent that leaves the bus from all its rooms."""
    # A list, because each removal changes the rows that are being read.
    for room in list(read_rooms_of(context.log.rows, caller.name)):
        # Without the request key: with one key, the event of the second room would count as a repeat.
        await _retire(context, caller, room, caller.name, LEFT)


async def kick_member(context: Context, caller: Caller, request: KickMember, key: bytes | None) -> Written:
    """Remove a member."""
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context,
        caller,
        room,
        lambda now, id: stick.kick(now, caller, request.target, request.reason, is_forced=request.is_forced),
        key,
    )
    return Written(event=moved.event)


async def close_room(context: Context, caller: Caller, request: CloseRoom, key: bytes | None) -> Written:
    """Close a room."""
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
    room = find_room(context.log.rows, request.room)
    moved = await move(context, caller, room, lambda now, id: stick.close(now.room, request.reason), key)
    return Written(event=moved.event)


async def retire_member(
    context: Context, caller: Caller, request: RetireMember, key: bytes | None
) -> Written:
    """Remove a member that is offline permanently; nothing is written if it is not a member any more."""
    room = find_room(context.log.rows, request.room)
    return await _retire(context, caller, room, request.member, request.reason, key)


async def tell_kick(context: Context, caller: Caller, request: TellKick, key: bytes | None) -> Written:
    """Notify listeners for leaves once that a member was removed."""
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context, caller, room, lambda now, id: stick.tell_kick(now.room, request.member, request.kick), key
    )
    return Written(event=moved.event)


async def _retire(
    context: Context, caller: Caller, room: Room, name: str, reason: str, key: bytes | None = None
) -> Written:
    moved = await move(context, caller, room, lambda now, id: stick.retire(now.room, name, reason), key)
    return Written(event=moved.event)


def check_may_write(room: Room, caller: Caller) -> None:
    """Refuse a caller that is not a member, unless it is the human or a guest."""
    may_write = caller.is_person or caller.standing is Standing.GUEST
    if room.member(caller.name) is None and not may_write:
        raise UnknownMember(caller.name, room.id)


# --------------------
# Notes: added by members that may write in a room, resolved once.


async def add_note(context: Context, caller: Caller, request: AddNote, key: bytes | None) -> Written:
    """Store a note. Its id is that of its event."""
    text = checked_note(request.text, context.policy.note_bytes)
    if request.turn is not None and request.turn < 0:
        raise BadRequest("the turn must be a number of 0 or more")
    room = find_room(context.log.rows, request.room)
    id_ = context.ids.next()
    payload = NoteAdded(room=room.id, note=id_, text=text, turn_id=request.turn)
    draft = _draft(context, caller, payload, id_)

    def decide(rows: Rows) -> Draft:
        # In the commit, because the room and its members may change until then.
        turns = _check(rows, room.id, caller).turn
        if request.turn is not None and request.turn > turns:
            raise NotFound(f"turn {request.turn} in {room.id}", f"the latest turn is {turns}")
        return draft

    # On the room's key: no note is written after the room was closed.
    return Written(event=(await context.log.commit(stick_key(room.base), decide, request_key=key)).event)


async def resolve_note(context: Context, caller: Caller, request: ResolveNote, key: bytes | None) -> Written:
    """Write that a note is resolved; nothing if it already is."""
    room = find_room(context.log.rows, request.room)
    _check(context.log.rows, room.id, caller)
    note = find_note(context.log.rows, room.id, request.note)
    payload = NoteResolved(room=room.id, note=note.id)
    draft = _draft(context, caller, payload, context.ids.next())

    def decide(rows: Rows) -> Draft | None:
        _check(rows, room.id, caller)
        known = read_note(rows, room.id, note.id)
        return draft if known is not None and known.is_open else None

    # On the key of the note: two callers that resolve it at once write one event.
    return Written(event=(await context.log.commit(f"note/{note.id}", decide, request_key=key)).event)


def _check(rows: Rows, id: str, caller: Caller) -> Room:
    """Return the current state of a room; refuse a caller that may not write in it, and a closed room."""
    room = read_room(rows, id)
    assert room is not None  # it was found just now, and rooms are never removed
    if not room.is_open:
        raise RoomClosed(id)
    check_may_write(room, caller)
    return room


def _draft(context: Context, caller: Caller, payload: Payload, id: str) -> Draft:
    return Draft(
        type=type_of(payload),
        sender=caller.name,
        payload=payload_of(payload),
        id=id,
        ts=context.clock.now_ms(),
        by=caller.by,
    )


# --------------------
# The stick: claims, releases, passes and takeovers, and the bus's actions for offline owners.


async def claim(context: Context, caller: Caller, request: Claim, key: bytes | None) -> Turn:
    """Grant the stick to the caller if it is its turn; else return the current state."""
    _check_can_hold(caller)
    room = find_room(context.log.rows, request.room)
    # Not for the member itself: settling would end its expired reservation. A late member may still claim it
    # while no other has claimed the stick.
    if room.reserved_for != caller.name:
        room = await _settle(context, room)

    def decide(now: RoomSnapshot, id: str) -> Move | NoChange:
        return stick.claim(now, caller.name, id, is_parked=request.is_parked, allows_solo=request.allows_solo)

    # A member that must wait needs no commit, because nothing would be written. Only the owner, or a member
    # that may become it, can be repeating a request that has written an event.
    answer = decide(snapshot_of(context, room), "")
    if isinstance(answer, NoChange) and answer.status != stick.YOUR_TURN:
        return _answered(Moved(event=None, room=room, answer=answer))
    return await _granted(context, caller, room, decide, key)


async def release(context: Context, caller: Caller, request: ReleaseStick, key: bytes | None) -> Written:
    """Release the stick, with a handoff."""
    handoff = checked_handoff(request.handoff)
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context,
        caller,
        room,
        lambda now, id: stick.release(now, caller.name, request.turn, request.lease, handoff),
        key,
    )
    return Written(event=moved.event)


async def pass_on(context: Context, caller: Caller, request: PassStick, key: bytes | None) -> Written:
    """Pass the stick to a member, with a handoff."""
    handoff = checked_handoff(request.handoff)
    if request.is_override:
        require(caller, Standing.OPERATOR, "stick pass --override")
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context,
        caller,
        room,
        lambda now, id: stick.pass_on(
            now,
            caller.name,
            request.turn,
            request.lease,
            request.to,
            handoff,
            is_override=request.is_override,
        ),
        key,
    )
    return Written(event=moved.event)


async def take_over(context: Context, caller: Caller, request: TakeOver, key: bytes | None) -> Turn:
    """Take the stick from an owner that has run out of time, or as an operator from any owner."""
    _check_can_hold(caller)
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
    if not request.reason.strip():
        raise BadRequest("a takeover needs a reason: say in one sentence why you take the stick")
    if request.is_override:
        require(caller, Standing.OPERATOR, "stick takeover --override")
    room = find_room(context.log.rows, request.room)
    return await _granted(
        context,
        caller,
        room,
        lambda now, id: stick.take_over(
            now, caller.name, request.turn, id, request.reason, is_override=request.is_override
        ),
        key,
    )


async def hand_on(context: Context, caller: Caller, request: HandOn, key: bytes | None) -> Written:
    """Pass the stick on for an offline owner; nothing is written if the owner is present."""
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context, caller, room, lambda now, id: stick.hand_on(now, request.turn, request.reason), key
    )
    return Written(event=moved.event)


async def expire(context: Context, caller: Caller, request: ExpireReservation, key: bytes | None) -> Written:
    """End an expired reservation; nothing is written if it has not expired or was claimed."""
    room = find_room(context.log.rows, request.room)
    moved = await move(context, caller, room, lambda now, id: stick.expire(now, request.turn), key)
    return Written(event=moved.event)


async def _granted(context: Context, caller: Caller, room: Room, decide: Decision, key: bytes | None) -> Turn:
    """Write a claim or takeover, or repeat the outcome of an earlier one while its turn lasts.

    A repeated request whose turn has ended meanwhile is decided again, under a key derived from the first.
    """
    while True:
        moved = await move(context, caller, room, decide, key)
        if moved.event is None:
            return _answered(moved)
        if (turn := turn_by(context, moved.event)) is not None:
            return turn
        assert key is not None  # without a key nothing is repeated
        # Derived from both: a repeat of this request follows the same chain of keys to the same event.
        key = hashlib.sha256(key + moved.event.id.encode()).digest()[: len(key)]


def turn_by(context: Context, event: Event) -> Turn | None:
    """Return the outcome of a claim or takeover from the event it wrote; None if its turn has ended."""
    payload = event.body
    assert isinstance(payload, TakenOver | Granted)
    room = find_room(context.log.rows, payload.room)
    if room.lease != payload.lease_id:
        return None
    turn = Turn(status=stick.YOUR_TURN, room=room, event=event)
    if isinstance(payload, TakenOver):
        turn = replace(turn, reason=payload.cause, revoked=event.to[0])
    else:
        turn = replace(turn, reason=payload.reason, sender=payload.sender or "")
    handoff = None if room.brought is None else room.brought.fields
    return replace(turn, turn=payload.turn_id, lease=payload.lease_id, handoff=handoff)


def _answered(moved: Moved) -> Turn:
    room, answer = moved.room, moved.answer
    assert answer is not None  # nothing was written, so there is an answer
    turn = Turn(
        status=answer.status,
        room=room,
        reason=answer.reason,
        turn=room.turn,
        look_again_ms=answer.look_again_ms,
        hint=answer.hint,
    )
    if answer.status != stick.YOUR_TURN:
        return turn
    handoff = None if room.brought is None else room.brought.fields
    return replace(turn, lease=room.lease, handoff=handoff, sender=room.prior_owner)


async def _settle(context: Context, room: Room) -> Room:
    """Apply due changes of a room before its state is returned, so that no caller waits for the timer."""
    now = snapshot_of(context, room)
    if stick.expire(now, room.turn) is not None:
        await expire(context, SYSTEM_CALLER, ExpireReservation(room=room.id, turn=room.turn), None)
    elif stick.hand_on(now, room.turn, HARNESS_GONE) is not None:
        await hand_on(context, SYSTEM_CALLER, HandOn(room=room.id, turn=room.turn), None)
    return current_room(context, room)


def _check_can_hold(caller: Caller) -> None:
    if caller.standing < Standing.WORKER:
        raise ObserverCannotHoldTurn(caller.name)
