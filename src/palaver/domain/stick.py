"""Decide about each request for the stick, and about leaving, removing members and closing a room. Pure.

Each function takes a snapshot and returns a `Move` to write, or an `Answer` if there is nothing to write. A
refused request raises an error.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

import msgspec
from msgspec.structs import replace

from palaver.domain.lease import (
    Cause,
    Move,
    NoChange,
    RoomSnapshot,
    gone_at_ms,
    is_before,
    is_gone,
    lease_until_ms,
    member_of,
    outlook,
    reservation_until_ms,
)
from palaver.errors import (
    BadRequest,
    BadText,
    CannotKickSelf,
    InvalidHandoff,
    NotAllowed,
    NotOwner,
    ParkRequiresRelease,
    RecipientUnreachable,
    RoomClosed,
    StaleLease,
    TakeoverIneligible,
    TakeoverNotAvailable,
    TargetActive,
    TurnMismatch,
    UnknownMember,
    UnknownTarget,
)
from palaver.ids import derived_id
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.events import (
    MEMBER_LEFT,
    Closed,
    Granted,
    Kicked,
    MemberLeft,
    Passed,
    Released,
    ReservationExpired,
    TakenOver,
)
from palaver.protocol.requests import KICKED
from palaver.protocol.text import check_text
from palaver.state.rooms import Member, Room, StickState, find_member

YOUR_TURN: Final = "your_turn"
NOT_YET: Final = "not_yet"
TAKEOVER_AVAILABLE: Final = "takeover_available"
CLOSED: Final = "closed"

OPEN_CLAIM: Final = "open_claim"
SEQUENCE: Final = "sequence"
DIRECT_PASS: Final = "direct_pass"  # noqa: S105 - a reason
ALREADY_OWNER: Final = "already_owner"


def claim(now: RoomSnapshot, name: str, lease: str, *, is_parked: bool, allows_solo: bool) -> Move | NoChange:
    """Decide about a member that asks for its turn."""
    room = now.room
    if not room.is_open:
        return NoChange(status=CLOSED)
    me = member_of(room, name)
    if room.state == StickState.OWNED:
        return _ask_holder(now, name, is_parked=is_parked)
    if room.reserved_for == name:
        return _grant(now, name, lease, DIRECT_PASS if room.is_direct else SEQUENCE)
    if room.state == StickState.RESERVED:
        return NoChange(
            status=NOT_YET, look_again_ms=now.left_ms(reservation_until_ms(room, now.facts, now.policy))
        )
    if is_parked:
        return _parked(room)
    if not allows_solo and not any(now.facts.of(one).is_present for one in room.names if one != name):
        return NoChange(
            status=NOT_YET,
            reason="solo_claim_disabled",
            hint="No other member is present; the stick is free.",
        )
    return _wait_for_others(now, me) or _grant(now, name, lease, SEQUENCE if room.pending else OPEN_CLAIM)


def _ask_holder(now: RoomSnapshot, name: str, *, is_parked: bool) -> NoChange:
    """Return the result while the stick is owned: by the caller, or by a member it may be taken from."""
    room = now.room
    if room.owner == name:
        left = lease_until_ms(room, now.facts, now.policy) - now.facts.now_ms
        if left <= 0:
            hint = "Your lease has expired; a heartbeat renews it until another member takes over."
            return NoChange(status=NOT_YET, reason="lease_expired", hint=hint)
        if is_parked:
            raise ParkRequiresRelease(room.id)
        return NoChange(status=YOUR_TURN, reason=ALREADY_OWNER, look_again_ms=left)
    found = outlook(room, now.facts, now.policy)
    again = now.left_ms(found.changes_ms)
    if found.cause is None or _why_ineligible(now, name):
        return NoChange(status=NOT_YET, look_again_ms=again)
    return NoChange(status=TAKEOVER_AVAILABLE, reason=found.cause.value, look_again_ms=again)


def _parked(room: Room) -> NoChange:
    if room.pending is None:
        return NoChange(status=NOT_YET)
    hint = f"There is a pending handoff by {room.pending.by}; claim without parking to take the stick."
    return NoChange(status=NOT_YET, reason="auto_claim_disabled", hint=hint)


def _wait_for_others(now: RoomSnapshot, me: Member) -> NoChange | None:
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


def _deferred(now: RoomSnapshot, reason: str, until_ms: int, hint: str) -> NoChange:
    return NoChange(status=NOT_YET, reason=reason, look_again_ms=now.left_ms(until_ms), hint=hint)


def _grant(now: RoomSnapshot, name: str, lease: str, reason: str) -> Move:
    room = now.room
    granted = Granted(
        room=room.id,
        turn_id=room.turn + 1,
        lease_id=lease,
        reason=reason,
        sender=room.prior_owner or None,
        until=now.facts.now_ms + now.policy.lease_ms,
    )
    return Move(payload=granted, to=(name,))


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


def release(now: RoomSnapshot, name: str, turn: int, lease: str, handoff: dict[str, object]) -> Move:
    """Decide about an owner that releases the stick for the next member."""
    check_holder(now.room, name, turn, lease)
    return _free(now, Released(room=now.room.id, turn_id=turn, handoff=handoff), giver=name)


def pass_on(
    now: RoomSnapshot,
    name: str,
    turn: int,
    lease: str,
    to: str,
    handoff: dict[str, object],
    *,
    is_override: bool,
) -> Move:
    """Decide about an owner that passes the stick to a named member."""
    room = now.room
    check_holder(room, name, turn, lease)
    member = find_member(room, to, lambda one: now.facts.of(one).is_present, asking=name)
    if member.name == name:
        raise BadRequest("you already own the stick; release it, or pass it to another member")
    if not is_override and not now.facts.of(member.name).is_present:
        raise RecipientUnreachable(member.name)
    passed = Passed(
        room=room.id,
        turn_id=turn,
        handoff=handoff,
        reserved_for=member.name,
        until=now.facts.now_ms + now.policy.claim_ms,
    )
    return Move(payload=passed, to=(member.name,))


def take_over(now: RoomSnapshot, name: str, turn: int, lease: str, reason: str, *, is_override: bool) -> Move:
    """Decide about a member that takes the stick from another."""
    room = now.room
    if not room.is_open:
        raise RoomClosed(room.id)
    member_of(room, name)
    check_turn(room, turn)
    loser = room.owner or room.reserved_for
    if not loser:
        raise TakeoverNotAvailable("it is free; 'pal stick claim' takes it")
    if loser == name:
        raise TakeoverIneligible(
            "it is yours; 'pal stick heartbeat' renews your lease, 'pal stick claim' takes a reserved stick"
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
    return Move(payload=taken, to=(loser,))


def _cause(now: RoomSnapshot, name: str) -> Cause:
    cause = outlook(now.room, now.facts, now.policy).cause
    if cause is None:
        word = "owns it" if now.room.owner else "has it reserved"
        raise TakeoverNotAvailable(
            f"{now.room.owner or now.room.reserved_for} {word} and still has time; 'pal stick wait' waits "
            "for it"
        )
    if reason := _why_ineligible(now, name):
        raise TakeoverIneligible(reason)
    return cause


def _why_ineligible(now: RoomSnapshot, name: str) -> str:
    """Return why a member cannot take over although others can; empty if it can."""
    room = now.room
    if name != room.prior_owner or not any(now.others(name, room.owner, room.reserved_for)):
        return ""
    return "you owned it last, and other members can take it; 'pal stick wait' waits for your turn"


def hand_on(now: RoomSnapshot, turn: int, reason: str) -> Move | None:
    """Decide about an exited owner of this turn: the stick is released without a handoff."""
    room = now.room
    is_over = room.state == StickState.OWNED and room.turn == turn
    if not is_over or not is_gone(room, room.owner, now.facts, now.policy):
        return None
    freed = Released(room=room.id, turn_id=turn, reason=reason, sender=room.owner)
    return _free(now, freed, giver=room.owner)


def expire(now: RoomSnapshot, turn: int) -> Move | None:
    """Decide about an unclaimed reservation: it goes to the next waiter or ends. The handoff stays."""
    room = now.room
    is_reserved = room.state == StickState.RESERVED and room.turn == turn
    if not is_reserved or reservation_until_ms(room, now.facts, now.policy) > now.facts.now_ms:
        return None
    late = room.reserved_for
    freed = ReservationExpired(room=room.id, turn_id=turn, sender=room.prior_owner or None)
    return _free(now, freed, giver=room.prior_owner, late=late)


def _free(now: RoomSnapshot, freed: Released | ReservationExpired, *, giver: str, late: str = "") -> Move:
    """Reserve the stick for the fairest waiter, or free it if no member waits."""
    following = now.next_waiter(giver, late)
    if following is not None:
        until = now.facts.now_ms + now.policy.claim_ms
        freed = replace(freed, reserved_for=following.name, until=until)
    to = late or freed.reserved_for
    return Move(payload=freed, to=(to,) if to else ())


# --------------------
# Handoffs: notes from one owner of the stick to the next. They are only checked here. Pure.
#
# `status` and `next_action` are required; `artifacts`, `open_questions` and `do_not` must be lists if
# present. Unknown keys are kept.

LIMIT_HANDOFF_BYTES: Final = 32 * 1024

NEEDED: Final = ("status", "next_action")
LISTS: Final = ("artifacts", "open_questions", "do_not")

_WHOLE: Final = "content"
_LIMIT_SHOWN: Final = 40


def checked_handoff(handoff: Mapping[str, object]) -> dict[str, object]:
    """Return a handoff as it is stored; raises `InvalidHandoff` with the name of the invalid field."""
    made = _as_json(handoff)
    for field in NEEDED:
        _check_words(field, made.get(field))
    for field in LISTS:
        if field in made:
            _check_list(field, made[field])
    for field, value in made.items():
        _check_characters(_WHOLE, field)
        _check_characters(field, value)
    return made


def _as_json(handoff: Mapping[str, object]) -> dict[str, object]:
    """Return the handoff as it will be read from the log."""
    try:
        text = msgspec.json.encode(handoff)
        made = msgspec.json.decode(text, type=dict[str, object])
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidHandoff(_WHOLE, f"cannot be stored as JSON: {error}") from error
    if len(text) > LIMIT_HANDOFF_BYTES:
        raise InvalidHandoff(
            _WHOLE,
            f"has {len(text)} bytes; the limit is {LIMIT_HANDOFF_BYTES}. Name files instead of their content",
        )
    return made


def _check_words(field: str, value: object) -> None:
    if value is None:
        raise InvalidHandoff(field, "is missing; write one sentence")
    if not isinstance(value, str) or not value.strip():
        raise InvalidHandoff(field, "must be a sentence, not " + _shown(value))


def _check_list(field: str, value: object) -> None:
    fits = _is_artifact if field == "artifacts" else _is_words
    if not isinstance(value, list):
        raise InvalidHandoff(field, "must be a list, not " + _shown(value))
    for number, one in enumerate(value, 1):
        if not fits(one):
            wanted = "a text or {path, lines?, note?}" if field == "artifacts" else "a text"
            raise InvalidHandoff(field, f"must have {wanted} as item {number}, not {_shown(one)}")


def _is_words(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_artifact(value: object) -> bool:
    if not isinstance(value, dict):
        return _is_words(value)
    return (
        _is_words(value.get("path"))
        and _is_lines(value.get("lines"))
        and isinstance(value.get("note", ""), str)
    )


def _is_lines(value: object) -> bool:
    """Return whether the value is missing, a number, a range as a text, or a list of those."""
    parts = value if isinstance(value, list) else [value]
    return value is None or all(isinstance(part, (int, str)) and not isinstance(part, bool) for part in parts)


def _check_characters(field: str, value: object) -> None:
    for text in _texts(value):
        try:
            check_text(text, field, LIMIT_HANDOFF_BYTES)
        except BadText as error:
            reason = f"contains the character U+{error.codepoint:04X}, which is not allowed"
            raise InvalidHandoff(field, reason) from error


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a value at any depth, including keys."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            rest += one


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _LIMIT_SHOWN else f"{text[:_LIMIT_SHOWN]}…"


# --------------------
# Leaving, removing members, and closing a room.


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
    return Move(payload=left, id=derived_id(kick, MEMBER_LEFT, name))


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
