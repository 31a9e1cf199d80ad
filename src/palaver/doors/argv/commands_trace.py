"""`pal trace`: show every step of one message, from the log, delivery and the holders. Changes nothing."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from palaver.broker.context import SYSTEM_CALLER
from palaver.broker.lookup import find_message
from palaver.doors.argv.call import Call
from palaver.doors.argv.style import Column, lay_out
from palaver.doors.views import receipt_lines
from palaver.home import older_trace, trace_path
from palaver.log.fold import agent_of
from palaver.model.delivery import State
from palaver.model.envelope import Event
from palaver.model.life import AGENT_TYPES
from palaver.model.mail import DeliveryReport, reply_place
from palaver.model.message import MESSAGE, flat
from palaver.model.query import Query

_PAGE: Final = 1000
_LIMIT_EVENTS: Final = 20_000
"""How many events after the message are searched."""
_OPEN: Final = frozenset({State.QUEUED, State.SUBMITTED, State.HELD})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a message: its time, source, recipient, lane and reason."""

    ts: int
    source: str
    agent: str
    step: str
    lane: str = ""
    detail: str = ""
    seq: int = 0
    """The seq of the event, for a step from the log."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a trace file."""

    ts: int
    agent: str
    step: str
    seqs: tuple[int, ...] = ()
    lane: str = ""
    detail: str = ""


_line: Final = msgspec.json.Decoder(_Line).decode


async def trace(call: Call) -> int:
    """Show the steps of a message in the order of time, then the present state of the lanes."""
    event = find_message(call.services.log, call.parsed.positionals[0])
    receipts = receipt_lines(call.services, event)
    names = [str(line["name"]) for line in receipts]
    is_over = not any(line["state"] in _OPEN for line in receipts)
    steps = await _from_log(call, event, names, is_over=is_over)
    end = max(step.ts for step in steps) if is_over else call.services.clock.now_ms()
    files = [("delivery", trace_path(call.services.home))]
    files += [("holder", trace_path(call.services.home, name)) for name in _holders(call, names)]
    steps += await asyncio.to_thread(_from_files, files, event, frozenset(names), end)
    steps.sort(key=lambda step: step.ts)
    if call.is_json:
        for step in steps:
            await call.say_json(step)
        return 0
    rows = [[_time(call, step.ts), step.source, step.agent, _what(step)] for step in steps]
    for name in names:
        levels = call.services.delivery.levels(name)
        lanes = ", ".join(f"{lane} {_gate(level.is_open, level.reason)}" for lane, level in levels)
        rows.append(["now", "delivery", name, f"lanes: {lanes}" if lanes else "no lane is open"])
    columns = [Column(), Column(), Column(least=8), Column()]
    await call.say_lines(lay_out(columns, rows, width=call.width, paint=call.paint))
    return 0


async def _from_log(call: Call, message: Event, names: Sequence[str], *, is_over: bool) -> list[Step]:
    fields = flat(message)
    sent = f"{fields['priority']}, from {message.sender} to {', '.join(names) or 'nobody'}"
    steps = [Step(ts=message.ts, source="log", agent="", step="sent", detail=sent, seq=message.seq)]
    states: list[Step] = []
    place, seen = message.seq, 0
    while seen < _LIMIT_EVENTS and (page := await call.services.log.read(Query(after=place, limit=_PAGE))):
        for event in page:
            found = _step_of(event, message)
            if found is not None:
                steps.append(found)
            elif event.type in AGENT_TYPES and agent_of(event) in names:
                states.append(_state(event))
        place, seen = page[-1].seq, seen + len(page)
    last = max(step.seq for step in steps)
    return steps + [state for state in states if not is_over or state.seq < last]


def _step_of(event: Event, message: Event) -> Step | None:
    """Return the step that an event means for a message; None if it is not about the message."""
    if event.type == "delivery":
        report = msgspec.convert(event.payload, DeliveryReport)
        if message.seq not in report.messages:
            return None
        words = [report.grade, report.reason, "unconfirmed" if report.unconfirmed else ""]
        return Step(
            ts=event.ts,
            source="log",
            agent=report.agent,
            step=report.state,
            lane=report.lane,
            detail=", ".join(filter(None, words)),
            seq=event.seq,
        )
    if event.type != MESSAGE:
        return None
    if reply_place(event) == message.seq:
        return Step(
            ts=event.ts,
            source="log",
            agent=event.sender,
            step="answered",
            detail=f"#{event.seq}",
            seq=event.seq,
        )
    text = str(event.payload.get("text", ""))
    if event.sender == SYSTEM_CALLER.name and re.search(rf"#{message.seq}\b", text):
        to = ", ".join(event.delivered_to)
        return Step(ts=event.ts, source="log", agent=to, step="notice", detail=text, seq=event.seq)
    return None


def _state(event: Event) -> Step:
    words = [str(event.payload.get(key, "")) for key in ("action", "state", "detail", "reason")]
    return Step(
        ts=event.ts,
        source="log",
        agent=agent_of(event),
        step=event.type,
        detail=", ".join(filter(None, words)),
        seq=event.seq,
    )


def _holders(call: Call, names: Sequence[str]) -> list[str]:
    """Return the agents whose holders may know a message: its recipients, and the parents of sub-agents."""
    found = dict.fromkeys(names)
    for name in names:
        agent = call.services.broker.directory.get(name)
        if agent is not None and agent.parent:
            found[agent.parent] = None
    return list(found)


def _from_files(
    files: Sequence[tuple[str, Path]], message: Event, names: frozenset[str], end: int
) -> list[Step]:
    """Read the steps of a message, and the steps of its recipients' lanes from its time until `end`."""
    return [
        Step(ts=line.ts, source=source, agent=line.agent, step=line.step, lane=line.lane, detail=line.detail)
        for source, path in files
        for line in chain(_lines(older_trace(path)), _lines(path))
        if message.seq in line.seqs
        or (not line.seqs and line.agent in names and message.ts <= line.ts <= end)
    ]


def _lines(path: Path) -> Iterator[_Line]:
    try:
        content = path.read_bytes()
    except OSError:
        return
    for line in content.splitlines():
        try:
            yield _line(line)
        except (msgspec.DecodeError, json.JSONDecodeError):  # a partial line, after a full disk or a crash
            continue


def _what(step: Step) -> str:
    lane = f" ({step.lane})" if step.lane else ""
    return f"{step.step}{lane}: {step.detail}" if step.detail else f"{step.step}{lane}"


def _gate(is_open: bool, reason: str) -> str:
    return "open" if is_open else f"closed ({reason})" if reason else "closed"


def _time(call: Call, ts_ms: int) -> str:
    moment = datetime.fromtimestamp(ts_ms / 1000, call.zone)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ts_ms % 1000:03d}"
