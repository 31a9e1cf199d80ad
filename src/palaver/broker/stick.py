"""The stick: who asks for it, who gives it up, and what the bus does about those who are gone."""

import hashlib
from dataclasses import replace

from palaver.broker.context import SYSTEM_CALLER, Context
from palaver.broker.outcome import Turn, Written
from palaver.broker.room_moves import Decision, Moved, current_room, moment_of, move
from palaver.broker.rooms import LIMIT_REASON_BYTES
from palaver.errors import ObserverCannotHoldTurn
from palaver.log.fold_rooms import find_room
from palaver.model.agent import Caller, Standing
from palaver.model.envelope import Event
from palaver.model.room import (
    HARNESS_GONE,
    Claim,
    ExpireReservation,
    HandOn,
    PassStick,
    ReleaseStick,
    TakeOver,
)
from palaver.model.text import check_text
from palaver.rooms import stick
from palaver.rooms.handoff import checked_handoff
from palaver.rooms.payloads import Granted, TakenOver, read_payload
from palaver.rooms.room import Room
from palaver.routing.policy import require


async def claim(context: Context, caller: Caller, request: Claim, key: bytes | None) -> Turn:
    """Give the stick to the caller if it is its turn, and say how it stands if it is not."""
    _check_can_hold(caller)
    room = find_room(context.log.rows, request.room)
    if room.reserved_for != caller.name:  # Who comes late takes what is its own, as long as nobody else has.
        room = await _settle(context, room)
    return await _granted(
        context,
        caller,
        room,
        lambda now, id: stick.claim(
            now, caller.name, id, is_parked=request.is_parked, allows_solo=request.allows_solo
        ),
        key,
    )


async def release(context: Context, caller: Caller, request: ReleaseStick, key: bytes | None) -> Written:
    """Give the stick up, with a hand-over."""
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
    """Give the stick to somebody, with a hand-over."""
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
    """Take the stick from one who has run out of time, or as an operator from anybody."""
    _check_can_hold(caller)
    check_text(request.reason, "the reason", LIMIT_REASON_BYTES)
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
    """Hand the stick on for a holder that is surely gone; nothing is written when it is not."""
    room = find_room(context.log.rows, request.room)
    moved = await move(
        context, caller, room, lambda now, id: stick.hand_on(now, request.turn, request.reason), key
    )
    return Written(event=moved.event)


async def expire(context: Context, caller: Caller, request: ExpireReservation, key: bytes | None) -> Written:
    """Put a reservation that has run out back in line; nothing is written when it has not, or was claimed."""
    room = find_room(context.log.rows, request.room)
    moved = await move(context, caller, room, lambda now, id: stick.expire(now, request.turn), key)
    return Written(event=moved.event)


async def _granted(context: Context, caller: Caller, room: Room, decide: Decision, key: bytes | None) -> Turn:
    """Write a claim or takeover, or repeat the outcome of an earlier one as long as its turn lasts.

    A repeated request whose turn has moved on meanwhile is decided again, under a key derived from the first.
    """
    while True:
        moved = await move(context, caller, room, decide, key)
        if moved.event is None:
            return _answered(moved)
        if (turn := turn_by(context, moved.event)) is not None:
            return turn
        assert key is not None  # without a key nothing is repeated
        key = hashlib.sha256(key + moved.event.id.encode()).digest()[: len(key)]


def turn_by(context: Context, event: Event) -> Turn | None:
    """Return what a claim or takeover came to, from the event it wrote; None when its turn has moved on."""
    room = find_room(context.log.rows, str(event.payload["room"]))
    payload = read_payload(event)
    assert isinstance(payload, TakenOver | Granted)
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
    assert answer is not None  # nothing was written, so something was said
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
    """Do what is due in a room before somebody is told how it stands: nobody waits for the daemon's clock."""
    now = moment_of(context, room)
    if stick.expire(now, room.turn) is not None:
        await expire(context, SYSTEM_CALLER, ExpireReservation(room=room.id, turn=room.turn), None)
    elif stick.hand_on(now, room.turn, HARNESS_GONE) is not None:
        await hand_on(context, SYSTEM_CALLER, HandOn(room=room.id, turn=room.turn), None)
    return current_room(context, room)


def _check_can_hold(caller: Caller) -> None:
    if caller.standing < Standing.WORKER:
        raise ObserverCannotHoldTurn(caller.name)
