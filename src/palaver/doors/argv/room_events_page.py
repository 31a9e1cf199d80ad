"""Format the events of a room for people, from a result of the service for rooms. Makes no requests."""

from collections.abc import Iterator

import msgspec

from palaver.doors.argv.call import Call
from palaver.doors.argv.style import Paint
from palaver.doors.desk import Answer


class _Happened(msgspec.Struct, frozen=True, kw_only=True):
    event_seq: int
    event_type: str
    from_agent_id: str | None
    to_agent_id: str | list[str] | None
    reason: str | None
    payload: dict[str, object] | None
    created_at: int


def event_lines(call: Call, answer: Answer) -> Iterator[str]:
    """Yield messages and other events, each starting on a separate line; a text may have several lines."""
    for one in msgspec.convert(answer["events"], list[_Happened]):
        to = [one.to_agent_id] if isinstance(one.to_agent_id, str) else one.to_agent_id or []
        paint = call.paint
        whom = f" → {paint.names(to)}" if to else ""
        head = paint.dim(f"#{one.event_seq} {call.clock_time(one.created_at)}")
        yield f"{head} {paint.name(one.from_agent_id or 'nobody')}{whom}: {_words(paint, one)}"


def _words(paint: Paint, one: _Happened) -> str:
    body = (one.payload or {}).get("body")
    if one.event_type == "message_sent" and isinstance(body, str):
        return paint.safe(body, keep_lines=True).replace("\n", "\n  ")
    return paint.safe(one.event_type if one.reason is None else f"{one.event_type} ({one.reason})")
