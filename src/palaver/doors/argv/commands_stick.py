"""`pal stick`: read the options, call the service for rooms, and show the result."""

from typing import Final

from palaver.doors.argv.call import EXIT_NOTHING, Call
from palaver.doors.argv.commands_rooms import room_of, room_of_repeat, text_from_stdin
from palaver.doors.argv.handoff_page import handoff_from
from palaver.doors.argv.refusal import EXIT_REFUSED
from palaver.doors.argv.room_events_page import event_lines
from palaver.doors.argv.room_page import lease_lines, not_yet_line, turn_lines
from palaver.doors.argv.style import paint_for
from palaver.doors.argv.timeouts import timeout_ms
from palaver.doors.desk import Answer
from palaver.errors import NotOwner, RoomClosed, StaleLease, UsageError
from palaver.log.fold_rooms import find_room

_YOUR_TURN: Final = "your_turn"
_OWNER_IDLE: Final = "owner_idle"
_LEASE_EXPIRED: Final = "lease_expired"
_HANDOVER_WAITS: Final = "auto_claim_disabled"
_LIMIT_HANDOFF_BYTES: Final = 1024 * 1024


async def wait(call: Call) -> int:
    """Wait until the caller owns the stick, or until the timeout."""
    timeout = timeout_ms(call.parsed, "--timeout")
    clock = call.services.clock
    end_s = None if timeout is None else clock.monotonic_s() + timeout / 1000
    after = call.parsed.number("--after")
    if after is not None and not call.parsed.has("--events"):
        raise UsageError("--after requires --events")
    room = await room_of(call)
    _murmur(call, f"waiting for the stick of {room}; Ctrl-C ends it")
    told: Answer = {}
    while True:
        left = None if end_s is None else max(0, round((end_s - clock.monotonic_s()) * 1000))
        with call.connection.waiting():
            answer = await call.services.desk.wait_for_turn(
                call.caller,
                room_id=room,
                max_wait_ms=left,
                mode="parked" if call.parsed.has("--park") else "claim",
                allow_solo_claim=not call.parsed.has("--no-solo"),
                events=call.parsed.has("--events"),
                after_event_seq=after,
                limit_ms=None,
                key=call.asked.key,
            )
        if answer.get("reason") != _HANDOVER_WAITS or left == 0:
            if answer.get("status") == "not_yet" and answer.get("reason") is None:
                # The service reports it only once, and this command received it earlier.
                answer = {**answer, **told}
            return await _turn(call, answer, can_be_idle=True)
        # A parked member is notified of a waiting handoff, and continues to wait.
        told = {name: answer[name] for name in ("reason", "hint") if name in answer}
        _murmur(call, str(answer.get("hint", "")))


async def claim(call: Call) -> int:
    """Take the stick if it is free; do not wait."""
    answer = await call.services.desk.wait_for_turn(
        call.caller,
        room_id=await room_of(call),
        max_wait_ms=0,
        allow_solo_claim=not call.parsed.has("--no-solo"),
        key=call.asked.key,
    )
    return await _turn(call, answer)


async def heartbeat(call: Call) -> int:
    """Record that the owner is still working, which extends its lease. Nothing is stored in the log."""
    room = await room_of(call)
    lease, turn = await _lease(call, room)
    answer = await call.services.desk.heartbeat(
        call.caller, room_id=room, lease_id=lease, expected_turn_id=turn
    )
    if call.is_json:
        await call.say_json(answer)
    else:
        await call.say_lines(lease_lines(call, answer))
    return 0


async def release(call: Call) -> int:
    """Release the stick, with a handoff."""
    room = await room_of(call)
    lease, turn = await _lease(call, room)
    handoff = await _handoff(call)
    answer = await call.services.desk.release_stick(
        call.caller,
        room_id=room,
        lease_id=lease,
        expected_turn_id=turn,
        handoff=handoff,
        key=call.asked.key,
    )
    return await _given(call, answer)


async def pass_on(call: Call) -> int:
    """Pass the stick to one member, with a handoff."""
    room = await room_of(call)
    lease, turn = await _lease(call, room)
    handoff = await _handoff(call)
    answer = await call.services.desk.pass_stick(
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


async def takeover(call: Call) -> int:
    """Take the stick from an owner that has lost its right to it, or with --override from any owner."""
    reason = call.parsed.value("--reason")
    if not reason:
        raise UsageError("say why: pal stick takeover --reason TEXT")
    room = await room_of(call)
    turn = call.parsed.number("--turn")
    answer = await call.services.desk.takeover_stick(
        call.caller,
        room_id=room,
        expected_turn_id=find_room(call.services.log.rows, room).turn if turn is None else turn,
        reason=reason,
        operator_override=call.parsed.has("--override"),
        key=call.asked.key,
    )
    return await _turn(call, answer)


async def _lease(call: Call, word: str) -> tuple[str, int]:
    """Return the lease and turn: those in the options, or those of the caller as the owner."""
    lease, turn = call.parsed.value("--lease"), call.parsed.number("--turn")
    room = find_room(call.services.log.rows, word)
    is_holder = room.owner == call.caller.name
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


async def _turn(call: Call, answer: Answer, *, can_be_idle: bool = False) -> int:
    """Show the result, and return its exit status; with `can_be_idle` an idle owner counts as waiting."""
    status, reason = answer.get("status"), answer.get("reason")
    is_waiting = status == "not_yet" or (can_be_idle and reason == _OWNER_IDLE)
    if call.is_json:
        await call.say_json(answer)
    elif status == _YOUR_TURN:
        await call.say_lines(turn_lines(call, answer))
    else:
        call.warn(not_yet_line(call, answer))
    if not call.is_json and "events" in answer:
        await call.say_lines(event_lines(call, answer))
    if status == _YOUR_TURN:
        return 0
    return EXIT_NOTHING if is_waiting and reason != _LEASE_EXPIRED else EXIT_REFUSED


async def _given(call: Call, answer: Answer) -> int:
    if call.is_json:
        await call.say_json(answer)
        return 0
    whose = answer.get("reserved_for")
    await call.say(
        call.safe(f"the stick waits for {whose}" if whose else "the stick is free; nobody waits for it now")
    )
    return 0


def _murmur(call: Call, text: str) -> None:
    """Print a hint on a terminal: a command that is silent for a long time looks as if it hangs."""
    asked = call.asked
    if asked.stderr_is_terminal and not call.is_json:
        paint = paint_for(asked.environment, is_terminal=True, harness=call.caller.harness)
        call.connection.write_error(paint.dim(paint.safe(text)) + "\n")
