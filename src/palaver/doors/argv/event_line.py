"""Format an event as a line of `pal events`, and the line about skipped events. Writes nothing."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from palaver.doors.argv.call import Call
from palaver.doors.argv.style import Safe, truncate
from palaver.model.envelope import Event, encode_event
from palaver.model.message import MESSAGE
from palaver.model.summary import summary

_MESSAGE_SENT: Final = "message_sent"
_NO_FILTERS: Final = frozenset(
    {"--after", "--before", "--last", "--all", "--archived", "--wait", "--follow", "--consumer"}
)

_encode: Final = msgspec.json.Encoder().encode


def event_line(call: Call, event: Event) -> bytes:
    """Return one line with its line end: JSON if asked for, and for streams under a harness; else text."""
    types = call.parsed.values("--type")
    name = event.type
    if event.type == MESSAGE and _MESSAGE_SENT in types and MESSAGE not in types:
        name = _MESSAGE_SENT  # another name of the type, and the one in the filter
    if _is_json(call):
        return encode_event(event if name == event.type else replace(event, type=name)) + b"\n"
    return (_text(call, event, name) + "\n").encode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A number of events that are left out after one seq and before another."""

    count: int
    after: int
    before: int
    is_archived: bool = False
    """Some of them are archived."""


def skipped_line(call: Call, skipped: Skipped) -> bytes:
    """Return a line with the number of skipped events and the command that shows them.

    In JSON it has `skipped` and neither `type` nor `id`, so that no program takes it for an event.
    """
    command = shlex.join(_command(call, skipped))
    if _is_json(call):
        said = {
            "skipped": skipped.count,
            "after": skipped.after,
            "before": skipped.before,
            "command": command,
        }
        return _encode(said) + b"\n"
    events = f"{skipped.count} older event{'' if skipped.count == 1 else 's'}"
    line = f"… {events} left out; to see them: {call.safe(command)}"
    return f"{call.paint.dim(line)}\n".encode("utf-8", "backslashreplace")


def _is_json(call: Call) -> bool:
    is_stream = call.parsed.has("--follow") or call.parsed.has("--wait")
    return call.is_json or (is_stream and call.is_json_stream)


def _command(call: Call, skipped: Skipped) -> Iterator[str]:
    yield from ("pal", "events", "--after", str(skipped.after), "--before", str(skipped.before))
    yield "--archived" if skipped.is_archived else "--all"
    for name, value in call.parsed.options.items():
        if name not in _NO_FILTERS:
            for one in value if isinstance(value, list) else [value]:
                yield from (name, str(one))


def _text(call: Call, event: Event, name: str) -> str:
    """Return an event as text for people, with the given name of its type."""
    paint = call.paint
    to = f" → {paint.names(event.to)}" if event.to else ""
    text, kind, sender = paint.safe(summary(event)), paint.safe(name), paint.name(event.sender)
    plain = f"#{event.seq} {call.clock_time(event.ts)} {kind} {sender}{to}: "
    if call.width is not None:
        text = Safe(truncate(text, max(20, call.width - len(plain))))
    place, moment = paint.bold(f"#{event.seq}"), paint.dim(call.clock_time(event.ts))
    return f"{place} {moment} {paint.green(kind)} {paint.cyan(sender)}{to}: {text}"
