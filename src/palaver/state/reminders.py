"""Expected replies in the state: the agent that owes each one, and its reminders. Pure."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

import msgspec

from palaver.protocol.agents import INSTANCE
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import (
    BYE,
    AgentState,
    DeliveryReport,
    MessageSent,
    ReminderNotice,
    State,
    StatusChanged,
)
from palaver.protocol.message import HUMAN, MESSAGE, SYSTEM
from palaver.protocol.query import STORED_STATES
from palaver.protocol.subscriptions import DELIVERY, STATUS, STOPPED
from palaver.state.agents import read_agent, read_entry
from palaver.state.rows import Change, Rows, agent_key, deliverable, encode_row, reply_place
from palaver.state.watches import owed_no_more, places_of_agents, walk, without

# --------------------
# An expected reply, as rows of the fold: the agent that owes it, and its reminders. Pure.

LIMIT_NAGS: Final = 3
"""The number of reminders that a recipient gets."""


class Nag(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reply that one recipient owes to the sender of a message."""

    agent: str
    request: int
    sender: str
    nags: int = 0
    last: int = 0
    """The seq of the last reminder: the next one waits until that was seen."""


class NagDue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a reminder is due: the agent is idle, or it stopped."""

    state: str
    cause: str
    since: int = 0
    """When an idle agent had seen everything, in Unix ms: it has had no time for the reply yet."""


decode_nag: Final = msgspec.json.Decoder(Nag).decode
decode_nag_due: Final = msgspec.json.Decoder(NagDue).decode

# --------------------
# The part of the fold that stores expected replies and reminders, and functions to read them. Pure.
#
#     nag       replies that a recipient owes: `<agent>/<seq of the message>`
#     nag_due   those for which a notice is due, and why
#
# A reminder becomes due in the fold itself: when its agent has seen the message and the last reminder, has
# not answered, and is idle; or, for the sender, when the agent stops. The reminder is a message that names
# its cause, and clears the due row. So neither a clock nor a restart can make one come twice or not at all.

NAGS: Final = "nag"
NAG_DUE: Final = "nag_due"

_CAN_BE_TOLD: Final = frozenset({INSTANCE, HUMAN})
_READ: Final = frozenset({State.SEEN, State.ANSWERED})


def nag_changes(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of an event to the expected replies; `agent` is the agent that it is about."""
    handler = _HANDLERS.get(event.type)
    return [] if handler is None else handler(rows, event, agent)


def read_nag(rows: Rows, agent: str, request: int) -> Nag | None:
    """Return the reply that one recipient owes, or None."""
    value = rows.get(NAGS, agent_key(agent, request))
    return None if value is None else decode_nag(value)


def read_nag_due(rows: Rows, agent: str, request: int) -> NagDue | None:
    """Return why a notice is due, or None."""
    value = rows.get(NAG_DUE, agent_key(agent, request))
    return None if value is None else decode_nag_due(value)


def has_nags(rows: Rows) -> bool:
    """Return whether any agent owes a reply."""
    return bool(rows.scan(NAGS, "", limit=1))


def due_nags(rows: Rows, agent: str = "") -> list[tuple[str, int]]:
    """Return agent and message of every due reminder, of one agent or of all."""
    return places_of_agents(rows, NAG_DUE, agent)


def _by_message(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a message: it may expect replies, be a reply, or be a reminder."""
    message = body_as(event, MessageSent)
    changes: list[Change] = []
    if message.expects_reply and message.sender_kind in _CAN_BE_TOLD:
        changes += _waited_for(event)
    if (answered := reply_place(event)) is not None and not message.held:
        changes += _over(rows, event.sender, answered)
    if message.sender_kind == SYSTEM and "nag" in event.odd_fields:
        raise ValueError("nag")
    if message.sender_kind == SYSTEM and message.nag is not None:
        changes += _told(rows, event, message.nag)
    return changes


def _waited_for(event: Event) -> Iterable[Change]:
    """Yield a row per recipient, except the sender and the human: neither is reminded."""
    for name in deliverable(event).delivered_to:
        if name not in (event.sender, HUMAN):
            nag = Nag(agent=name, request=event.seq, sender=event.sender)
            yield NAGS, agent_key(name, event.seq), encode_row(nag)


def _told(rows: Rows, event: Event, notice: ReminderNotice) -> list[Change]:
    """Return the changes of a reminder, or of the final notice to the sender."""
    nag = read_nag(rows, notice.agent, notice.request)
    if nag is None or not notice.count:
        return _over(rows, notice.agent, notice.request)
    key = agent_key(notice.agent, notice.request)
    row = encode_row(msgspec.structs.replace(nag, nags=notice.count, last=event.seq))
    return [(NAGS, key, row), (NAG_DUE, key, None)]


def _over(rows: Rows, agent: str, request: int) -> list[Change]:
    return without(rows, (NAGS, NAG_DUE), agent, request)


def _by_report(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a delivery report: ended replies, and reminders of seen messages."""
    report = body_as(event, DeliveryReport)
    if report.state == State.SEEN:
        return _by_seeing(rows, event, report)
    return [change for owed in owed_no_more(rows, event) for change in _over(rows, *owed)]


def _by_seeing(rows: Rows, event: Event, report: DeliveryReport) -> list[Change]:
    known = read_agent(rows, report.agent)
    if known is None or known.left or known.state != AgentState.IDLE:
        return []
    due = NagDue(state=AgentState.IDLE.value, cause=event.id, since=event.ts)
    return _due(rows, report.agent, due, seen=frozenset(report.messages))


def _by_status(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a status: an idle agent is due unless a reminder still waits.

    An agent that saw the message while idle and becomes active may be working on the reply.
    """
    word = body_as(event, StatusChanged).state or ""
    if STORED_STATES.get(word, word) != AgentState.IDLE:
        dues = walk(rows, NAG_DUE, f"{agent}/")
        return [(NAG_DUE, key, None) for key, value in dues if decode_nag_due(value).since]
    return _due(rows, agent, NagDue(state=AgentState.IDLE.value, cause=event.id))


def _due(rows: Rows, agent: str, due: NagDue, *, seen: Container[int] = ()) -> list[Change]:
    """Make every reminder due whose message and last reminder the agent has seen."""
    changes: list[Change] = []
    for key, value in walk(rows, NAGS, f"{agent}/"):
        nag = decode_nag(value)
        parts = [seq for seq in (nag.request, nag.last) if seq]
        known = rows.get(NAG_DUE, key)
        is_due = known is not None and (bool(due.since) or not decode_nag_due(known).since)
        if not is_due and all(seq in seen or _has_seen(rows, seq, agent) for seq in parts):
            changes.append((NAG_DUE, key, encode_row(due)))
    return changes


def _has_seen(rows: Rows, seq: int, agent: str) -> bool:
    entry = read_entry(rows, seq, agent)
    return entry is not None and entry.state in _READ


def _by_bye(rows: Rows, event: Event, agent: str) -> list[Change]:
    """Return the changes of a bye: an agent that stops will not reply, whatever it has seen."""
    due = encode_row(NagDue(state=STOPPED, cause=event.id))
    return [(NAG_DUE, key, due) for key, _ in walk(rows, NAGS, f"{agent}/")]


_Handler = Callable[[Rows, Event, str], list[Change]]
_HANDLERS: Final[Mapping[str, _Handler]] = {
    MESSAGE: _by_message,
    DELIVERY: _by_report,
    STATUS: _by_status,
    BYE: _by_bye,
}
