"""The stick: claims, releases, passes and takeovers, and the bus's actions for offline owners.

The rows of the table in `broker.py` for the stick: that module only knows which function decides.
"""

import hashlib
from dataclasses import replace

from palaver.broker.context import SYSTEM_CALLER, Context, Turn, Written
from palaver.broker.rooms import LIMIT_REASON_BYTES, Decision, Moved, current_room, moment_of, move
from palaver.domain import stick
from palaver.domain.lease import Moment, Move, NoChange
from palaver.domain.rights import require
from palaver.domain.stick import checked_handoff
from palaver.errors import ObserverCannotHoldTurn
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.events import Granted, TakenOver
from palaver.protocol.requests import (
    HARNESS_GONE,
    Claim,
    ExpireReservation,
    HandOn,
    PassStick,
    ReleaseStick,
    TakeOver,
)
from palaver.protocol.text import check_text
from palaver.state.rooms import Room, find_room


async def claim(context: Context, caller: Caller, request: Claim, key: bytes | None) -> Turn:
    """Grant the stick to the caller if it is its turn; else return the current state."""
    _check_can_hold(caller)
    room = find_room(context.log.rows, request.room)
    # A late member may still claim its reservation while no other has claimed the stick.
    if room.reserved_for != caller.name:
        room = await _settle(context, room)

    def decide(now: Moment, id: str) -> Move | NoChange:
        return stick.claim(now, caller.name, id, is_parked=request.is_parked, allows_solo=request.allows_solo)

    # A member that must wait needs no commit, because nothing would be written. Only the owner, or a member
    # that may become it, can be repeating a request that has written an event.
    answer = decide(moment_of(context, room), "")
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
    now = moment_of(context, room)
    if stick.expire(now, room.turn) is not None:
        await expire(context, SYSTEM_CALLER, ExpireReservation(room=room.id, turn=room.turn), None)
    elif stick.hand_on(now, room.turn, HARNESS_GONE) is not None:
        await hand_on(context, SYSTEM_CALLER, HandOn(room=room.id, turn=room.turn), None)
    return current_room(context, room)


def _check_can_hold(caller: Caller) -> None:
    if caller.standing < Standing.WORKER:
        raise ObserverCannotHoldTurn(caller.name)
