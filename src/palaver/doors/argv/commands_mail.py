"""The commands that take mail and look at it. Only `recv` and `ack` change anything."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from palaver.broker.lookup import find_event, find_message
from palaver.broker.outcome import Written
from palaver.delivery.taker import Passes, Taker
from palaver.doors.argv.call import Call
from palaver.doors.argv.style import Column, ago, lay_out, safe
from palaver.doors.argv.table_messages import DEFAULT_INBOX, DEFAULT_RECV
from palaver.doors.views import inbox_view, message_view, receipt_lines, receipts_view
from palaver.errors import WhoAreYou
from palaver.links.doorstep import Doorstep
from palaver.log.fold import find_mail, read_unread
from palaver.model.delivery import Grade, State
from palaver.model.envelope import Event, encode_event
from palaver.model.forms import Line, format_injection
from palaver.model.message import EXTERNAL, flat, readable_text
from palaver.model.query import Query
from palaver.model.request import Acknowledge, Redeliver

EXIT_NOTHING: Final = 3
_LIMIT_TEXT_BYTES: Final = 1024 * 1024
"""A batch ends before its texts grow past this: it goes out in one piece."""

_tokens: Final = msgspec.json.Decoder(list[int])
_encode: Final = msgspec.json.Encoder().encode


def _owner(call: Call) -> str:
    """Whose mail this is about. A script has none."""
    if call.caller.kind == EXTERNAL:
        raise WhoAreYou("you have no mail of your own: take a name with 'pal join', or say whose with --as NAME")
    return call.caller.name


async def recv(call: Call, doorstep: Doorstep) -> int:
    """Take the caller's mail: shown, flushed, and only then written down as seen."""
    name = _owner(call)
    parsed = call.parsed
    limit = parsed.number("--limit") or DEFAULT_RECV
    passes = _filter(call)
    if parsed.has("--peek") or parsed.has("--after"):
        return await _peek(call, name, limit, passes)
    resumed = await _resume(call)
    if resumed and not parsed.has("--follow"):
        return 0
    taker = call.services.delivery.take(name, passes=passes)
    try:
        if parsed.has("--follow"):
            return await _follow(call, taker, limit)
        return await _take_once(call, taker, limit)
    finally:
        taker.close()


async def _take_once(call: Call, taker: Taker, limit: int) -> int:
    if call.parsed.has("--wait"):
        timeout_s = call.parsed.duration_s("--timeout")
        try:
            async with asyncio.timeout(timeout_s):
                events = await taker.wait(limit)
        except TimeoutError:
            return EXIT_NOTHING
    else:
        events = taker.poll(limit)
    if not events:
        if call.is_terminal and not call.is_json:
            await call.say(call.paint.dim("nothing is waiting for you"))
        return 0
    await _hand_out(call, taker, events)
    return 0


async def _follow(call: Call, taker: Taker, limit: int) -> int:
    while events := await taker.wait(limit):
        await _hand_out(call, taker, events)
    return 0


async def _hand_out(call: Call, taker: Taker, events: Sequence[Event]) -> None:
    """Show a batch, wait until it is written out, then write down that it was seen."""
    for batch in _batches(events):
        seqs = tuple(event.seq for event in batch)
        await _show_batch(call, batch, _encode(seqs))
        await call.connection.flushed()
        await _seen(call, seqs)
        taker.settled(seqs)


async def _seen(call: Call, seqs: Sequence[int]) -> None:
    request = Acknowledge(messages=tuple(seqs), lane="recv", grade=Grade.FLUSHED)
    await call.services.broker.submit(call.caller, request)


async def _resume(call: Call) -> bool:
    """A client that comes back says what it had written out: that was seen, and is not shown again."""
    if call.asked.resume is None:
        return False
    try:
        seqs = _tokens.decode(call.asked.resume)
    except msgspec.DecodeError:
        return False
    await _seen(call, seqs)
    return True


def _batches(events: Sequence[Event]) -> list[list[Event]]:
    batches: list[list[Event]] = [[]]
    size = 0
    for event in events:
        size += len(readable_text(event))
        if batches[-1] and size > _LIMIT_TEXT_BYTES:
            batches.append([])
            size = len(readable_text(event))
        batches[-1].append(event)
    return batches


async def _show_batch(call: Call, events: Sequence[Event], token: bytes) -> None:
    """One frame for one batch: a client that is cut off has written all of it, or none of it counts."""
    is_stream = call.parsed.has("--follow")
    if call.is_json or (is_stream and call.is_json_stream):
        data = b"".join(_encode(message_view(event)) + b"\n" for event in events)
    elif call.is_terminal:
        data = "".join(_for_people(call, event) for event in events).encode("utf-8", "backslashreplace")
    else:
        rest = max(0, read_unread(call.services.log.rows, call.caller.name) - len(events))
        lines = [injection_line(event, call.caller.name, call.services.log.device) for event in events]
        data = (format_injection(lines, rest=0 if is_stream else rest) + "\n").encode()
    await call.connection.write(data, token)


def injection_line(event: Event, recipient: str, device: str) -> Line:
    """Give a message as one line of what an agent reads."""
    names = event.payload.get("delivered_to", ()) if event.type == "message" else event.delivered_to
    others = len(names) - 1 if isinstance(names, (list, tuple)) else 0
    return Line(
        seq=event.seq,
        device=None if event.device == device else event.device,
        sender=event.sender,
        recipient=recipient,
        others=max(0, others),
        intent=_word(event, "intent"),
        thread=_word(event, "thread"),
        text=readable_text(event),
    )


def _word(event: Event, key: str) -> str | None:
    found = event.payload.get(key)
    return found if isinstance(found, str) else None


def _for_people(call: Call, event: Event) -> str:
    paint = call.paint
    marks = [mark for mark in (_word(event, "intent"), _word(event, "thread")) if mark]
    head = f"{paint.bold(f'#{event.seq}')} {paint.cyan(safe(event.sender))} → {safe(', '.join(event.to) or 'all')}"
    if marks:
        head += f" [{safe(', '.join(marks))}]"
    body = "\n".join(f"  {line}" for line in safe(readable_text(event), keep_lines=True).splitlines())
    return f"{head} {paint.dim(call.clock_time(event.ts))}\n{body}\n"


def _filter(call: Call) -> Passes | None:
    senders = {name.removeprefix("@").lower() for name in call.parsed.values("--from")}
    threads = set(call.parsed.values("--thread"))
    if not senders and not threads:
        return None
    return lambda event: (not senders or event.sender.lower() in senders) and (
        not threads or event.payload.get("thread") in threads
    )


async def _peek(call: Call, name: str, limit: int, passes: Passes | None) -> int:
    """Look without marking: what waits, or with --after everything behind a place."""
    after = call.parsed.number("--after")
    events = await call.services.log.read(
        Query(types=("message",), targets=(name,), after=after or 0, limit=10_000)
    )
    if after is None:
        events = [event for event in events if find_mail(call.services.log.rows, name, event.seq)]
    shown = [event for event in events if passes is None or passes(event)][:limit]
    if shown:
        await _show_batch(call, shown, b"")
    return 0


async def inbox(call: Call, doorstep: Doorstep) -> int:
    """Show the newest messages, read or not."""
    name = _owner(call)
    limit = call.parsed.number("--limit") or DEFAULT_INBOX
    found = await inbox_view(call.services, name, limit)
    if call.is_json:
        for event, state in found:
            await call.say_json({**flat(event), "state": state})
        return 0
    if not found:
        await call.say("no messages yet")
        return 0
    columns = [
        Column(title="ID", is_right=True),
        Column(title="FROM", least=8),
        Column(title="STATE"),
        Column(title="AGE", is_right=True),
        Column(title="TEXT", least=12),
    ]
    now = call.services.clock.now_ms()
    rows = [
        [f"#{event.seq}", event.sender, state, ago(now - event.ts), readable_text(event)] for event, state in found
    ]
    await call.say_lines(lay_out(columns, rows, width=call.width, paint=call.paint))
    return 0


async def show(call: Call, doorstep: Doorstep) -> int:
    """Show one message or event in full."""
    event = find_event(call.services.log, call.parsed.positionals[0])
    is_mail = event.type == "message" or bool(event.delivered_to)
    if call.is_json:
        if is_mail:
            await call.say_json(message_view(event))
        else:
            await call.connection.write(encode_event(event) + b"\n")
        return 0
    text = readable_text(event)
    lines = [f"#{event.seq} {event.type} from {event.sender}, {call.clock_time(event.ts)}, {event.id}"]
    if event.to:
        lines.append(f"to {', '.join(event.to)}")
    for key in ("intent", "thread", "reply_to", "priority", "path"):
        if event.payload.get(key):
            lines.append(f"{key.replace('_', ' ')} {event.payload[key]}")
    lines = [safe(line) for line in lines]
    if is_mail:
        lines += _receipt_table(call, event)
    body = safe(text, keep_lines=True) if call.is_terminal else text
    await call.say_lines([*lines, "", body])
    return 0


async def receipts(call: Call, doorstep: Doorstep) -> int:
    """Show what became of a message, a line for each recipient."""
    event = find_message(call.services.log, call.parsed.positionals[0])
    if call.is_json:
        await call.say_json(receipts_view(call.services, event))
        return 0
    lines = _receipt_table(call, event)
    await call.say_lines(lines or [f"#{event.seq} was for nobody"])
    return 0


def _receipt_table(call: Call, event: Event) -> list[str]:
    rows = []
    for line in receipt_lines(call.services, event):
        state = str(line["state"])
        if line.get("unconfirmed"):
            state += " (unconfirmed)"
        evidence = [str(line[key]) for key in ("lane", "grade", "reason") if line.get(key)]
        if answer := line.get("answer"):
            evidence.append(f"answered in #{answer}")
        if line.get("by"):
            evidence.append(f"by {line['by']}")
        moment = line["ts"]
        assert isinstance(moment, int)
        rows.append([str(line["name"]), state, call.clock_time(moment), ", ".join(evidence)])
    columns = [Column(least=8), Column(), Column(), Column()]
    return lay_out(columns, rows, width=call.width, paint=call.paint) if rows else []


async def ack(call: Call, doorstep: Doorstep) -> int:
    """Mark messages to the caller as seen."""
    name = _owner(call)
    events = [find_message(call.services.log, reference) for reference in call.parsed.positionals]
    request = Acknowledge(messages=tuple(event.seq for event in events), lane="ack", grade=Grade.ACKED)
    written = await call.services.broker.submit(call.caller, request, key=call.asked.key)
    assert isinstance(written, Written)
    moved = written.event.payload["messages"] if written.event is not None else []
    if call.is_json:
        await call.say_json({"name": name, "state": State.SEEN, "messages": moved})
    elif not moved:
        call.warn("nothing to mark: these are not your unread messages")
    return 0


async def redeliver(call: Call, doorstep: Doorstep) -> int:
    """Put a message in line again for those who may not have it."""
    reference = call.parsed.positionals[0]
    await call.services.broker.submit(call.caller, Redeliver(message=reference), key=call.asked.key)
    event = find_message(call.services.log, reference)
    if call.is_json:
        await call.say_json(receipts_view(call.services, event))
    else:
        await call.say(f"#{event.seq} is in line again")
    return 0
