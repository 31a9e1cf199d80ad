"""Rooms: join, leave, kick and close, each decided on the single key of the workspace."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from palaver.broker.context import Context
from palaver.broker.outcome import Seated, Written
from palaver.broker.room_moves import move, stick_key
from palaver.errors import BadRequest, RoomNotFound, UnknownMember, WhoAreYou
from palaver.log.api import Rows
from palaver.log.fold_rooms import count_rooms, find_room, read_room, read_room_at, read_rooms_of
from palaver.model.agent import Caller, Standing
from palaver.model.envelope import Draft, Event
from palaver.model.message import HUMAN, INSTANCE
from palaver.model.room import CloseRoom, JoinRoom, KickMember, LeaveRoom, RetireMember, TellKick
from palaver.model.text import check_text
from palaver.rooms import members, payloads
from palaver.rooms.names import folder_name, room_base, room_id
from palaver.rooms.payloads import MemberJoined, payload_of
from palaver.rooms.room import Room

LEFT: Final = "left"
LIMIT_PLACE_BYTES: Final = 4096
LIMIT_REASON_BYTES: Final = 1024


async def join_room(context: Context, caller: Caller, request: JoinRoom, key: bytes | None) -> Seated:
    """Make the caller a member. For a member, and for an observer, nothing is written."""
    _check_places(request)
    if caller.standing < Standing.WORKER:
        return _look_on(context.log.rows, request)
    if caller.kind not in (INSTANCE, HUMAN):
        raise WhoAreYou("a room member needs a name; join the bus first with 'pal join'")
    closed: set[str] = set()
    while True:
        wanted = _Wanted.of(context, caller, request, closed)
        commit = await context.log.commit(stick_key(wanted.base), wanted.decide, request_key=key)
        if commit.event is None and not wanted.is_seated:
            # It was closed meanwhile, which reads may not show yet: join or create another one.
            closed.add(wanted.room_id)
            continue
        rows = context.log.rows
        id_ = wanted.room_id if commit.event is None else str(commit.event.payload["room"])
        return _seated(rows, id_, commit.event, request)


def seated_by(context: Context, event: Event) -> Seated:
    """Return the outcome of a join from the event it wrote."""
    room = _known(context.log.rows, str(event.payload["room"]))
    return Seated(room=room, event=event, is_new=room.seq == event.seq)


def _check_places(request: JoinRoom) -> None:
    if not request.places:
        raise BadRequest("the path of the room is missing")
    for place in (*request.places, *request.inside):
        check_text(place, "the path", LIMIT_PLACE_BYTES)
        if not place.startswith("/"):
            raise BadRequest(f"{place!r} is not an absolute path; write the path of the room from / on")
    check_text(request.name_hint, "the room's name", LIMIT_REASON_BYTES)


def _look_on(rows: Rows, request: JoinRoom) -> Seated:
    room = _nearest(rows, _around(request))
    if room is None:
        raise RoomNotFound(request.places[0])
    return _seated(rows, room.id, None, request)


def _around(request: JoinRoom) -> Sequence[str]:
    """Return the workspaces whose rooms a request can mean, deepest first."""
    return request.places[:1] if request.is_new else (*request.inside, *request.places)


def _nearest(rows: Rows, places: Sequence[str], closed: Set[str] = frozenset()) -> Room | None:
    """Return the open room at the first workspace that has one; rooms in `closed` are skipped."""
    found = (read_room_at(rows, place) for place in places)
    return next((room for room in found if room is not None and room.is_open and room.id not in closed), None)


def _seated(rows: Rows, id: str, event: Event | None, request: JoinRoom) -> Seated:
    room = _known(rows, id)
    is_new = event is not None and room.seq == event.seq
    above = _nearest(rows, request.places[1:]) if is_new else None
    return Seated(
        room=room,
        event=event,
        is_new=is_new,
        ancestor_of="" if room.path in (*request.inside, request.places[0]) else request.places[0],
        nested_in="" if above is None else above.id,
    )


def _known(rows: Rows, id: str) -> Room:
    room = read_room(rows, id)
    assert room is not None  # it was read or written just now, and rooms are never removed
    return room


@dataclass(slots=True, kw_only=True)
class _Wanted:
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
    def of(cls, context: Context, caller: Caller, request: JoinRoom, closed: Set[str]) -> "_Wanted":
        room = _nearest(context.log.rows, _around(request), closed)
        path = request.places[0] if room is None else room.path
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
        room = read_room_at(rows, self.path)
        self.room_id = "" if room is None else room.id
        self.is_seated = False
        if room is not None and room.is_open:
            self.is_seated = room.member(self.caller.name) is not None
            return None if self.is_seated else self._joined(room.id, room.name)
        if not self.is_made:
            return None
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
        context, caller, room, lambda now, id: members.leave(now.room, caller.name, request.reason), key
    )
    return Written(event=moved.event)


async def leave_all_rooms(context: Context, caller: Caller) -> None:
    """Remove an agent that leaves the bus from all its rooms."""
    for room in list(read_rooms_of(context.log.rows, caller.name)):
        await _retire(context, caller, room, caller.name, LEFT)


async def kick_member(context: Context, caller: Caller, request: KickMember, key: bytes | None) -> Written:
    """Remove a member."""
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context,
        caller,
        room,
        lambda now, id: members.kick(
            now, caller, request.target, request.reason, is_forced=request.is_forced
        ),
        key,
    )
    return Written(event=moved.event)


async def close_room(context: Context, caller: Caller, request: CloseRoom, key: bytes | None) -> Written:
    """Close a room."""
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
    room = find_room(context.log.rows, request.room)
    moved = await move(context, caller, room, lambda now, id: members.close(now.room, request.reason), key)
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
        context, caller, room, lambda now, id: members.tell_kick(now.room, request.member, request.kick), key
    )
    return Written(event=moved.event)


async def _retire(
    context: Context, caller: Caller, room: Room, name: str, reason: str, key: bytes | None = None
) -> Written:
    moved = await move(context, caller, room, lambda now, id: members.retire(now.room, name, reason), key)
    return Written(event=moved.event)


def check_may_write(room: Room, caller: Caller) -> None:
    """Refuse a caller that is not a member, unless it is the human or a guest."""
    is_guest = caller.kind == HUMAN or caller.standing == Standing.GUEST
    if room.member(caller.name) is None and not is_guest:
        raise UnknownMember(caller.name, room.id)
