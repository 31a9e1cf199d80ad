"""The one fold: what each event changes in the state. Pure and total.

`apply` reads rows and the event, and nothing else: no clock, no setting, no presence. What it cannot read it skips
and counts, so that one odd event never stops the log; `pal doctor` shows the count.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from palaver.errors import RequestError
from palaver.log.api import Change, Rows
from palaver.model.agent import Agent
from palaver.model.delivery import ENDS, State, can_rise
from palaver.model.envelope import Event
from palaver.model.mail import (
    EXPIRY,
    LEDGER,
    MAIL,
    UNREAD,
    UNSURE,
    Deliverable,
    DeliveryReport,
    Entry,
    Mail,
    decode_count,
    decode_entry,
    decode_mail,
    deliverable,
    encode_row,
    expiry_key,
    ledger_key,
    mail_key,
    mail_keys,
    reply_place,
    unsure_key,
)
from palaver.model.priority import Priority, parse_priority

AGENTS: Final = "agent"
SKIPPED: Final = "skipped"

_Handler = Callable[[Rows, Event], list[Change]]
_decode_agent: Final = msgspec.json.Decoder(Agent).decode


def apply(rows: Rows, event: Event) -> Sequence[Change]:
    """Tell what an event changes. The same rows and event always give the same changes."""
    handler = _HANDLERS.get(event.type, _carried)
    try:
        return handler(rows, event)
    except (RequestError, msgspec.ValidationError, KeyError, TypeError, ValueError):
        count = rows.get(SKIPPED, event.type)
        return [(SKIPPED, event.type, encode_row(1 if count is None else decode_count(count) + 1))]


def read_agent(rows: Rows, name: str) -> Agent | None:
    """Look one agent up in the state."""
    value = rows.get(AGENTS, name)
    return None if value is None else _decode_agent(value)


def read_agents(rows: Rows) -> list[Agent]:
    """Give every agent the state knows, by name."""
    agents: list[Agent] = []
    after = ""
    while page := rows.scan(AGENTS, "", after=after, limit=1000):
        agents.extend(_decode_agent(value) for _, value in page)
        after = page[-1][0]
    return agents


def read_entry(rows: Rows, seq: int, agent: str) -> Entry | None:
    """Look one line of the ledger up; None means that nothing has happened to it yet."""
    value = rows.get(LEDGER, ledger_key(seq, agent))
    return None if value is None else decode_entry(value)


def read_unread(rows: Rows, agent: str) -> int:
    """Tell how much open mail an agent has."""
    value = rows.get(UNREAD, agent)
    return 0 if value is None else decode_count(value)


def find_mail(rows: Rows, agent: str, seq: int) -> tuple[str, Mail] | None:
    """Find one open message of an agent by its place."""
    for key in mail_keys(agent, seq):
        if (value := rows.get(MAIL, key)) is not None:
            return key, decode_mail(value)
    return None


def read_unsure(rows: Rows, agent: str) -> list[int]:
    """Give the places of what an agent may or may not have read: lanes ended before it was confirmed."""
    return [int(key.rpartition("/")[2]) for key, _ in rows.scan(UNSURE, f"{agent}/", limit=1000)]


class _Counter:
    """Counts open mail up and down while one event is applied, each agent's row written once."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._counts: dict[str, int] = {}

    def add(self, agent: str, step: int) -> None:
        if agent not in self._counts:
            self._counts[agent] = read_unread(self._rows, agent)
        self._counts[agent] += step

    def changes(self) -> list[Change]:
        return [
            (UNREAD, agent, encode_row(count) if count > 0 else None) for agent, count in self._counts.items()
        ]


def _message(rows: Rows, event: Event) -> list[Change]:
    mail = deliverable(event)
    changes, counter = _open_mail(rows, event, mail)
    if (place := reply_place(event)) is not None:
        changes += _answered(rows, event, place, counter)
    return changes + counter.changes()


def _carried(rows: Rows, event: Event) -> list[Change]:
    """An envelope of a foreign type is mail for those it was routed to, and nothing else."""
    mail = deliverable(event)
    if not mail.delivered_to:
        return []
    changes, counter = _open_mail(rows, event, mail)
    return changes + counter.changes()


def _open_mail(rows: Rows, event: Event, mail: Deliverable) -> tuple[list[Change], _Counter]:
    counter = _Counter(rows)
    row = encode_row(
        Mail(seq=event.seq, expires=mail.expires, state=State.HELD if mail.held else State.QUEUED)
    )
    changes: list[Change] = []
    for agent in mail.delivered_to:
        changes.append((MAIL, mail_key(agent, mail.priority, event.seq), row))
        counter.add(agent, 1)
        if mail.held:
            entry = Entry(state=State.HELD, ts=event.ts, reason=mail.held)
            changes.append((LEDGER, ledger_key(event.seq, agent), encode_row(entry)))
        if mail.expires:
            changes.append((EXPIRY, expiry_key(mail.expires, event.seq, agent), b"1"))
    return changes, counter


def _answered(rows: Rows, event: Event, place: int, counter: _Counter) -> list[Change]:
    """A reply lifts its sender's line of the message it answers, and takes that message out of the sender's line."""
    old = read_entry(rows, place, event.sender)
    waiting = find_mail(rows, event.sender, place)
    if old is None and waiting is None:
        return []
    if old is None:
        old = Entry(state=State.QUEUED, ts=0)
    if not can_rise(old.state, State.ANSWERED):
        return []
    entry = msgspec.structs.replace(
        old, state=State.ANSWERED, ts=event.ts, answer=event.seq, unconfirmed=False
    )
    changes: list[Change] = [(LEDGER, ledger_key(place, event.sender), encode_row(entry))]
    if waiting is not None:
        changes += _taken_out(event.sender, *waiting)
        counter.add(event.sender, -1)
    return changes


def _delivery(rows: Rows, event: Event) -> list[Change]:
    report = msgspec.convert(event.payload, DeliveryReport)
    counter = _Counter(rows)
    changes: list[Change] = []
    for seq in report.messages:
        changes += _reported(rows, event, report, seq, counter)
    return changes + counter.changes()


def _reported(rows: Rows, event: Event, report: DeliveryReport, seq: int, counter: _Counter) -> list[Change]:
    waiting = find_mail(rows, report.agent, seq)
    old = read_entry(rows, seq, report.agent)
    if old is None:
        if waiting is None and report.state != State.DEAD:
            return []
        old = Entry(state=State.QUEUED, ts=0)
    if not _is_step(old, report):
        return []
    entry = Entry(
        state=report.state,
        ts=event.ts,
        lane=report.lane or old.lane,
        grade=report.grade,
        reason=report.reason,
        unconfirmed=report.unconfirmed,
        submitted=event.ts if report.state == State.SUBMITTED and not report.unconfirmed else old.submitted,
        seen=event.ts if report.state == State.SEEN else old.seen,
        by=event.by or "",
    )
    changes: list[Change] = [(LEDGER, ledger_key(seq, report.agent), encode_row(entry))]
    if old.unconfirmed or report.unconfirmed:
        row = b"1" if report.unconfirmed else None
        changes.append((UNSURE, unsure_key(report.agent, seq), row))
    return changes + _moved(report, event.ts, seq, waiting, counter)


def _moved(
    report: DeliveryReport, ts: int, seq: int, waiting: tuple[str, Mail] | None, counter: _Counter
) -> list[Change]:
    """What a step does to the agent's line: mail leaves it, changes in it, or comes back into it."""
    if waiting is None:
        if report.state != State.QUEUED:
            return []
        priority = parse_priority(report.priority) if report.priority else Priority.NORMAL
        counter.add(report.agent, 1)
        return [(MAIL, mail_key(report.agent, priority, seq), encode_row(Mail(seq=seq, since=ts)))]
    key, mail = waiting
    if report.state == State.SEEN or report.state in ENDS or report.unconfirmed:
        counter.add(report.agent, -1)
        return _taken_out(report.agent, key, mail)
    changes: list[Change] = [
        (MAIL, key, encode_row(msgspec.structs.replace(mail, state=report.state, since=ts)))
    ]
    if mail.expires:  # what is submitted can no longer expire; what is queued again can
        row = None if report.state == State.SUBMITTED else b"1"
        changes.append((EXPIRY, expiry_key(mail.expires, seq, report.agent), row))
    return changes


def _taken_out(agent: str, key: str, mail: Mail) -> list[Change]:
    """One message leaves an agent's line."""
    changes: list[Change] = [(MAIL, key, None)]
    if mail.expires:
        changes.append((EXPIRY, expiry_key(mail.expires, mail.seq, agent), None))
    return changes


def _is_step(old: Entry, report: DeliveryReport) -> bool:
    """States only rise, but for the one way back: a definite refusal, or a person, puts mail in line again."""
    if report.state == State.QUEUED:
        return old.state in (State.SUBMITTED, State.HELD)
    if report.unconfirmed:
        return old.state == State.SUBMITTED and not old.unconfirmed
    return can_rise(old.state, report.state)


def _hello(rows: Rows, event: Event) -> list[Change]:
    """A join carries the whole agent; a later hello of the same agent says what runs it."""
    fields = event.payload.get("agent")
    if isinstance(fields, Mapping):
        agent = msgspec.convert(fields, Agent)
        agent = msgspec.structs.replace(agent, since=event.ts, joined=event.ts, seq=event.seq, left=False)
        return [(AGENTS, agent.name, encode_row(agent))]
    known = read_agent(rows, event.sender)
    if known is None:
        raise ValueError(event.sender)
    runtime, version = str(event.payload.get("runtime", "")), str(event.payload.get("version", ""))
    return [
        (AGENTS, known.name, encode_row(msgspec.structs.replace(known, runtime=runtime, version=version)))
    ]


def _bye(rows: Rows, event: Event) -> list[Change]:
    return _change_agent(
        rows, event, state="exited", left=True, since=event.ts, detail=str(event.payload.get("reason", ""))
    )


def _status(rows: Rows, event: Event) -> list[Change]:
    state, detail = str(event.payload["state"]), str(event.payload.get("detail", ""))
    return _change_agent(rows, event, state=state, detail=detail, since=event.ts)


def _paused(rows: Rows, event: Event) -> list[Change]:
    return _change_agent(rows, event, paused=event.type == "agent.paused")


def _change_agent(rows: Rows, event: Event, **fields: object) -> list[Change]:
    known = read_agent(rows, str(event.payload.get("agent", event.sender)))
    if known is None:
        raise ValueError(event.sender)
    return [(AGENTS, known.name, encode_row(msgspec.structs.replace(known, **fields)))]


def _life(rows: Rows, event: Event) -> list[Change]:
    """An agent that is back at another seat keeps its name and its age; other moments of life change nothing."""
    if event.payload.get("action") != "resumed":
        return []
    agent = msgspec.convert(event.payload["agent"], Agent)
    known = read_agent(rows, agent.name)
    joined = event.ts if known is None else known.joined
    agent = msgspec.structs.replace(agent, since=event.ts, joined=joined, seq=event.seq)
    return [(AGENTS, agent.name, encode_row(agent))]


_HANDLERS: Final[Mapping[str, _Handler]] = {
    "message": _message,
    "delivery": _delivery,
    "agent.hello": _hello,
    "agent.bye": _bye,
    "agent.paused": _paused,
    "agent.unpaused": _paused,
    "status": _status,
    "life": _life,
}
