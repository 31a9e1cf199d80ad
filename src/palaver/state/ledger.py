"""The changes of messages and reports to open mail and the ledger: the larger half of the fold. Pure."""

from typing import Final

import msgspec

from palaver.protocol.envelope import Event, body_as, is_migrated
from palaver.protocol.events import DeliveryReport, Grade, MessageSent, State, can_rise
from palaver.protocol.message import Priority, parse_priority
from palaver.protocol.paths import NO_AGENT, TAKEN_BEFORE, split_mailbox
from palaver.state.agents import (
    can_step,
    find_mail,
    is_carried,
    read_entry,
    read_line,
    read_session_entries,
    read_unread,
)
from palaver.state.paths import session_used
from palaver.state.rows import (
    CARRIED,
    EXPIRY,
    HELD,
    LEDGER,
    MAIL,
    TIP,
    UNREAD,
    UNSURE,
    Change,
    LedgerEntry,
    MailKind,
    OpenMessage,
    Rows,
    agent_key,
    answered_seq,
    deliverable,
    encode_row,
    expiry_key,
    kind_of_key,
    ledger_key,
    mail_key,
    tip_key,
)
from palaver.state.turns import left_queue, moved_in_queue, queued_by_message
from palaver.state.watches import read_reminder

_IN_LINE: Final = frozenset({State.QUEUED, State.HELD, State.SUBMITTED})
_REACHED: Final = frozenset({State.SUBMITTED, State.SEEN})
_NEW: Final = LedgerEntry(state=State.QUEUED, ts=0)


class _Counter:
    """Counts open mail up and down while one event is applied, and writes each agent's row once.

    The rows keep their values until the event is applied, so two changes for one agent would otherwise both
    start from the old count, and one would be lost.

    Held mail does not count: its agent cannot take it. Nor does a handled copy: nothing waits for its agent.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._counts: dict[str, int] = {}

    def add(self, agent: str, step: int) -> None:
        if not step:
            return
        if agent not in self._counts:
            self._counts[agent] = read_unread(self._rows, agent)
        self._counts[agent] += step

    def changes(self) -> list[Change]:
        # No row instead of 0: a list of all mailboxes with mail then reads only these.
        return [
            (UNREAD, agent, encode_row(count) if count > 0 else None) for agent, count in self._counts.items()
        ]


def opened_by_message(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a message: it is mail for its recipients, and may answer another message."""
    counter = _Counter(rows)
    changes = _open_mail(event, counter)
    # It is history that is taken over: it answers nothing here, and starts no automatic turn.
    if is_migrated(event):
        return changes + _dead(event) + counter.changes()
    seq = answered_seq(event)
    # A held reply answers nothing until it is released.
    if seq is not None and not deliverable(event).held:
        changes += _answered_with_reminder(rows, event, event.sender, seq, counter)
    return changes + counter.changes() + queued_by_message(rows, event)


def opened_by_envelope(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of an envelope of a foreign type: it is only mail for its recipients.

    It starts no automatic turn: it has no room for a count of hops, so a brake could not stop a loop.
    """
    counter = _Counter(rows)
    return _open_mail(event, counter) + counter.changes()


def _open_mail(event: Event, counter: _Counter) -> list[Change]:
    found = deliverable(event)
    state = State.HELD if found.held else State.QUEUED
    mail = OpenMessage(seq=event.seq, expires=found.expires, state=state, raw=found.is_raw)
    row = encode_row(mail)
    changes: list[Change] = []
    for agent in found.delivered_to:
        # It was taken in the other path broker. The entry says so; open mail would deliver it a second time.
        if agent in found.migrated:
            seen = LedgerEntry(
                state=State.SEEN, ts=event.ts, grade=Grade.HANDED, reason=TAKEN_BEFORE, seen=event.ts
            )
            changes.append((LEDGER, ledger_key(event.seq, agent), encode_row(seen)))
            continue
        kind = found.kind_for(agent)
        changes.append((MAIL, mail_key(agent, found.priority, event.seq, kind), row))
        counter.add(agent, int(not mail.is_kept_back and kind is not MailKind.HANDLED))
        if found.held:
            entry = LedgerEntry(state=State.HELD, ts=event.ts, reason=found.held)
            changes.append((LEDGER, ledger_key(event.seq, agent), encode_row(entry)))
            changes.append((HELD, ledger_key(event.seq, agent), b"1"))
        if found.expires:
            changes.append((EXPIRY, expiry_key(found.expires, event.seq, agent), b"1"))
    return changes


def _dead(event: Event) -> list[Change]:
    """Return the ledger entries of the paths that no subscription matched. No report will follow."""
    dead = encode_row(LedgerEntry(state=State.DEAD, ts=event.ts, reason=NO_AGENT))
    return [(LEDGER, ledger_key(event.seq, path), dead) for path in body_as(event, MessageSent).dead]


def _is_unread(key: str, mail: OpenMessage) -> bool:
    return not mail.is_kept_back and kind_of_key(key) is not MailKind.HANDLED


def _answered_with_reminder(
    rows: Rows, event: Event, agent: str, seq: int, counter: _Counter, answer: int = 0
) -> list[Change]:
    """Return the changes of a reply to its message and to a waiting reminder, which is now obsolete.

    The copies that have reached sessions of the author are answered with it.
    """
    changes = _answered(rows, event, agent, seq, counter, answer)
    for mailbox, entry in read_session_entries(rows, seq, agent).items():
        if entry.state in _REACHED:
            changes += _answered(rows, event, mailbox, seq, counter, answer)
    # A reminder that still waits is a message too, and would ask for a reply that has come.
    reminder = read_reminder(rows, agent, seq)
    if reminder is not None and reminder.last:
        changes += _answered(rows, event, agent, reminder.last, counter, answer)
    return changes


def _answered(
    rows: Rows, event: Event, agent: str, seq: int, counter: _Counter, answer: int = 0
) -> list[Change]:
    """Return the changes of a reply to its author's ledger entry.

    A message that a lane carries was evidently read, and leaves the queue. A message that only waits stays
    queued for the next reader: a reply is not proof of reading, and its number may be a mistake.
    """
    old = read_line(rows, seq, agent)
    if old is None or not can_rise(old.state, State.ANSWERED):
        return []
    new = msgspec.structs.replace(
        old,
        state=State.ANSWERED,
        ts=event.ts,
        answer=answer or event.seq,
        implied=isinstance(event.body, MessageSent) and event.body.reply_to is None,
        # A reply proves that the message has arrived, so it leaves the list of unconfirmed ones.
        unconfirmed=False,
    )
    changes = _lifted(agent, seq, old, new)
    waiting = find_mail(rows, agent, seq)
    if waiting is None:
        return changes
    key, mail = waiting
    if mail.state != State.QUEUED:
        return changes + _taken_out(rows, agent, key, mail, counter)
    # Without an expiry: an answered message cannot expire, so its time would stay due indefinitely.
    changes.append((MAIL, key, encode_row(msgspec.structs.replace(mail, state=State.ANSWERED, expires=0))))
    if mail.expires:
        changes.append((EXPIRY, expiry_key(mail.expires, mail.seq, agent), None))
    return changes


def moved_by_report(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a report: it changes only the entries that it may change."""
    report = body_as(event, DeliveryReport)
    counter = _Counter(rows)
    changes: list[Change] = []
    # A report may come late or twice, or name a message of another agent: only real steps are applied.
    moved = [seq for seq in dict.fromkeys(report.messages) if can_step(rows, report, seq)]
    for seq in moved:
        changes += _reported(rows, event, report, seq, counter)
    # Only with a change: a repeated report must not answer the request a second time.
    if report.author and report.answers and changes:
        answer = report.messages[0]
        changes += _answered_with_reminder(rows, event, report.author, report.answers, counter, answer)
    changes += moved_in_queue(rows, report, moved)
    agent, session = split_mailbox(report.agent)
    changes += [(TIP, tip_key(agent, tip), b"1") for tip in report.tips]
    if session and changes and report.state == State.SEEN:
        changes += session_used(rows, report.agent, event.ts)
    return changes + counter.changes()


def _reported(rows: Rows, event: Event, report: DeliveryReport, seq: int, counter: _Counter) -> list[Change]:
    old = read_entry(rows, seq, report.agent) or _NEW
    if old.state == State.ANSWERED:  # Answered unread, and read now: it stays answered.
        new = msgspec.structs.replace(old, lane=report.lane, grade=report.grade, seen=event.ts)
        answered = find_mail(rows, report.agent, seq)
        assert answered is not None  # otherwise it could not be seen
        return [*_lifted(report.agent, seq, old, new), *_taken_out(rows, report.agent, *answered, counter)]
    new = LedgerEntry(
        state=report.state,
        ts=event.ts,
        lane=report.lane or old.lane,
        grade=report.grade,
        reason=report.reason,
        unconfirmed=report.unconfirmed,
        # The report of an unconfirmed message has this state too, but is not a new submission.
        submitted=event.ts if report.state == State.SUBMITTED and not report.unconfirmed else old.submitted,
        seen=event.ts if report.state == State.SEEN else old.seen,
        by=event.by or "",
    )
    changes = _lifted(report.agent, seq, old, new)
    waiting = find_mail(rows, report.agent, seq)
    if waiting is not None:
        return changes + _moved(rows, report, event.ts, *waiting, counter)
    if report.state == State.QUEUED:  # It had left the queue, and is queued again.
        priority = parse_priority(report.priority) if report.priority else Priority.NORMAL
        counter.add(report.agent, 1)
        row = encode_row(OpenMessage(seq=seq, state=State.QUEUED, since=event.ts))
        changes.append((MAIL, mail_key(report.agent, priority, seq), row))
    return changes


def _moved(
    rows: Rows, report: DeliveryReport, ts: int, key: str, mail: OpenMessage, counter: _Counter
) -> list[Change]:
    """Return the changes to queued mail: it leaves the queue, or stays in it with another state."""
    if report.unconfirmed or report.state not in _IN_LINE:
        return _taken_out(rows, report.agent, key, mail, counter)
    # A report that names a lane comes from that lane's gate. It concerns only lanes: a reader may still fetch
    # it.
    is_gated = report.state == State.HELD and bool(report.lane)
    # The key stays the same, so mail that was refused is at its old position in the queue.
    moved = msgspec.structs.replace(mail, state=report.state, since=ts, is_gated=is_gated)
    changes: list[Change] = [(MAIL, key, encode_row(moved))]
    counter.add(report.agent, _is_unread(key, moved) - _is_unread(key, mail))
    if mail.is_kept_back != moved.is_kept_back:
        kept = b"1" if moved.is_kept_back else None
        changes.append((HELD, ledger_key(mail.seq, report.agent), kept))
    if mail.expires:  # Submitted mail can not expire any more; mail that is queued again can.
        is_open = report.state != State.SUBMITTED
        changes.append((EXPIRY, expiry_key(mail.expires, mail.seq, report.agent), b"1" if is_open else None))
    return changes


def _lifted(agent: str, seq: int, old: LedgerEntry, new: LedgerEntry) -> list[Change]:
    """Return the changes of a ledger entry and of the short lists of carried and unconfirmed messages."""
    changes: list[Change] = [(LEDGER, ledger_key(seq, agent), encode_row(new))]
    for table, was, is_now in (
        (CARRIED, is_carried(old), is_carried(new)),
        (UNSURE, old.unconfirmed, new.unconfirmed),
    ):
        if was != is_now:
            changes.append((table, agent_key(agent, seq), b"1" if is_now else None))
    return changes


def _taken_out(rows: Rows, agent: str, key: str, mail: OpenMessage, counter: _Counter) -> list[Change]:
    """Return the changes when one message leaves an agent's queue."""
    counter.add(agent, -_is_unread(key, mail))
    changes: list[Change] = [(MAIL, key, None), *left_queue(rows, agent, mail.seq)]
    if mail.is_kept_back:
        changes.append((HELD, ledger_key(mail.seq, agent), None))
    if mail.expires:
        changes.append((EXPIRY, expiry_key(mail.expires, mail.seq, agent), None))
    return changes
