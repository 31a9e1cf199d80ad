"""The commands about the stick."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from palaver.doors.cli.call import EXIT_NOTHING, EXIT_REFUSED, Call, room_of, room_of_repeat
from palaver.doors.cli.rooms import ROOM, handoff_from, lease_lines, not_yet_line, text_from_stdin, turn_lines
from palaver.doors.cli.spec import Command, Option, Positional, timeout_ms
from palaver.errors import NotOwner, RoomClosed, StaleLease, UsageError
from palaver.harness.marks import harness_of
from palaver.protocol.display import Paint, paint_for
from palaver.protocol.query import RoomEvent
from palaver.services.results import FreedStick, GrantedTurn, TurnView
from palaver.state.rooms import find_room

# --------------------
# Rows of the commands about the stick.

_GROUP: Final = "The stick"

_LEASE: Final = (
    Option(name="--lease", metavar="LEASE", help="The expected lease (default: your current one)."),
    Option(name="--turn", metavar="N", help="The expected turn (default: the current one)."),
)
_HANDOFF: Final = (
    Option(name="--status", metavar="TEXT", help="Handoff: the current state of the work."),
    Option(name="--next", metavar="TEXT", help="Handoff: the next step."),
    Option(
        name="--artifact",
        metavar="FILE",
        help="Handoff: a file to look at: FILE, FILE:3 or FILE:10-80. May be repeated.",
        many=True,
        completes="files",
    ),
    Option(
        name="--question",
        metavar="TEXT",
        help="Handoff: an open question. May be repeated.",
        many=True,
    ),
    Option(
        name="--do-not",
        metavar="TEXT",
        help="Handoff: an action to avoid. May be repeated.",
        many=True,
    ),
    Option(
        name="--handoff",
        metavar="JSON",
        help="The whole handoff as one JSON object, or - for standard input.",
    ),
)
_EXCLUSIVE: Final = tuple(("--handoff", option.name) for option in _HANDOFF if option.name != "--handoff")

_WAITING: Final = (
    Option(name="--no-solo", help="Do not take it while you are alone in the room."),
    ROOM,
)

STICK_COMMANDS: Final = (
    Command(
        path=("stick",),
        group=_GROUP,
        summary="Take turns: only the owner of the stick may write.",
        description=(
            "Each room has one stick. Only the member that owns it changes files in the workspace. Take it "
            "with 'wait' or 'claim'; give it up with 'release' or 'pass', with notes for the next owner (a "
            "handoff)."
        ),
        is_group=True,
        examples=(("pal stick wait", "wait for my turn"),),
        see=(("the stick", "stick.md"),),
    ),
    Command(
        path=("stick", "wait"),
        group=_GROUP,
        summary="Wait until you own the stick.",
        description=(
            "Then shows the handoff of the previous owner. An owner that is only idle does not end the wait."
        ),
        options=(
            Option(
                name="--timeout",
                metavar="TIME",
                help="Wait at most this long: 30 (seconds), 250ms, 5m (default: no limit).",
            ),
            Option(name="--park", help="Take it only if it is passed to you or reserved for you."),
            Option(name="--events", help="Also show messages and events for you in the meantime."),
            Option(
                name="--after",
                metavar="SEQ",
                help="With --events: only events after this seq (default: unread).",
            ),
            *_WAITING,
        ),
        examples=(
            ("pal stick wait", "wait without a limit"),
            ("pal stick wait --timeout 10m", "wait at most ten minutes"),
            ("pal stick wait --park", "only if it is passed to me"),
            ("pal stick wait --events", "also show what I have missed"),
        ),
        statuses=(
            (0, "It is your turn."),
            (
                1,
                (
                    "The room was closed, or 'pal stick takeover' is possible because the owner has exited "
                    "or its lease has expired."
                ),
            ),
            (3, "The time of --timeout is over, and it is not your turn."),
        ),
    ),
    Command(
        path=("stick", "claim"),
        group=_GROUP,
        summary="Take the stick if it is free.",
        description="Tries once and does not wait.",
        options=_WAITING,
        examples=(("pal stick claim", "take it now, if possible"),),
        statuses=(
            (0, "It is your turn."),
            (1, "As for 'pal stick wait'."),
            (3, "It is not your turn."),
        ),
    ),
    Command(
        path=("stick", "heartbeat"),
        group=_GROUP,
        summary="Renew your lease of the stick.",
        description=(
            "Shows that you still work. Every other command renews the lease too, so you need this only if "
            "you are silent for a long time."
        ),
        options=(*_LEASE, ROOM),
        examples=(("pal stick heartbeat", "I am still working"),),
    ),
    Command(
        path=("stick", "release"),
        group=_GROUP,
        summary="Release the stick, with a handoff.",
        description=(
            "The stick goes to the waiting member that has never had it or had it longest ago. A handoff "
            "requires --status and --next; the next owner sees all of it."
        ),
        options=(*_HANDOFF, *_LEASE, ROOM),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick release --status "parser done" --next "wire it in"', "with the required notes"),
            (
                'pal stick release --status "tests pass" --next review --artifact a.py:3 --do-not publish',
                "with more notes",
            ),
            ("cat handoff.json | pal stick release --handoff -", "handoff from a program"),
        ),
        see=(("handoffs", "stick.md#handoffs"),),
    ),
    Command(
        path=("stick", "pass"),
        group=_GROUP,
        summary="Pass the stick to one member, with a handoff.",
        description=(
            "The stick is reserved for that member. If the member is away, this requires --override and an "
            "operator or a person."
        ),
        positionals=(Positional(name="NAME", help="The next owner.", completes="agents"),),
        options=(
            *_HANDOFF,
            Option(name="--override", help="Also pass it to a member that is away."),
            *_LEASE,
            ROOM,
        ),
        exclusive=_EXCLUSIVE,
        examples=(
            ('pal stick pass nova --status "done" --next "review src/auth"', "nova is the next owner"),
        ),
        see=(("handoffs", "stick.md#handoffs"),),
    ),
    Command(
        path=("stick", "takeover"),
        group=_GROUP,
        summary="Take the stick from an owner that is gone or idle.",
        description=(
            "Possible if the owner has exited, its lease has expired or it has been idle for a long time, or "
            "if a reservation was not claimed. With --override, an operator or a person can take it from any "
            "owner. Check the workspace first: work may be unfinished."
        ),
        options=(
            Option(name="--reason", metavar="TEXT", help="The reason, for the log (required)."),
            Option(name="--override", help="Also take it from an owner that is working."),
            Option(name="--turn", metavar="N", help="The turn you expect to end (default: the current one)."),
            ROOM,
        ),
        examples=(('pal stick takeover --reason "luna is gone"', "continue the work of luna"),),
    ),
)


# --------------------
# Functions of `pal stick`: read the options, call the service for rooms, and show the result.

_OWNER_IDLE: Final = "owner_idle"
_LEASE_EXPIRED: Final = "lease_expired"
_HANDOVER_WAITS: Final = "auto_claim_disabled"
_LIMIT_HANDOFF_BYTES: Final = 1024 * 1024
_NO_FIELDS: Final[Mapping[str, str]] = {}


async def wait(call: Call) -> int:
    """Wait until the caller owns the stick, or until the timeout."""
    timeout = timeout_ms(call.parsed, "--timeout")
    clock = call.services.clock
    end_s = None if timeout is None else clock.monotonic_s() + timeout / 1000
    after = call.parsed.number("--after")
    if after is not None and not call.parsed.has("--events"):
        raise UsageError("--after requires --events")
    room = await room_of(call)
    _print_hint(call, f"waiting for the stick of {room}; Ctrl-C ends it")
    earlier: dict[str, str] = {}
    while True:
        left = None if end_s is None else max(0, round((end_s - clock.monotonic_s()) * 1000))
        with call.connection.waiting():
            answer = await call.services.rooms.wait_for_turn(
                call.caller,
                room_id=room,
                max_wait_ms=left,
                mode="parked" if call.parsed.has("--park") else "claim",
                allow_solo_claim=not call.parsed.has("--no-solo"),
                events=call.parsed.has("--events"),
                after_event_seq=after,
                is_woken_by_events=False,
                limit_ms=None,
                key=call.asked.key,
            )
        if answer.reason != _HANDOVER_WAITS or left == 0:
            if answer.status != "not_yet" or answer.reason is not None:
                earlier = {}
            return await _turn(call, answer, can_be_idle=True, earlier=earlier)
        # A parked member is notified of a waiting handoff, and continues to wait. The service reports it only
        # once, so the last result of this command repeats it.
        earlier = {"reason": answer.reason, **({"hint": answer.hint} if answer.hint else {})}
        _print_hint(call, answer.hint or "")


async def claim(call: Call) -> int:
    """Take the stick if it is free; do not wait."""
    answer = await call.services.rooms.wait_for_turn(
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
    answer = await call.services.rooms.heartbeat(
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
    answer = await call.services.rooms.release_stick(
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
    answer = await call.services.rooms.pass_stick(
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
    reason = call.parsed.value("--reason") or ""
    if not reason.strip():
        raise UsageError("--reason is required: pal stick takeover --reason TEXT")
    room = await room_of(call)
    turn = call.parsed.number("--turn")
    answer = await call.services.rooms.takeover_stick(
        call.caller,
        room_id=room,
        expected_turn_id=find_room(call.services.queries.rows, room).turn if turn is None else turn,
        reason=reason,
        operator_override=call.parsed.has("--override"),
        key=call.asked.key,
    )
    return await _turn(call, answer)


async def _lease(call: Call, word: str) -> tuple[str, int]:
    """Return the lease and turn: those in the options, or those of the caller as the owner."""
    lease, turn = call.parsed.value("--lease"), call.parsed.number("--turn")
    room = find_room(call.services.queries.rows, word)
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


async def _turn(
    call: Call, answer: TurnView, *, can_be_idle: bool = False, earlier: Mapping[str, str] = _NO_FIELDS
) -> int:
    """Show the result, and return its exit status; with `can_be_idle` an idle owner counts as waiting.

    `earlier` are the reason and the hint of an earlier result. They replace those of this one.
    """
    fields = msgspec.to_builtins(answer) | earlier  # Programs read an earlier hint after the events.
    answer = msgspec.structs.replace(answer, **earlier)
    status, reason = answer.status, answer.reason
    is_waiting = status == "not_yet" or (can_be_idle and reason == _OWNER_IDLE)
    if call.is_json:
        await call.say_json(fields)
    elif isinstance(answer, GrantedTurn):
        await call.say_lines(turn_lines(call, answer))
    else:
        call.warn(not_yet_line(call, answer))
    if not call.is_json and answer.events is not None:
        await call.say_lines(event_lines(call, answer.events))
    if isinstance(answer, GrantedTurn):
        return 0
    return EXIT_NOTHING if is_waiting and reason != _LEASE_EXPIRED else EXIT_REFUSED


async def _given(call: Call, answer: FreedStick) -> int:
    if call.is_json:
        await call.say_json(answer)
        return 0
    whose = answer.reserved_for
    await call.say(
        call.safe(
            f"the stick is reserved for {whose}" if whose else "the stick is free; no member waits for it"
        )
    )
    return 0


def _print_hint(call: Call, text: str) -> None:
    """Print a hint on a terminal: a command that is silent for a long time looks as if it hangs."""
    asked = call.asked
    if asked.stderr_is_terminal and not call.is_json:
        harness = call.caller.harness or harness_of(asked.environment)
        paint = paint_for(asked.environment, is_terminal=True, harness=harness)
        call.connection.write_error(paint.dim(paint.safe(text)) + "\n")


# --------------------
# Rendering: events of a room for people, from a result of the service for rooms. Makes no requests.


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an event of a room: only a message has a body."""

    body: object = None


def event_lines(call: Call, events: Sequence[RoomEvent]) -> Iterator[str]:
    """Yield messages and other events, each starting on a separate line; a text may have several lines."""
    for one in events:
        to = [one.to_agent_id] if isinstance(one.to_agent_id, str) else one.to_agent_id or []
        paint = call.paint
        whom = f" → {paint.names(to)}" if to else ""
        head = paint.dim(f"#{one.event_seq} {call.clock_time(one.created_at)}")
        yield f"{head} {paint.name(one.from_agent_id or 'unknown')}{whom}: {_event_text(paint, one)}"


def _event_text(paint: Paint, one: RoomEvent) -> str:
    body = msgspec.convert(one.payload or {}, _Content).body
    if one.event_type == "message_sent" and isinstance(body, str):
        return paint.safe(body, keep_lines=True).replace("\n", "\n  ")
    return paint.safe(one.event_type if not one.reason else f"{one.event_type} ({one.reason})")
