"""`pal recv`: read the caller's mailbox. Messages are shown, flushed, and only then stored as seen."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from palaver.delivery.taker import Taker
from palaver.doors.argv.call import EXIT_NOTHING, Call
from palaver.doors.argv.commands_peek import peek
from palaver.doors.argv.doubts import doubt_names
from palaver.doors.argv.mail_output import batches, count_rest, mail_filter, show, tips_for_agent, told_tips
from palaver.doors.argv.table_messages import DEFAULT_RECV
from palaver.model.delivery import Grade
from palaver.model.envelope import Event
from palaver.model.place import Place
from palaver.model.request import Acknowledge
from palaver.routing.policy import require_own_mail

_tokens: Final = msgspec.json.Decoder(list[Place])
_encode: Final = msgspec.json.Encoder().encode


async def recv(call: Call) -> int:
    """Show the waiting messages, or wait for some; with --follow continue until the client ends."""
    name = call.owner
    limit = call.parsed.number("--limit", least=1) or DEFAULT_RECV
    await doubt_names(call, call.parsed.values("--from"))
    if call.parsed.has("--peek") or call.parsed.has("--after"):
        return await peek(call, name, limit)
    require_own_mail(call.caller)
    if await _has_resumed(call) and not call.parsed.has("--follow"):
        return 0
    is_pushed = call.parsed.has("--follow")
    taker = call.services.delivery.take(name, passes=mail_filter(call), is_pushed=is_pushed)
    try:
        return await _take(call, taker, limit)
    finally:
        taker.close()


async def _take(call: Call, taker: Taker, limit: int) -> int:
    timeout_s = call.parsed.duration_s("--timeout")
    if call.parsed.has("--follow"):
        return await _follow(call, taker, limit, timeout_s)
    if call.parsed.has("--wait") or timeout_s is not None:
        events = await _next(call, taker, limit, _deadline(timeout_s))
    else:
        events = taker.poll(limit)
        if not events and call.is_terminal and not call.is_json:
            await call.say(call.paint.dim("nothing is waiting for you"))
    if events is None:
        return EXIT_NOTHING
    await _hand_out(call, taker, events)
    return 0


async def _follow(call: Call, taker: Taker, limit: int, timeout_s: float | None) -> int:
    """Show messages as they arrive.

    After SIGTERM or SIGHUP, flush the shown messages, store them as seen and print the cursor.
    """
    deadline, status = _deadline(timeout_s), EXIT_NOTHING
    shown = Shown(call.services.log.last())
    with call.connection.ending_gently(shown.place):
        while events := await _next(call, taker, limit, deadline):
            for batch in batches(events):
                await _hand_out_singly(call, taker, batch, shown)
            status = 0
    if not call.connection.is_asked_to_end:
        return status
    call.say_cursor(shown.place)
    return 0


class Shown:
    """The messages that a follower has flushed: all of the present batch, and the newest seq of all."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.seqs: list[int] = []

    def add(self, seq: int) -> None:
        self.place = max(self.place, seq)
        self.seqs.append(seq)


async def _hand_out_singly(call: Call, taker: Taker, batch: Sequence[Event], shown: Shown) -> None:
    """Show messages one by one, each in a separate write, and store the flushed ones as seen.

    If the client disconnects in the middle, the flushed messages are seen and the rest stay unread.
    """
    output, connection = call.connection.output, call.connection
    shown.seqs = []
    told = told_tips(call)
    try:
        for count, event in enumerate(batch, 1):
            token = _encode([one.seq for one in batch[:count]])
            await show(call, [event], token, told=told, flushed=partial(shown.add, event.seq))
        await output.flushed()
    except asyncio.CancelledError:
        if connection.is_asked_to_end and not connection.is_lost:
            await output.flushed()  # The client still writes out what it received before the signal.
        raise
    finally:
        if shown.seqs:
            await _write_down(call, taker, shown.seqs)


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


async def _next(call: Call, taker: Taker, limit: int, deadline: float | None) -> list[Event] | None:
    """Wait for messages; return None if the deadline passes first."""
    try:
        async with asyncio.timeout_at(deadline):
            with call.connection.waiting():
                return await taker.wait(limit)
    except TimeoutError:
        return None


async def _hand_out(call: Call, taker: Taker, events: Sequence[Event]) -> None:
    """Show messages batch by batch; store each batch as seen after the client has flushed it."""
    rest = count_rest(call, events)
    for batch in batches(events):
        seqs = tuple(event.seq for event in batch)
        await show(call, batch, _encode(seqs), rest=rest if batch[-1] is events[-1] else 0)
        await call.connection.output.flushed()
        await _write_down(call, taker, seqs)


async def _write_down(call: Call, taker: Taker, seqs: Sequence[int]) -> None:
    """Store messages as seen, even if the client disconnects now. Until then no other reader takes them."""
    seen = asyncio.ensure_future(_seen(call, seqs))
    try:
        await asyncio.shield(seen)
    finally:
        await asyncio.wait([seen])
    taker.settled(seqs)


async def _seen(call: Call, seqs: Sequence[int]) -> None:
    events = [event for event in map(call.services.log.event, seqs) if event is not None]
    tips = tuple(tips_for_agent(call, events, told_tips(call)))
    request = Acknowledge(messages=tuple(seqs), lane="recv", grade=Grade.FLUSHED, tips=tips)
    await call.services.broker.submit(call.caller, request)


async def _has_resumed(call: Call) -> bool:
    """Store as seen the messages that a reconnected client had written out; they are not shown again.

    Return whether the client brought a valid token.
    """
    if call.asked.resume is None:
        return False
    try:
        seqs = _tokens.decode(call.asked.resume)
    except msgspec.DecodeError:
        return False
    await _seen(call, seqs)
    return True
