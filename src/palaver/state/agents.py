"""Read agents, their open mail and its ledger entries from the state. The folds write them. Pure.

The folds of agents are in `fold.py`, those of mail and the ledger in `ledger.py`.
"""

from collections.abc import Container, Iterable, Iterator
from heapq import merge
from itertools import takewhile
from typing import Final

import msgspec

from palaver.protocol.agents import Agent, Seat
from palaver.protocol.events import DeliveryReport, State, can_rise
from palaver.protocol.message import HUMAN, Priority
from palaver.protocol.paths import PLUS, split_mailbox
from palaver.protocol.turns import TURN_LANE
from palaver.state.rows import (
    CARRIED,
    LEDGER,
    MAIL,
    TIP,
    UNREAD,
    UNSURE,
    LedgerEntry,
    MailKind,
    OpenMessage,
    Rows,
    decode_count,
    decode_entry,
    decode_mail,
    ledger_key,
    mail_keys,
    mail_prefix,
    parse_ledger_key,
    seq_of_key,
    tip_key,
)

AGENTS: Final = "agent"
SESSIONS: Final = "session"
SEATS: Final = "seat"
SUBAGENTS: Final = "subagent"
LAST_SUBAGENT: Final = "subagent_last"

_LIMIT_LIST: Final = 1000
"""Rows that one list returns at most, and that a scan of all rows reads at a time."""
_FIRST_MAIL: Final = 32
"""Rows that are read first: most readers need only a few, however many there are."""
_MAIL_AT_ONCE: Final = 200
_QUEUED: Final = LedgerEntry(state=State.QUEUED, ts=0)
_decode_agent: Final = msgspec.json.Decoder(Agent).decode


def read_agent(rows: Rows, name: str) -> Agent | None:
    """Return an agent by its name, or None."""
    value = rows.get(AGENTS, name)
    return None if value is None else _decode_agent(value)


def read_agents(rows: Rows) -> list[Agent]:
    """Return every known agent, by name."""
    agents: list[Agent] = []
    after = ""
    while page := rows.scan(AGENTS, "", after=after, limit=_LIMIT_LIST):
        agents.extend(_decode_agent(value) for _, value in page)
        after = page[-1][0]
    return agents


def read_session(rows: Rows, harness: str, session: str) -> str | None:
    """Return the most recent agent name of a harness session, or None."""
    value = rows.get(SESSIONS, f"{harness}/{session}")
    return None if value is None else value.decode()


def seat_row(seat: Seat) -> str:
    """Return the key of the row that records a process as a seat."""
    return f"{seat.boot}/{seat.pid}/{seat.start}"


def read_seats(rows: Rows, boot: str) -> list[Seat]:
    """Return every process of this boot that was ever a seat, without session keys."""
    seats: list[Seat] = []
    after = ""
    while page := rows.scan(SEATS, f"{boot}/", after=after, limit=_LIMIT_LIST):
        for key, _ in page:
            pid, start = key.removeprefix(f"{boot}/").split("/")
            seats.append(Seat(pid=int(pid), start=int(start), boot=boot))
        after = page[-1][0]
    return seats


def read_subagent(rows: Rows, parent: str, key: str) -> str | None:
    """Return the most recent name of a harness's sub-agent, or None."""
    value = rows.get(SUBAGENTS, f"{parent}/{key}")
    return None if value is None else value.decode()


def read_last_subagent(rows: Rows, stem: str) -> int:
    """Return the largest number that a sub-agent of that parent and type has had, or 0."""
    value = rows.get(LAST_SUBAGENT, stem)
    return 0 if value is None else decode_count(value)


def read_entry(rows: Rows, seq: int, agent: str) -> LedgerEntry | None:
    """Return a ledger entry; None if nothing has happened to the message yet."""
    value = rows.get(LEDGER, ledger_key(seq, agent))
    return None if value is None else decode_entry(value)


def read_session_entries(rows: Rows, seq: int, agent: str) -> dict[str, LedgerEntry]:
    """Return the ledger entries of a message for the sessions of an agent, by mailbox."""
    # With the plus: without it, the agent `luna2` would be taken for a session of `luna`.
    found = rows.scan(LEDGER, ledger_key(seq, f"{agent}{PLUS}"), limit=_LIMIT_LIST)
    return {parse_ledger_key(key)[1]: decode_entry(value) for key, value in found}


def read_seen(
    rows: Rows, seq: int, agent: str, states: Container[str] = frozenset({State.SEEN})
) -> LedgerEntry | None:
    """Return the entry of the copy that an agent has seen, its own or that of one of its sessions, or None.

    `states` are the states that count as seen.
    """
    # An agent with sessions may have read only the copy of one of them. That is the same agent.
    own = read_entry(rows, seq, agent)
    if own is not None and own.state in states:
        return own
    sessions = read_session_entries(rows, seq, agent).values()
    return next((entry for entry in sessions if entry.state in states), None)


def mailbox_on_lane(rows: Rows, agent: str, seq: int) -> str:
    """Return the mailbox whose copy of a message a lane of the agent carried last, or the agent itself."""
    # A holder that reconnects reports only seqs, although its lane also carries the copies of the agent's
    # sessions.
    own = read_entry(rows, seq, agent)
    if own is not None and own.submitted:
        return agent
    sessions = read_session_entries(rows, seq, agent)
    last = max(sessions, key=lambda name: sessions[name].submitted, default=agent)
    return last if last in sessions and sessions[last].submitted else agent


def read_lane_entry(rows: Rows, seq: int, agent: str) -> LedgerEntry | None:
    """Return the ledger entry of the copy of a message that a lane of the agent carried last."""
    return read_entry(rows, seq, mailbox_on_lane(rows, agent, seq))


def read_receivers(rows: Rows, seq: int) -> list[str]:
    """Return the recipients of a message from the ledger and open mail, by name.

    For a message that does not name them any more: every agent and every session with mail is checked.
    """
    prefix = ledger_key(seq, "")
    names = {key.removeprefix(prefix) for key, _ in rows.scan(LEDGER, prefix, limit=_LIMIT_LIST)}
    known = [*(agent.name for agent in read_agents(rows)), HUMAN, *read_unread_of_all(rows)]
    return sorted(names | {name for name in known if find_mail(rows, name, seq) is not None})


def read_unread(rows: Rows, agent: str) -> int:
    """Return how many open messages an agent has."""
    value = rows.get(UNREAD, agent)
    return 0 if value is None else decode_count(value)


def count_handled(rows: Rows, agent: str) -> int:
    """Return how many handled copies an agent can fetch. They are not unread. 1,000 are counted at most."""
    # Their keys are the last ones of a mailbox, so one scan finds those of all priorities.
    first = mail_prefix(agent, min(Priority), MailKind.HANDLED)
    found = rows.scan(MAIL, mail_prefix(agent), after=first, limit=_LIMIT_LIST)
    return sum(not decode_mail(value).is_kept_back for _, value in found)


def read_unread_of_all(rows: Rows) -> dict[str, int]:
    """Return the number of open messages of each mailbox that has some."""
    return {name: decode_count(value) for name, value in _all_rows(rows, UNREAD)}


def read_unsure_of_all(rows: Rows) -> dict[str, tuple[int, ...]]:
    """Return the seqs of unconfirmed messages of each agent that has some, as `read_unsure` does."""
    found: dict[str, set[int]] = {}
    for key, _ in _all_rows(rows, UNSURE):
        agent, _ = split_mailbox(key.rpartition("/")[0])
        found.setdefault(agent, set()).add(seq_of_key(key))
    return {name: tuple(sorted(seqs)) for name, seqs in found.items()}


def _all_rows(rows: Rows, table: str) -> Iterator[tuple[str, bytes]]:
    after = ""
    while page := rows.scan(table, "", after=after, limit=_LIMIT_LIST):
        yield from page
        after = page[-1][0]


def find_mail(rows: Rows, agent: str, seq: int) -> tuple[str, OpenMessage] | None:
    """Return one open message of an agent by its seq, with its key, or None."""
    # The priority and the kind are in the key and not known here, so each possible key is tried.
    for key in mail_keys(agent, seq):
        if (value := rows.get(MAIL, key)) is not None:
            return key, decode_mail(value)
    return None


def read_mail(rows: Rows, agent: str, kinds: Iterable[MailKind] = MailKind) -> Iterator[OpenMessage]:
    """Iterate over the open mail of an agent in delivery order, of all kinds or of some."""
    for priority in Priority:
        yield from _of_priority(rows, agent, priority, kinds)


def read_mail_up_to(rows: Rows, agent: str, last: int) -> Iterator[OpenMessage]:
    """Iterate over the open mail of an agent up to a seq, in delivery order.

    The cost does not depend on later mail, except for the priority that is delivered newest first.
    """
    for priority in Priority:
        mails = _of_priority(rows, agent, priority)
        if priority is Priority.IDLE_FIRST:  # The newest come first, so later mail must be skipped.
            yield from (mail for mail in mails if mail.seq <= last)
        else:
            yield from takewhile(lambda mail: mail.seq <= last, mails)


def _of_priority(
    rows: Rows, agent: str, priority: Priority, kinds: Iterable[MailKind] = MailKind
) -> Iterator[OpenMessage]:
    """Iterate over the open mail of one priority, its kinds merged in delivery order."""
    parts = [_with_prefix(rows, mail_prefix(agent, priority, kind)) for kind in kinds]
    return merge(*parts, key=lambda mail: mail.seq, reverse=priority is Priority.IDLE_FIRST)


def _with_prefix(rows: Rows, prefix: str) -> Iterator[OpenMessage]:
    after, size = "", _FIRST_MAIL
    while page := rows.scan(MAIL, prefix, after=after, limit=size):
        yield from (decode_mail(value) for _, value in page)
        if len(page) < size:
            return
        after, size = page[-1][0], _MAIL_AT_ONCE


def read_carried(rows: Rows, mailbox: str) -> list[int]:
    """Return the seqs of a mailbox's messages in transit: submitted on a lane without an outcome."""
    return [seq_of_key(key) for key, _ in rows.scan(CARRIED, f"{mailbox}/", limit=_LIMIT_LIST)]


def agents_with_carried(rows: Rows) -> list[str]:
    """Return the agents whose lanes have mail in transit, by name."""
    mailboxes = {key.rpartition("/")[0] for key, _ in _all_rows(rows, CARRIED)}
    return sorted({split_mailbox(mailbox)[0] for mailbox in mailboxes})


def mailboxes_with_carried(rows: Rows, agent: str) -> list[str]:
    """Return the mailboxes that have mail in transit: those of the agent's sessions by name, then its own."""
    # Two scans, because one for the bare name would also find the agent `luna2`.
    keys = [key for end in (PLUS, "/") for key, _ in rows.scan(CARRIED, f"{agent}{end}", limit=_LIMIT_LIST)]
    return list(dict.fromkeys(key.rpartition("/")[0] for key in keys))


def carried_by_lanes(rows: Rows, agent: str) -> list[int]:
    """Return the seqs of all mail in transit on the lanes of an agent, with that of its sessions."""
    mailboxes = mailboxes_with_carried(rows, agent)
    return sorted({seq for mailbox in mailboxes for seq in read_carried(rows, mailbox)})


def read_unsure(rows: Rows, agent: str) -> list[int]:
    """Return the seqs of unconfirmed messages: lanes ended before an agent confirmed them.

    Those of its sessions are included, since the same lanes carried them.
    """
    keys = [key for end in ("/", PLUS) for key, _ in rows.scan(UNSURE, f"{agent}{end}", limit=_LIMIT_LIST)]
    return sorted({seq_of_key(key) for key in keys})


def read_tips(rows: Rows, agent: str) -> frozenset[str]:
    """Return the one-time tips that an agent has received."""
    prefix = tip_key(agent, "")
    return frozenset(key.removeprefix(prefix) for key, _ in rows.scan(TIP, prefix, limit=_LIMIT_LIST))


def can_step(rows: Rows, report: DeliveryReport, seq: int) -> bool:
    """Return whether a report changes the ledger entry of a message.

    States only rise, with one exception: a definite refusal, or a person, queues mail again. A message to
    others has no entry to change; only an unmatched path creates one, under the path.
    """
    old = read_line(rows, seq, report.agent)
    if old is None:
        return report.state == State.DEAD
    # Only a message in transit becomes unconfirmed: proof may have come between the end of the lane and this
    # report.
    if report.unconfirmed:
        return report.state == State.SUBMITTED and is_carried(old)
    if report.state == State.QUEUED:
        return old.state in (State.SUBMITTED, State.HELD)
    if (
        old.state == State.ANSWERED and report.state == State.SEEN
    ):  # A reply came before the message was taken, so the message is still in the queue.
        return find_mail(rows, report.agent, seq) is not None
    return can_rise(old.state, report.state)


def read_line(rows: Rows, seq: int, agent: str) -> LedgerEntry | None:
    """Return a ledger entry, also of mail that only waits; None if the message is not for the agent."""
    entry = read_entry(rows, seq, agent)
    if entry is None and find_mail(rows, agent, seq) is not None:
        return _QUEUED
    return entry


def is_carried(entry: LedgerEntry) -> bool:
    """Return whether a message is in transit on a lane without an outcome.

    The messages of an automatic turn are not: the turn has its own record, and ends in a definite way.
    """
    is_on_lane = entry.state == State.SUBMITTED and not entry.unconfirmed
    return is_on_lane and entry.lane != TURN_LANE
