"""Replies that are not owed any more: shared by the folds of watches and of reminders. Pure."""

import msgspec

from palaver.log.api import Change, Rows
from palaver.log.state import can_step
from palaver.model.delivery import ENDS, State
from palaver.model.envelope import Event
from palaver.model.mail import DeliveryReport, agent_key


def owed_no_more(rows: Rows, event: Event) -> list[tuple[str, int]]:
    """Return agent and message of each reply that is not owed any more after a change of the ledger.

    No reply to a copy that ends unread is expected; a released reply is an answer.
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
    """Return the changes that remove the rows of one agent's reply from those tables that have one."""
    key = agent_key(agent, request)
    return [(table, key, None) for table in tables if rows.get(table, key) is not None]
