"""Conversations and attention, recomputed from all events without the rows of their folds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from palaver.log.api import Log
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    ENDS,
    AgentState,
    LifeChanged,
    MessageSent,
    PermissionAnswered,
    PermissionAsked,
    State,
)
from palaver.protocol.message import HUMAN, is_raw
from palaver.protocol.query import Query, shown_conversations
from palaver.state.agents import find_mail, read_agents, read_entry, read_mail, read_unread
from palaver.state.attention import attention_of, beginning_of, read_attention
from palaver.state.conversations import TALK_OPEN, count_unread, read_conversations
from palaver.state.paths import read_cleared
from palaver.state.rooms import Room
from palaver.state.rows import (
    HELD,
    LEDGER,
    PUSHED,
    LedgerEntry,
    Rows,
    answered_seq,
    decode_entry,
    parse_ledger_key,
)


@dataclass
class FakeFacts:
    """The facts about a bus, as a test sets them. Every agent is present unless it is named in `absent`."""

    events: dict[int, Event] = field(default_factory=dict)
    now_ms: int = 2_000_000_000_000
    stale_after_ms: int = 0
    known: Sequence[Agent] = ()
    absent: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    """Permission requests that cannot be answered any more."""
    leases: dict[str, int] = field(default_factory=dict)

    def is_present(self, name: str) -> bool:
        return name not in self.absent

    def agents(self) -> Iterable[Agent]:
        return self.known

    def text_of(self, seq: int) -> str:
        return beginning_of(self.events[seq]) if seq in self.events else ""

    def sender_of(self, seq: int) -> str:
        return self.events[seq].sender if seq in self.events else ""

    def can_answer_permission(self, id: str) -> bool:
        return id not in self.closed

    def lease_until_ms(self, room: Room) -> int:
        return self.leases.get(room.id, room.lease_until_ms)


async def check_lists(log: Log) -> None:
    """Check that all lists equal those that are recomputed from all events."""
    events = [event for event in await log.read(Query(limit=100_000)) if not event.imported]
    check_conversations(log.rows, events)
    check_attention(log.rows, events)


def check_conversations(rows: Rows, events: Sequence[Event]) -> None:
    """Check the conversations, their order and their unread messages."""
    newest: dict[str, Event] = {}
    counts: dict[str, int] = {}
    for event in events:
        for key in _keys(event):
            newest[key] = event
            counts[key] = counts.get(key, 0) + 1
    by_seq = {event.seq: event for event in events}
    mails = [mail.seq for mail in read_mail(rows, HUMAN, PUSHED) if not mail.is_kept_back]
    unread = [key for seq in mails for key in _keys(by_seq[seq])]

    found = read_conversations(rows, limit=100_000)

    assert [one.key for one in found] == sorted(newest, key=lambda key: (-newest[key].seq, key))
    for one in found:
        event = newest[one.key]
        assert (one.seq, one.ts, one.sender) == (event.seq, event.ts, event.sender)
        assert (one.count, one.unread) == (counts[one.key], unread.count(one.key))
    assert count_unread(rows) == len(mails) == read_unread(rows, HUMAN)
    waiting = {mail.seq for mail in read_mail(rows, HUMAN)}
    unconfirmed = {seq for seq, name, entry in _ledger(rows) if name == HUMAN and entry.unconfirmed}
    # A report may name a message that was never sent.
    opened = {int(key) for key, _ in rows.scan(TALK_OPEN, "", limit=100_000)}
    assert waiting <= opened <= waiting | unconfirmed
    assert _in_pages(rows) == [one.key for one in found]


def _keys(event: Event) -> list[str]:
    return [one for one in shown_conversations(event) if not one.startswith("@") or one.count("@") == 2]


def _in_pages(rows: Rows) -> list[str]:
    keys: list[str] = []
    before = 0
    while page := read_conversations(rows, before=before, limit=2):
        keys += [one.key for one in page]
        before = page[-1].seq
    return keys


def check_attention(rows: Rows, events: Sequence[Event]) -> None:
    """Check the attention list, as a whole and entry by entry."""
    agents = read_agents(rows)
    facts = FakeFacts(events={event.seq: event for event in events}, known=agents)
    wanted = _attention(rows, events, agents)

    found = read_attention(rows, facts)

    assert {one.key: one.who for one in found} == wanted
    assert [one.since for one in found] == sorted(one.since for one in found)
    assert all(one.why.endswith(".") and (one.what or one.seq not in facts.events) for one in found)
    assert [attention_of(rows, one.key, facts) for one in found] == found


def _attention(rows: Rows, events: Sequence[Event], agents: Sequence[Agent]) -> dict[str, str]:
    """Return the key of each entry, and the agent that it is about."""
    senders = {event.seq: event.sender for event in events}
    raw = {event.seq for event in events if is_raw(event)}
    asked = _permissions(events)
    found = {f"permission/{id_}": name for id_, name in asked.items()}
    found |= {f"request/{event.seq}": event.sender for event in events if _is_open(rows, event, events)}
    for key, _ in rows.scan(HELD, "", limit=100_000):
        seq, name = parse_ledger_key(key)
        entry, mail = read_entry(rows, seq, name), find_mail(rows, name, seq)
        assert entry is not None
        assert mail is not None
        assert mail[1].is_kept_back
        if not entry.reason.startswith("usage limit"):
            found[f"held/{seq}"] = senders[seq]
    for seq, name, entry in _ledger(rows):
        if entry.unconfirmed and seq not in raw:
            found[f"unconfirmed/{seq}/{name}"] = senders.get(seq, "")
    cleared = read_cleared(rows)
    for event in events:
        if isinstance(event.body, MessageSent) and event.body.dead and event.seq > cleared:
            found[f"dead/{event.seq}"] = event.sender
    for agent in agents:
        if agent.state == AgentState.BLOCKED and agent.name not in asked.values():
            found[f"agent/{agent.name}"] = agent.name
    return found


def _permissions(events: Sequence[Event]) -> dict[str, str]:
    found: dict[str, str] = {}
    for event in events:
        match event.body:
            case PermissionAsked(permission=id_):
                found[id_] = event.sender
            case PermissionAnswered(permission=id_):
                found.pop(id_, None)
            case LifeChanged(action="daemon_started"):
                found.clear()
    return found


def _is_open(rows: Rows, event: Event, events: Sequence[Event]) -> bool:
    """Return whether an event is a request to the person without a reply."""
    message = event.body
    if not isinstance(message, MessageSent) or HUMAN not in message.mentions or event.sender == HUMAN:
        return False
    if message.intent != "request" and not message.expects_reply:
        return False
    entry, mail = read_entry(rows, event.seq, HUMAN), find_mail(rows, HUMAN, event.seq)
    is_over = entry is not None and entry.state in (*ENDS, State.ANSWERED)
    return (
        not is_over and not (mail is not None and mail[1].is_kept_back) and not _is_withdrawn(event, events)
    )


def _is_withdrawn(event: Event, events: Sequence[Event]) -> bool:
    return any(
        isinstance(one.body, MessageSent)
        and one.body.intent == "ack"
        and one.sender == event.sender
        and answered_seq(one) == event.seq
        for one in events
    )


def _ledger(rows: Rows) -> list[tuple[int, str, LedgerEntry]]:
    entries = rows.scan(LEDGER, "", limit=100_000)
    return [(*parse_ledger_key(key), decode_entry(value)) for key, value in entries]
