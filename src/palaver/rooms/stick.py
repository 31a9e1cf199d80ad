"""Decide about each request for the stick. Pure.

Each function takes a moment and returns a `Move` to write, or an `Answer` if there is nothing to write. A
refused request raises an error.
"""

from typing import Final

from msgspec.structs import replace

from palaver.errors import (
    BadRequest,
    NotOwner,
    ParkRequiresRelease,
    RecipientUnreachable,
    RoomClosed,
    StaleLease,
    TakeoverIneligible,
    TakeoverNotAvailable,
    TurnMismatch,
)
from palaver.rooms import payloads
from palaver.rooms.conditions import Cause, is_gone, lease_until_ms, outlook, reservation_until_ms
from palaver.rooms.fairness import is_before
from palaver.rooms.moment import Answer, Moment, Move, member_of
from palaver.rooms.names import find_member
from palaver.rooms.payloads import Freed, Granted, TakenOver
from palaver.rooms.room import Member, Room, StickState

YOUR_TURN: Final = "your_turn"
NOT_YET: Final = "not_yet"
TAKEOVER_AVAILABLE: Final = "takeover_available"
CLOSED: Final = "closed"

OPEN_CLAIM: Final = "open_claim"
SEQUENCE: Final = "sequence"
DIRECT_PASS: Final = "direct_pass"  # noqa: S105 - a reason
ALREADY_OWNER: Final = "already_owner"


def claim(now: Moment, name: str, lease: str, *, is_parked: bool, allows_solo: bool) -> Move | Answer:
    """Decide about a member that asks for its turn."""
    room = now.room
    if not room.is_open:
        return Answer(status=CLOSED)
    me = member_of(room, name)
    if room.state == StickState.OWNED:
        return _ask_holder(now, name, is_parked=is_parked)
    if room.reserved_for == name:
        return _grant(now, name, lease, DIRECT_PASS if room.is_direct else SEQUENCE)
    if room.state == StickState.RESERVED:
        return Answer(
            status=NOT_YET, look_again_ms=now.left_ms(reservation_until_ms(room, now.facts, now.policy))
        )
    if is_parked:
        return _parked(room)
    if not allows_solo and not any(now.facts.of(one).is_present for one in room.names if one != name):
        return Answer(
            status=NOT_YET,
            reason="solo_claim_disabled",
            hint="No other member is present; the stick is free.",
        )
    return _wait_for_others(now, me) or _grant(now, name, lease, SEQUENCE if room.pending else OPEN_CLAIM)


def _ask_holder(now: Moment, name: str, *, is_parked: bool) -> Answer:
    """Return the result while the stick is owned: by the caller, or by a member it may be taken from."""
    room = now.room
    if room.owner == name:
        left = lease_until_ms(room, now.facts, now.policy) - now.facts.now_ms
        if left <= 0:
            hint = "Your lease has expired; a heartbeat renews it until another member takes over."
            return Answer(status=NOT_YET, reason="lease_expired", hint=hint)
        if is_parked:
            raise ParkRequiresRelease(room.id)
        return Answer(status=YOUR_TURN, reason=ALREADY_OWNER, look_again_ms=left)
    found = outlook(room, now.facts, now.policy)
    again = now.left_ms(found.changes_ms)
    if found.cause is None or _why_ineligible(now, name):
        return Answer(status=NOT_YET, look_again_ms=again)
    return Answer(status=TAKEOVER_AVAILABLE, reason=found.cause.value, look_again_ms=again)


def _parked(room: Room) -> Answer:
    if room.pending is None:
        return Answer(status=NOT_YET)
    hint = f"There is a pending handoff by {room.pending.by}; claim without parking to take the stick."
    return Answer(status=NOT_YET, reason="auto_claim_disabled", hint=hint)


def _wait_for_others(now: Moment, me: Member) -> Answer | None:
    """Return a deferral for the last owner and for members that are not the fairest; None if none applies."""
    room, policy = now.room, now.policy
    cooled = room.idle_since_ms + policy.cooldown_ms
    is_cooling = me.name == room.prior_owner and now.facts.now_ms < cooled
    if is_cooling and any(now.others(me.name, room.lapsed)):
        hint = "You owned the stick last; other members can take it first."
        return _deferred(now, "prior_owner_cooldown", cooled, hint)
    grace = room.idle_since_ms + policy.waiter_grace_ms
    if now.facts.now_ms < grace:
        ahead = (
            one for one in now.others(me.name, room.lapsed, room.prior_owner) if is_before(room, one, me)
        )
        if (first := next(ahead, None)) is not None:
            return _deferred(now, "others_first", grace, f"{first.name} is before you in line.")
    return None


def _deferred(now: Moment, reason: str, until_ms: int, hint: str) -> Answer:
    return Answer(status=NOT_YET, reason=reason, look_again_ms=now.left_ms(until_ms), hint=hint)


def _grant(now: Moment, name: str, lease: str, reason: str) -> Move:
    room = now.room
    granted = Granted(
        room=room.id,
        turn_id=room.turn + 1,
        lease_id=lease,
        reason=reason,
        sender=room.prior_owner or None,
        until=now.facts.now_ms + now.policy.lease_ms,
    )
    return Move(type=payloads.CLAIM, payload=granted, to=(name,))


def check_holder(room: Room, name: str, turn: int, lease: str) -> None:
    """Refuse a caller that does not own the stick by this turn and lease. An expired lease is valid."""
    if not room.is_open:
        raise RoomClosed(room.id)
    member_of(room, name)
    check_turn(room, turn)
    if room.state != StickState.OWNED or lease != room.lease:
        raise StaleLease(turn)
    if name != room.owner:
        raise NotOwner(room.owner)


def check_turn(room: Room, turn: int) -> None:
    """Refuse a caller that refers to another turn."""
    if turn != room.turn:
        raise TurnMismatch(turn, room.turn)


def release(now: Moment, name: str, turn: int, lease: str, handoff: dict[str, object]) -> Move:
    """Decide about an owner that releases the stick for the next member."""
    check_holder(now.room, name, turn, lease)
    return _free(now, payloads.RELEASE, Freed(room=now.room.id, turn_id=turn, handoff=handoff), giver=name)


def pass_on(
    now: Moment, name: str, turn: int, lease: str, to: str, handoff: dict[str, object], *, is_override: bool
) -> Move:
    """Decide about an owner that passes the stick to a named member."""
    room = now.room
    check_holder(room, name, turn, lease)
    member = find_member(room, to, lambda one: now.facts.of(one).is_present, asking=name)
    if member.name == name:
        raise BadRequest("you already own the stick; release it, or pass it to another member")
    if not is_override and not now.facts.of(member.name).is_present:
        raise RecipientUnreachable(member.name)
    freed = Freed(
        room=room.id,
        turn_id=turn,
        handoff=handoff,
        reserved_for=member.name,
        until=now.facts.now_ms + now.policy.claim_ms,
    )
    return Move(type=payloads.PASS, payload=freed, to=(member.name,))


def take_over(now: Moment, name: str, turn: int, lease: str, reason: str, *, is_override: bool) -> Move:
    """Decide about a member that takes the stick from another."""
    room = now.room
    if not room.is_open:
        raise RoomClosed(room.id)
    member_of(room, name)
    check_turn(room, turn)
    loser = room.owner or room.reserved_for
    if not loser:
        raise TakeoverNotAvailable("it is free; claim it")
    if loser == name:
        raise TakeoverIneligible(
            "it is yours; use heartbeat to renew the lease, or claim if it is reserved for you"
        )
    cause = Cause.OPERATOR_OVERRIDE if is_override else _cause(now, name)
    taken = TakenOver(
        room=room.id,
        turn_id=room.turn + 1,
        lease_id=lease,
        cause=cause.value,
        until=now.facts.now_ms + now.policy.lease_ms,
        reason=reason,
    )
    return Move(type=payloads.TAKEOVER, payload=taken, to=(loser,))


def _cause(now: Moment, name: str) -> Cause:
    cause = outlook(now.room, now.facts, now.policy).cause
    if cause is None:
        word = "owns it" if now.room.owner else "has it reserved"
        raise TakeoverNotAvailable(f"{now.room.owner or now.room.reserved_for} {word} and still has time")
    if reason := _why_ineligible(now, name):
        raise TakeoverIneligible(reason)
    return cause


def _why_ineligible(now: Moment, name: str) -> str:
    """Return why a member cannot take over although others can; empty if it can."""
    room = now.room
    if name != room.prior_owner or not any(now.others(name, room.owner, room.reserved_for)):
        return ""
    return "you owned it last, and other members can take it"


def hand_on(now: Moment, turn: int, reason: str) -> Move | None:
    """Decide about an exited owner of this turn: the stick is released without a handoff."""
    room = now.room
    is_over = room.state == StickState.OWNED and room.turn == turn
    if not is_over or not is_gone(room, room.owner, now.facts, now.policy):
        return None
    freed = Freed(room=room.id, turn_id=turn, reason=reason, sender=room.owner)
    return _free(now, payloads.RELEASE, freed, giver=room.owner)


def expire(now: Moment, turn: int) -> Move | None:
    """Decide about an unclaimed reservation: it goes to the next waiter or ends. The handoff stays."""
    room = now.room
    is_reserved = room.state == StickState.RESERVED and room.turn == turn
    if not is_reserved or reservation_until_ms(room, now.facts, now.policy) > now.facts.now_ms:
        return None
    late = room.reserved_for
    freed = Freed(room=room.id, turn_id=turn, sender=room.prior_owner or None)
    return _free(now, payloads.RESERVATION_EXPIRED, freed, giver=room.prior_owner, late=late)


def _free(now: Moment, type: str, freed: Freed, *, giver: str, late: str = "") -> Move:
    """Reserve the stick for the fairest waiter, or free it if no member waits."""
    following = now.next_waiter(giver, late)
    if following is not None:
        until = now.facts.now_ms + now.policy.claim_ms
        freed = replace(freed, reserved_for=following.name, until=until)
    to = late or freed.reserved_for
    return Move(type=type, payload=freed, to=(to,) if to else ())
