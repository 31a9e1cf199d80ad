"""Decide about leaving, removing members, and closing a room. Pure."""

from math import ceil

from palaver.domain.lease import Move, RoomSnapshot, gone_at_ms, is_gone, member_of
from palaver.errors import CannotKickSelf, NotAllowed, RoomClosed, TargetActive, UnknownMember, UnknownTarget
from palaver.ids import derived_id
from palaver.protocol import events as payloads
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.events import Closed, Kicked, MemberLeft
from palaver.protocol.requests import KICKED
from palaver.state.rooms import Room, find_member


def leave(room: Room, name: str, reason: str) -> Move:
    """Decide about a member that leaves."""
    _check_open(room)
    member_of(room, name)
    return Move(payload=MemberLeft(room=room.id, reason=reason))


def retire(room: Room, name: str, reason: str) -> Move | None:
    """Decide about a member that the bus removes; None if it is not a member."""
    if not room.is_open or room.member(name) is None:
        return None
    return Move(payload=MemberLeft(room=room.id, reason=reason, member=name))


def tell_kick(room: Room, name: str, kick: str) -> Move | None:
    """Decide about the notice of a kick; None if the room is closed."""
    if not room.is_open:
        return None
    left = MemberLeft(room=room.id, reason=KICKED, member=name, kick=kick)
    return Move(payload=left, id=derived_id(kick, payloads.MEMBER_LEFT, name))


def kick(now: RoomSnapshot, caller: Caller, target: str, reason: str, *, is_forced: bool) -> Move:
    """Decide about a member that another agent removes.

    Any member can remove an exited member. Only an operator can remove a present one, and it need not be a
    member.
    """
    room = now.room
    _check_open(room)
    found = _target(now, caller, target)
    if not is_gone(room, found, now.facts, now.policy):
        if not is_forced:
            raise TargetActive(found, _gone_in_s(now, found))
        if not _is_operator(caller):
            raise NotAllowed("room kick --force", caller.standing.word, Standing.OPERATOR.word)
    return Move(payload=Kicked(room=room.id, reason=reason), to=(found,))


def _gone_in_s(now: RoomSnapshot, name: str) -> int | None:
    """Return in how many seconds a member counts as exited; None while its process may be alive."""
    gone_ms = gone_at_ms(now.room, name, now.facts, now.policy)
    return None if gone_ms is None else ceil((gone_ms - now.facts.now_ms) / 1000)


def _target(now: RoomSnapshot, caller: Caller, target: str) -> str:
    room = now.room
    try:
        found = find_member(room, target, lambda name: now.facts.of(name).is_present, asking=caller.name).name
    except UnknownMember:
        found = ""
    if found == caller.name:
        raise CannotKickSelf(room.id)
    if room.member(caller.name) is None and not _is_operator(caller):
        raise UnknownMember(caller.name, room.id)
    if not found:
        raise UnknownTarget(target, room.id)
    return found


def close(room: Room, reason: str) -> Move:
    """Decide about closing a room."""
    _check_open(room)
    return Move(payload=Closed(room=room.id, reason=reason))


def _check_open(room: Room) -> None:
    if not room.is_open:
        raise RoomClosed(room.id)


def _is_operator(caller: Caller) -> bool:
    return caller.standing >= Standing.OPERATOR
