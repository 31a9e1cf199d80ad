"""Automatic turns as rows: the configuration, the queue of each session, its last turn, counters. Pure.

    auto_run      the stored configuration of an agent or session; the row without a name says that there
                  is one, or was one
    turn_queue    waiting messages that start a turn, by session and seq
    turn_held     those of them that are held until a person releases them
    turn_session  the running or last turn of a session, and the times of its turns in the last hour
    turn_count    counters of the whole home

A message enters the queue of a session whose automatic turns are on, and leaves it when it leaves the
mailbox, or when the triage decides that it starts no turn.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from palaver.protocol.agent_text import is_system_name
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import (
    AutoTurnError,
    AutoTurnResult,
    AutoTurnStarted,
    DeliveryReport,
    MessageSent,
    SettingChanged,
    State,
    TurnSkipped,
)
from palaver.protocol.message import SYSTEM
from palaver.protocol.paths import mailbox_of
from palaver.protocol.turns import (
    BatchMessage,
    TurnStats,
    batch_of_start,
    is_on,
    session_of_mailbox,
    turn_targets,
)
from palaver.state.rows import Change, Rows, deliverable, encode_row

_CONFIGS: Final = "auto_run"
_QUEUE: Final = "turn_queue"
_HELD: Final = "turn_held"
_TURNS: Final = "turn_session"
_COUNTS: Final = "turn_count"
_AT_ONCE: Final = 200
_HOUR_MS: Final = 3_600_000
_LIMIT_STARTS: Final = 1_000
"""Times of turns that are remembered; the setting for the limit in an hour is not larger."""

_decode_value: Final = msgspec.json.Decoder().decode


class QueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting message that starts a turn. Strings have no default: see `OpenMessage`."""

    mailbox: str
    ts: int


class TurnState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The running turn of a session, or a batch that is to be tried again."""

    active: int = 0
    """The seq of the start of the running turn; 0 if none runs."""
    started_ms: int = 0
    batch: tuple[BatchMessage, ...] = ()
    """The messages of the running turn, or of one that failed and is tried again."""
    attempt: int = 0
    """How often this batch was tried."""
    failed_ms: int = 0
    """When it failed last; 0 if it never failed."""
    starts: tuple[int, ...] = ()
    """When turns started in the last hour."""
    hops: int = 0
    chain: str | None = None


_decode_queued: Final = msgspec.json.Decoder(QueuedMessage).decode
_decode_turn: Final = msgspec.json.Decoder(TurnState).decode
_decode_counts: Final = msgspec.json.Decoder(TurnStats).decode
_IDLE: Final = TurnState()


# --------------------
# Queries.


def has_auto_runs(rows: Rows) -> bool:
    """Return whether an agent or session has, or had, a configuration. If not, messages cost nothing more."""
    return rows.get(_CONFIGS, "") is not None


def read_auto_run(rows: Rows, agent: str, session: str = "") -> object:
    """Return the stored value of an agent or session; None without a stored value."""
    value = rows.get(_CONFIGS, mailbox_of(agent, session))
    return None if value is None else _decode_value(value)


def read_auto_runs(rows: Rows) -> Iterator[tuple[str, object]]:
    """Iterate over all stored values, each with the name of its agent, or of its session as a mailbox."""
    after = ""
    while page := rows.scan(_CONFIGS, "", after=after, limit=_AT_ONCE):
        # The row without a name is only a sign that there are configurations.
        yield from ((key, _decode_value(value)) for key, value in page if key)
        after = page[-1][0]
        if len(page) < _AT_ONCE:
            return


def is_turn_on(rows: Rows, agent: str, session: str) -> bool:
    """Return whether the automatic turns of a session are on."""
    return is_on(read_auto_run(rows, agent, session), read_auto_run(rows, agent))


def read_turn(rows: Rows, agent: str, session: str) -> TurnState:
    """Return the running or failed turn of a session."""
    value = rows.get(_TURNS, mailbox_of(agent, session))
    return _IDLE if value is None else _decode_turn(value)


def read_turns(rows: Rows) -> Iterator[tuple[str, TurnState]]:
    """Iterate over the sessions that have run turns, by their name, as in `mailbox_of`."""
    after = ""
    while page := rows.scan(_TURNS, "", after=after, limit=_AT_ONCE):
        yield from ((key, _decode_turn(value)) for key, value in page)
        after = page[-1][0]


def read_queued(rows: Rows, agent: str, session: str) -> Iterator[tuple[int, QueuedMessage]]:
    """Iterate over the queue of a session, oldest first: the seq of each message, and its row."""
    prefix, after = f"{mailbox_of(agent, session)}/", ""
    while page := rows.scan(_QUEUE, prefix, after=after, limit=_AT_ONCE):
        yield from ((int(key.removeprefix(prefix)), _decode_queued(value)) for key, value in page)
        after = page[-1][0]
        if len(page) < _AT_ONCE:
            return


def is_queued_for_turn(rows: Rows, mailbox: str, seq: int) -> bool:
    """Return whether a waiting message of a mailbox starts an automatic turn."""
    key = _queue_key(*session_of_mailbox(mailbox), seq)
    return has_auto_runs(rows) and _copy_in(rows, _QUEUE, key, mailbox) is not None


def read_held_for_turns(rows: Rows) -> Iterator[tuple[int, QueuedMessage]]:
    """Iterate over the messages that wait until a person releases them: their seq and their row."""
    after = ""
    while page := rows.scan(_HELD, "", after=after, limit=_AT_ONCE):
        yield from ((int(key.rpartition("/")[2]), _decode_queued(value)) for key, value in page)
        after = page[-1][0]


def read_queued_sessions(rows: Rows) -> list[str]:
    """Return the sessions with waiting messages, by name, as in `mailbox_of`."""
    found: list[str] = []
    after = ""
    while page := rows.scan(_QUEUE, "", after=after, limit=1):
        found.append(page[0][0].rpartition("/")[0])
        # Above every seq of this session: one row is read for each session, however long its queue is.
        after = f"{found[-1]}/{'9' * 16}"
    return found


def read_turn_stats(rows: Rows) -> TurnStats:
    """Return the counters, and how many sessions run and wait now."""
    value = rows.get(_COUNTS, "")
    counts = TurnStats() if value is None else _decode_counts(value)
    active = {key for key, turn in read_turns(rows) if turn.active}
    waiting = set(read_queued_sessions(rows))
    reruns = {key for key in active & waiting if _has_more(rows, key)}
    return msgspec.structs.replace(
        counts,
        active_turns=len(active),
        queued_sessions=len(waiting - active),
        pending_reruns=len(reruns),
    )


def _has_more(rows: Rows, key: str) -> bool:
    """Return whether messages wait for the end of a running turn that are not part of it."""
    agent, session = session_of_mailbox(key)
    running = {one.seq for one in read_turn(rows, agent, session).batch}
    return any(seq not in running for seq, _ in read_queued(rows, agent, session))


# --------------------
# The fold.


def fold_auto_run(rows: Rows, setting: SettingChanged) -> list[Change]:
    """Return the changes of a new configuration."""
    assert setting.agent is not None  # only agents and their sessions have one
    key = mailbox_of(setting.agent, setting.session)
    # The second row stays: messages may still be in a queue when the last configuration is removed.
    return [
        (_CONFIGS, key, None if setting.value is None else encode_row(setting.value)),
        (_CONFIGS, "", b"1"),
    ]


def forget_auto_run(agent: str, session: str) -> list[Change]:
    """Return the changes of a removed session: a later one with the same name has no configuration."""
    return [(_CONFIGS, mailbox_of(agent, session), None)]


def queued_by_message(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a new message: it waits for a turn of each session that it starts."""
    if not has_auto_runs(rows):
        return []
    found = deliverable(event)
    if found.is_raw or _is_of_the_bus(event):
        return []
    changes: list[Change] = []
    for mailbox in turn_targets(found.delivered_to):
        agent, session = session_of_mailbox(mailbox)
        # An agent's own message never starts a turn of that agent.
        if agent != event.sender and is_turn_on(rows, agent, session):
            row = encode_row(QueuedMessage(mailbox=mailbox, ts=event.ts))
            # Apart, so that a batch is read from the queue without skipping held messages.
            changes.append((_HELD if found.held else _QUEUE, _queue_key(agent, session, event.seq), row))
    return changes


def _is_of_the_bus(event: Event) -> bool:
    """Return whether the bus wrote a message: a notice, or the text of a subscription.

    Such a message starts no turn. It belongs to no chain of replies, so a brake could not stop a loop.
    """
    message = event.body
    is_notice = isinstance(message, MessageSent) and message.sender_kind == SYSTEM
    return is_notice or (event.by is not None and is_system_name(event.by))


def moved_in_queue(rows: Rows, report: DeliveryReport, moved: Iterable[int]) -> list[Change]:
    """Return the changes to messages that a report moves: a held one waits apart until it is queued again."""
    if not has_auto_runs(rows) or report.state not in (State.QUEUED, State.HELD):
        return []
    # The gate of a lane holds no message back from a turn, which needs none of the agent's lanes.
    is_held = report.state == State.HELD and not report.lane
    here, there = (_QUEUE, _HELD) if is_held else (_HELD, _QUEUE)
    changes: list[Change] = []
    for seq in moved:
        key = _queue_key(*session_of_mailbox(report.agent), seq)
        if (value := _copy_in(rows, here, key, report.agent)) is not None:
            changes += [(here, key, None), (there, key, value)]
    return changes


def left_queue(rows: Rows, mailbox: str, seq: int) -> list[Change]:
    """Return the changes of a message that leaves its mailbox."""
    if not has_auto_runs(rows):
        return []
    key = _queue_key(*session_of_mailbox(mailbox), seq)
    return [
        (table, key, None) for table in (_QUEUE, _HELD) if _copy_in(rows, table, key, mailbox) is not None
    ]


def _copy_in(rows: Rows, table: str, key: str, mailbox: str) -> bytes | None:
    """Return the row of a message if it is the copy of this mailbox.

    The agent's own mailbox and that of its session `main` share a queue, and a message can be in both
    mailboxes: a report about one copy must not move the other.
    """
    value = rows.get(table, key)
    return value if value is not None and _decode_queued(value).mailbox == mailbox else None


def fold_turn_started(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of the start of a turn."""
    body = body_as(event, AutoTurnStarted)
    old = read_turn(rows, body.agent, body.session)
    turn = TurnState(
        active=event.seq,
        started_ms=event.ts,
        batch=batch_of_start(body),
        attempt=body.attempt,
        starts=(*(one for one in old.starts if one > event.ts - _HOUR_MS), event.ts)[-_LIMIT_STARTS:],
        hops=body.hops,
        chain=body.chain or None,
    )
    is_triaged = bool(body.triage)
    return [
        (_TURNS, mailbox_of(body.agent, body.session), encode_row(turn)),
        _counted(
            rows,
            triage_count=int(is_triaged),
            triage_accepted=int(body.triage == "accepted"),
            # After a failed triage the turn runs, so that no message is missed.
            triage_errors=int(body.triage == "error"),
            execution_count=1,
            messages_processed=len(body.messages),
        ),
    ]


def fold_turn_ended(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of the end of a turn: a failed batch is kept until its last try."""
    body = event.body
    if not isinstance(body, AutoTurnResult | AutoTurnError):
        raise TypeError(event.type)
    old = read_turn(rows, body.agent, body.session)
    # The end of an earlier turn must not end the running one.
    if old.active != body.turn:
        raise ValueError("turn")
    # The starts stay, because a turn counts for the limit in an hour however it ended.
    ended = TurnState(starts=old.starts)
    changes: list[Change] = []
    if isinstance(body, AutoTurnError):
        changes.append(_counted(rows, execution_errors=1))
        if not body.held:
            ended = msgspec.structs.replace(
                old, active=0, started_ms=0, failed_ms=event.ts, hops=0, chain=None
            )
    return [*changes, (_TURNS, mailbox_of(body.agent, body.session), encode_row(ended))]


def fold_turn_skipped(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a batch that starts no turn: its messages only wait in their mailbox now."""
    body = body_as(event, TurnSkipped)
    keys = [_queue_key(body.agent, body.session, seq) for seq in body.messages]
    changes: list[Change] = [(_QUEUE, key, None) for key in keys]
    if body.reason == "triage":
        changes.append(_counted(rows, triage_count=1, triage_rejected=1))
    return changes


def _queue_key(agent: str, session: str, seq: int) -> str:
    return f"{mailbox_of(agent, session)}/{seq:015d}"


def _counted(rows: Rows, **steps: int) -> Change:
    value = rows.get(_COUNTS, "")
    counts = TurnStats() if value is None else _decode_counts(value)
    added = {name: getattr(counts, name) + step for name, step in steps.items()}
    return (_COUNTS, "", encode_row(msgspec.structs.replace(counts, **added)))
