"""`pal recv`: takes the caller's mail. Shown, flushed, and only then written down as seen."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec

from palaver.delivery.taker import Passes, Taker
from palaver.doors.argv.call import EXIT_NOTHING, Call
from palaver.doors.argv.message_page import for_people, injection_line
from palaver.doors.argv.table_messages import DEFAULT_RECV
from palaver.doors.lines_wire import Place
from palaver.doors.views import message_view, open_mail
from palaver.errors import UsageError
from palaver.links.doorstep import Doorstep
from palaver.log.pages import pages
from palaver.log.state import read_tips, read_unread
from palaver.model.bundle import bundle_hint
from palaver.model.delivery import Grade
from palaver.model.envelope import Event
from palaver.model.forms import format_injection
from palaver.model.message import INSTANCE, message_fields, readable_text
from palaver.model.query import Query
from palaver.model.request import Acknowledge
from palaver.model.text import LIMIT_INJECTION
from palaver.model.tips import tips_for

_LIMIT_TEXT: Final = 1024 * 1024
"""A batch ends before its texts grow past this: it goes out in one piece."""

_JSON: Final = "json"
_PAGE: Final = "page"
_FENCE: Final = "fence"

_tokens: Final = msgspec.json.Decoder(list[Place])
_encode: Final = msgspec.json.Encoder().encode


async def recv(call: Call, doorstep: Doorstep) -> int:
    """Take what waits, or wait for it; with --follow go on for ever."""
    name = call.owner
    limit = call.parsed.number("--limit") or DEFAULT_RECV
    if call.parsed.has("--peek") or call.parsed.has("--after"):
        return await _peek(call, name, limit)
    if await _has_resumed(call) and not call.parsed.has("--follow"):
        return 0
    taker = call.services.delivery.take(name, passes=_filter(call))
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
    """Take what comes; SIGTERM and SIGHUP end it with all that was handed out flushed and written down."""
    deadline, status = _deadline(timeout_s), EXIT_NOTHING
    shown = Shown(call.services.log.last())
    with call.connection.ending_gently():
        while events := await _next(call, taker, limit, deadline):
            for batch in _batches(events):
                await _hand_out_singly(call, taker, batch, shown)
            status = 0
    if not call.connection.is_asked_to_end:
        return status
    call.say_cursor(shown.place)
    return 0


class Shown:
    """What a follower of mail has flushed: of one batch, and the newest of all."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.seqs: list[int] = []

    def add(self, seq: int) -> None:
        self.place = max(self.place, seq)
        self.seqs.append(seq)


async def _hand_out_singly(call: Call, taker: Taker, batch: Sequence[Event], shown: Shown) -> None:
    """Show messages one by one, each a write of its own, and write down those that were flushed.

    So it is too when the client goes away in the middle: what it had flushed was seen, the rest is unread.
    """
    output, connection = call.connection.output, call.connection
    shown.seqs = []
    told = _told(call)
    try:
        for count, event in enumerate(batch, 1):
            token = _encode([one.seq for one in batch[:count]])
            await _show(call, [event], token, told=told, flushed=partial(shown.add, event.seq))
        await output.flushed()
    except asyncio.CancelledError:
        if connection.is_asked_to_end and not connection.is_lost:
            await output.flushed()  # What the client was sent before the signal it still writes out.
        raise
    finally:
        if shown.seqs:
            await _write_down(call, taker, shown.seqs)


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


async def _next(call: Call, taker: Taker, limit: int, deadline: float | None) -> list[Event] | None:
    """Wait for mail; None when the time is over first."""
    try:
        async with asyncio.timeout_at(deadline):
            with call.connection.waiting():
                return await taker.wait(limit)
    except TimeoutError:
        return None


async def _hand_out(call: Call, taker: Taker, events: Sequence[Event]) -> None:
    """Show mail batch by batch: shown, written out, written down."""
    rest = _rest(call, events)
    for batch in _batches(events):
        seqs = tuple(event.seq for event in batch)
        await _show(call, batch, _encode(seqs), rest=rest if batch[-1] is events[-1] else 0)
        await call.connection.output.flushed()
        await _write_down(call, taker, seqs)


async def _write_down(call: Call, taker: Taker, seqs: Sequence[int]) -> None:
    """These were seen, even if the client goes away now: they stay in hand until that is written."""
    seen = asyncio.ensure_future(_seen(call, seqs))
    try:
        await asyncio.shield(seen)
    finally:
        await asyncio.wait([seen])
    taker.settled(seqs)


def _rest(call: Call, events: Sequence[Event]) -> int:
    """How much mail waits behind what is being shown."""
    if call.parsed.has("--follow"):
        return 0
    return max(0, read_unread(call.services.log.rows, call.owner) - len(events))


async def _seen(call: Call, seqs: Sequence[int]) -> None:
    events = [event for event in map(call.services.log.event, seqs) if event is not None]
    tips = tuple(_tips(call, events, _told(call)))
    request = Acknowledge(messages=tuple(seqs), lane="recv", grade=Grade.FLUSHED, tips=tips)
    await call.services.broker.submit(call.caller, request)


def _tips(call: Call, events: Sequence[Event], told: Collection[str]) -> dict[str, str]:
    """Give what an agent is told with these messages, once: the same again until they are written down."""
    if _form(call) != _FENCE or call.caller.kind != INSTANCE:
        return {}
    return tips_for(events, frozenset(told))


def _told(call: Call) -> set[str]:
    """The tips that were written down as told."""
    return set(read_tips(call.services.log.rows, call.owner))


def _form(call: Call) -> str:
    if call.is_json or (call.parsed.has("--follow") and call.is_json_stream):
        return _JSON
    return _PAGE if call.is_terminal else _FENCE


async def _has_resumed(call: Call) -> bool:
    """A client that comes back says what it had written out: that was seen, and is not shown again."""
    if call.asked.resume is None:
        return False
    try:
        seqs = _tokens.decode(call.asked.resume)
    except msgspec.DecodeError:
        return False
    await _seen(call, seqs)
    return True


def _batches(events: Sequence[Event]) -> Iterator[list[Event]]:
    batch: list[Event] = []
    size = 0
    for event in events:
        length = len(readable_text(event))
        if batch and (size + length > _LIMIT_TEXT or len(batch) == LIMIT_INJECTION):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += length
    if batch:
        yield batch


async def _show(
    call: Call,
    events: Sequence[Event],
    token: bytes = b"",
    *,
    rest: int = 0,
    told: set[str] | None = None,
    flushed: Callable[[], None] | None = None,
) -> None:
    """One frame for one batch: a client that is cut off has written all of it, or none of it counts.

    The tips that go along are added to `told`.
    """
    form = _form(call)
    if form == _JSON:
        data = b"".join(_encode(message_view(event)) + b"\n" for event in events)
    elif form == _PAGE:
        data = "".join(for_people(call, event) for event in events).encode("utf-8", "backslashreplace")
    else:
        tips = _tips(call, events, _told(call) if told is None else told)
        data = f"{_fence(call, events, rest, tips.values())}\n".encode()
        if told is not None:
            told.update(tips)
    await call.write(data, token, flushed=flushed)


def _fence(call: Call, events: Sequence[Event], rest: int, tips: Iterable[str]) -> str:
    """Give what an agent reads: the messages, how many more wait, hints for all and tips for this one."""
    services, name = call.services, call.owner
    return format_injection(
        [injection_line(event, name, services.log.device) for event in events],
        rest=rest,
        hints=services.settings.hints,
        tips=(bundle_hint(events), *tips),
    )


def _filter(call: Call) -> Passes | None:
    senders = {name.removeprefix("@").lower() for name in call.parsed.values("--from")}
    threads = set(call.parsed.values("--thread"))
    if not senders and not threads:
        return None
    return lambda event: (
        (not senders or event.sender.lower() in senders)
        and (not threads or message_fields(event).get("thread") in threads)
    )


async def _peek(call: Call, name: str, limit: int) -> int:
    """Look without marking: what waits, or with --after everything behind a place."""
    parsed = call.parsed
    if parsed.has("--follow"):
        raise UsageError(
            "--follow takes your mail; 'pal events --target NAME --follow' looks on without taking it"
        )
    after, timeout_s = parsed.number("--after"), parsed.duration_s("--timeout")
    events: Sequence[Event] | None
    if after is None:
        events = open_mail(call.services, name, limit, _filter(call))
    else:
        events = await _all_behind(call, _behind(call, name, after, limit))
    if not events and (parsed.has("--wait") or timeout_s is not None):
        place = call.services.log.last() if after is None else after
        events = await call.first(_behind(call, name, place, limit), timeout_s)
        if events is None:
            return EXIT_NOTHING
    events = events[:limit]
    rest = _rest(call, events) if after is None else 0
    for batch in _batches(events):
        await _show(call, batch, rest=rest if batch[-1] is events[-1] else 0)
    return 0


async def _all_behind(call: Call, query: Query) -> list[Event]:
    """Give what is stored behind a place, archived or not, up to the limit."""
    found: list[Event] = []
    async with aclosing(pages(call.services.log, query)) as some:
        async for page in some:
            found += page
            if len(found) >= query.limit:
                break
    return found[: query.limit]


def _behind(call: Call, name: str, place: int, limit: int) -> Query:
    senders, threads = tuple(call.parsed.values("--from")), tuple(call.parsed.values("--thread"))
    return Query(targets=(name,), senders=senders, threads=threads, after=place, limit=limit)
