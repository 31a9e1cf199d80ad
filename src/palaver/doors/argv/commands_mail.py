"""`pal inbox`, `show`, `receipts`, `ack`, `release` and `redeliver`. Only the last three change anything."""

from palaver.broker.lookup import fetch_event, find_message
from palaver.broker.outcome import Written
from palaver.doors.argv.call import Call
from palaver.doors.argv.style import Column, ago, lay_out
from palaver.doors.argv.table_messages import DEFAULT_INBOX
from palaver.doors.views import inbox_view, message_view, receipt_lines, receipts_view
from palaver.model.delivery import Grade, State
from palaver.model.envelope import Event, encode_event
from palaver.model.message import readable_text
from palaver.model.request import Acknowledge, Redeliver, Release
from palaver.model.terminal import GATE_ADVICE


async def inbox(call: Call) -> int:
    """Show the newest messages to the caller, read or not."""
    limit = call.parsed.number("--limit", least=1) or DEFAULT_INBOX
    found = await inbox_view(call.services, call.owner, limit)
    if call.is_json:
        for event, state in found:
            await call.say_json({**message_view(event), "state": state})
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
        [f"#{event.seq}", call.paint.name(event.sender), state, ago(now - event.ts), readable_text(event)]
        for event, state in found
    ]
    await call.say_lines(lay_out(columns, rows, width=call.width, paint=call.paint))
    return 0


async def show(call: Call) -> int:
    """Show one message or event in full."""
    event = await fetch_event(call.services.log, call.parsed.positionals[0])
    is_mail = event.type == "message" or bool(event.delivered_to)
    if call.is_json:
        if is_mail:
            await call.say_json(message_view(event))
        else:
            await call.write(encode_event(event) + b"\n")
        return 0
    text = readable_text(event)
    paint = call.paint
    kind, sender = paint.safe(f"{event.type} from"), paint.name(event.sender)
    lines = [f"#{event.seq} {kind} {sender}, {call.clock_time(event.ts)}, {paint.safe(event.id)}"]
    if event.to:
        lines.append(f"to {paint.names(event.to)}")
    for key in ("intent", "thread", "reply_to", "priority", "path", "bundle_id"):
        if event.payload.get(key):
            lines.append(paint.safe(f"{key.replace('_', ' ')} {event.payload[key]}"))
    if is_mail:
        lines += _receipt_table(call, event)
    await call.say_lines([*lines, "", paint.safe(text, keep_lines=True)])
    return 0


async def receipts(call: Call) -> int:
    """Show the delivery state of a message, one line per recipient."""
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
        evidence += [GATE_ADVICE[reason] for reason in evidence if reason in GATE_ADVICE]
        if answer := line.get("answer"):
            evidence.append(f"answered in #{answer}")
        if line.get("by"):
            evidence.append(f"by {line['by']}")
        moment = line["ts"]
        assert isinstance(moment, int)
        rows.append([str(line["name"]), state, call.clock_time(moment), ", ".join(evidence)])
    columns = [Column(least=8), Column(), Column(), Column()]
    return lay_out(columns, rows, width=call.width, paint=call.paint) if rows else []


async def ack(call: Call) -> int:
    """Mark messages to the caller as seen. Messages to other recipients are refused."""
    name = call.owner
    events = [find_message(call.services.log, reference) for reference in call.parsed.positionals]
    seqs = tuple(event.seq for event in events)
    request = Acknowledge(messages=seqs, lane="ack", grade=Grade.ACKED, must_be_own=True)
    written = await call.services.broker.submit(call.caller, request, key=call.asked.key)
    assert isinstance(written, Written)
    moved = written.event.payload["messages"] if written.event is not None else []
    if call.is_json:
        await call.say_json({"name": name, "state": State.SEEN, "messages": moved})
    elif not moved:
        call.warn("nothing to mark: you have seen these already")
    return 0


async def release(call: Call) -> int:
    """Queue a held message for delivery."""
    reference = call.parsed.positionals[0]
    await call.services.broker.submit(call.caller, Release(message=reference), key=call.asked.key)
    return await _say_queued(call, reference, "is in line now")


async def redeliver(call: Call) -> int:
    """Queue a message again for the recipients that may not have it."""
    reference = call.parsed.positionals[0]
    await call.services.broker.submit(call.caller, Redeliver(message=reference), key=call.asked.key)
    return await _say_queued(call, reference, "is in line again")


async def _say_queued(call: Call, reference: str, words: str) -> int:
    event = find_message(call.services.log, reference)
    if call.is_json:
        await call.say_json(receipts_view(call.services, event))
    else:
        await call.say(f"#{event.seq} {words}")
    return 0
