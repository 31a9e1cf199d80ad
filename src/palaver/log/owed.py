"""Answers that are owed no more: what the folds of watches and of reminders share. Pure."""

import msgspec

from palaver.log.api import Change, Rows
from palaver.log.state import can_step
from palaver.model.delivery import ENDS, State
from palaver.model.envelope import Event
from palaver.model.mail import DeliveryReport, agent_key


def owed_no_more(rows: Rows, event: Event) -> list[tuple[str, int]]:
    """Give who owes no answer any more, and to which message, after a step of the ledger.

    A copy that ends unread leaves nothing to wait for; a reply that is let through is one.
    """
    state = event.payload.get("state")
    if state not in ENDS and state != State.QUEUED:
        return []
    report = msgspec.convert(event.payload, DeliveryReport)
    moved = [seq for seq in dict.fromkeys(report.messages) if can_step(rows, report, seq)]
    if state != State.QUEUED:
        return [(report.agent, seq) for seq in moved]
    return [(report.author, report.answers)] if moved and report.answers else []


def without(rows: Rows, tables: tuple[str, ...], agent: str, request: int) -> list[Change]:
    """Take what is kept about one agent's answer out of those of the tables that have it."""
    key = agent_key(agent, request)
    return [(table, key, None) for table in tables if rows.get(table, key) is not None]
