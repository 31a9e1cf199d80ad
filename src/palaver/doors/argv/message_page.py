"""Format a message for a person at a terminal, and as one line for an agent."""

from palaver.doors.argv.call import Call
from palaver.model.envelope import Event
from palaver.model.forms import Line
from palaver.model.message import message_fields, readable_text


def for_people(call: Call, event: Event) -> str:
    """Return a head and the indented text. The content is escaped, so it cannot control the terminal."""
    paint = call.paint
    marks = [mark for mark in (_word(event, "intent"), _word(event, "thread")) if mark]
    if reply_to := _word(event, "reply_to"):
        marks.append(f"answers #{reply_to}")
    place, sender = paint.bold(f"#{event.seq}"), paint.cyan(paint.name(event.sender))
    head = f"{place} {sender} → {paint.names(event.to) or 'all'}"
    if marks:
        head += " " + paint.safe(f"[{', '.join(marks)}]")
    body = "\n".join(f"  {line}" for line in call.safe(readable_text(event), keep_lines=True).splitlines())
    return f"{head} {paint.dim(call.clock_time(event.ts))}\n{body}\n"


def injection_line(event: Event, recipient: str, device: str) -> Line:
    """Return a message as one line of the text for an agent."""
    names = message_fields(event).get("delivered_to", event.delivered_to)
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
    found = message_fields(event).get(key)
    return found if isinstance(found, str) else None
