"""Apply events to a room. Pure and strict: an event that does not fit the room raises ValueError.

So each turn has one owner, and only the owner passes the stick on, whatever the log contains.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from palaver.model.envelope import Event
from palaver.rooms import payloads
from palaver.rooms.names import check_room_id
from palaver.rooms.payloads import Ended, Freed, Granted, MemberJoined, MemberLeft, TakenOver
from palaver.rooms.room import Handover, Member, Room, StickState


def apply_to_room(room: Room | None, event: Event, former: Member | None = None) -> Room:
    """Return the room after an event; `former` is the earlier membership of a joining agent.

    Raises ValueError, TypeError or a msgspec error for an event that cannot have happened.
    """
    payload = payloads.read_payload(event)
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
    if former is not None:
        back = replace(former, joined_ms=event.ts, harness=payload.harness)
        members = sorted((*room.members, back), key=lambda member: member.ordinal)
        return replace(room, members=tuple(members))
    ordinal = room.next_ordinal
    new = Member(name=event.sender, ordinal=ordinal, harness=payload.harness, joined_ms=event.ts)
    return replace(room, members=(*room.members, new), next_ordinal=ordinal + 1)


def _left(room: Room, event: Event, payload: MemberLeft) -> Room:
    if payload.kick:
        return room  # The kick removed the member already, and it may have joined again.
    return _without(room, payload.member or event.sender, event.ts)


def _kicked(room: Room, event: Event, payload: Ended) -> Room:
    (target,) = event.to
    return _without(room, target, event.ts)


def _without(room: Room, name: str, ts: int) -> Room:
    """Remove a member. The turn of an owner ends with it; the handoff of a reservation stays for the next."""
    if room.member(name) is None:
        raise ValueError(f"{name} is not in {room.id}")
    left = replace(room, members=tuple(member for member in room.members if member.name != name))
    if name == room.owner:
        return _lies_free(left, giver=name, ts=ts)
    if name == room.reserved_for:
        return _lies_free(left, giver=room.prior_owner, ts=ts, pending=room.pending)
    return left


def _closed(room: Room, event: Event, payload: Ended) -> Room:
    free = _lies_free(room, giver=room.owner or room.prior_owner, ts=event.ts, pending=room.pending)
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
    return _holds(replace(room, prior_owner=room.owner or room.prior_owner), event.sender, event, payload)


def _holds(room: Room, grantee: str, event: Event, payload: Granted | TakenOver) -> Room:
    member = room.member(grantee)
    if member is None or payload.turn_id != room.turn + 1:
        raise ValueError(f"turn {payload.turn_id} of {room.id} is not {grantee}'s")
    holder = replace(member, last_turn=payload.turn_id, last_owned_ms=event.ts)
    return replace(
        _lies_free(room, giver=room.prior_owner, ts=0),
        members=tuple(holder if one.name == grantee else one for one in room.members),
        state=StickState.OWNED.value,
        turn=payload.turn_id,
        owner=grantee,
        lease=payload.lease_id,
        lease_until_ms=payload.until,
        claimed_ms=event.ts,
        brought=room.pending,
    )


def _given_up(room: Room, event: Event, payload: Freed) -> Room:
    """Apply a release or a pass. A release by the bus for an exited owner has no handoff."""
    giver = payload.sender or event.sender
    if giver != room.owner or payload.turn_id != room.turn:
        raise ValueError(f"{giver} has not the stick of {room.id}")
    left = None
    if payload.handoff is not None:
        left = Handover(by=giver, seq=event.seq, fields=payload.handoff)
    return _is_next(room, event, payload, giver=giver, pending=left)


def _lapsed(room: Room, event: Event, payload: Freed) -> Room:
    (late,) = event.to
    if late != room.reserved_for or payload.turn_id != room.turn:
        raise ValueError(f"nothing is reserved for {late} in {room.id}")
    freed = _is_next(room, event, payload, giver=room.prior_owner, pending=room.pending)
    return replace(freed, lapsed=late)


def _is_next(room: Room, event: Event, payload: Freed, *, giver: str, pending: Handover | None) -> Room:
    free = _lies_free(room, giver=giver, ts=event.ts, pending=pending)
    if not payload.reserved_for:
        return free
    if room.member(payload.reserved_for) is None or payload.reserved_for == room.owner:
        raise ValueError(f"{payload.reserved_for} cannot be next in {room.id}")
    return replace(
        free,
        state=StickState.RESERVED.value,
        reserved_for=payload.reserved_for,
        is_direct=event.type == payloads.PASS,
        claim_until_ms=payload.until,
    )


def _lies_free(room: Room, *, giver: str, ts: int, pending: Handover | None = None) -> Room:
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
    payloads.RELEASE: _given_up,
    payloads.PASS: _given_up,
    payloads.RESERVATION_EXPIRED: _lapsed,
}
