"""The fold: the changes of each event to the state, and the state at a seq of the past. Pure and total."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from sys import intern
from typing import Final

import msgspec

from palaver.errors import RequestError
from palaver.protocol.agents import Agent, split_subagent_name
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import (
    AUTO_TURN,
    AUTO_TURN_ERROR,
    AUTO_TURN_RESULT,
    BYE,
    DEAD_CLEARED,
    HELLO,
    HINTS_KEY,
    LIFE,
    NOTE_ADDED,
    NOTE_RESOLVED,
    PATH_SUBSCRIBED,
    PATH_UNSUBSCRIBED,
    PAUSED,
    ROOM_TYPES,
    SESSION_CREATED,
    SESSION_REMOVED,
    SETTING,
    TAG_KEY,
    TOPIC_KEY,
    TURN_SKIPPED,
    UNPAUSED,
    VERBOSITY_KEY,
    AgentBye,
    AgentHello,
    AgentPaused,
    DeliveryReport,
    ForeignBody,
    LifeChanged,
    MessageSent,
    PermissionAnswered,
    SessionRemoved,
    SettingChanged,
    StatusChanged,
)
from palaver.protocol.paths import split_mailbox
from palaver.protocol.redaction import REDACTED_TYPE
from palaver.protocol.tasks import TASK_COMPLETE, TASK_CREATE, TASK_UPDATE
from palaver.protocol.turns import AUTO_RUN
from palaver.state.agents import (
    AGENTS,
    LAST_SUBAGENT,
    SEATS,
    SESSIONS,
    SUBAGENTS,
    read_agent,
    read_last_subagent,
    seat_row,
)
from palaver.state.attention import attention_changes
from palaver.state.conversations import talk_changes
from palaver.state.ledger import moved_by_report, opened_by_envelope, opened_by_message
from palaver.state.paths import (
    fold_dead_cleared,
    fold_path_subscribed,
    fold_path_unsubscribed,
    fold_session_created,
    fold_session_removed,
)
from palaver.state.references import fold_task, fold_thread, made_bundle
from palaver.state.rooms import add_note, fold_irc_level, fold_irc_topic, fold_room, resolve_note
from palaver.state.rows import Change, Rows, decode_count, encode_row
from palaver.state.turns import (
    fold_auto_run,
    fold_turn_ended,
    fold_turn_skipped,
    fold_turn_started,
    forget_auto_run,
)
from palaver.state.watches import reminder_changes, watch_changes

# --------------------
# The fold: the changes of each event to the state. Pure and total.
#
# `apply` reads rows and the event, and nothing else: no clock, no setting, no presence. It skips and counts
# unreadable events, so that one bad event never stops the log; `pal doctor` shows the count.

SKIPPED: Final = "skipped"

FOLD_VERSION: Final = 2
"""Rises when the same events make other rows: the rows of an older log are then built once again."""

_Handler = Callable[[Rows, Event], list[Change]]


def apply(rows: Rows, event: Event) -> Sequence[Change]:
    """Return the changes of an event. The same rows and event always have the same changes.

    Nothing is stored here, so every part reads the rows from before the event, also those that another part
    changes. A part that needs them gets the changes of the first handler. If a part fails, only the
    count of skipped events changes: an event is folded completely or not at all.
    """
    if event.imported:
        return _imported(rows, event)
    # An event of any other type belongs to another program: it is not read, and is only mail.
    handler = _HANDLERS.get(event.type, opened_by_envelope)
    try:
        agent = agent_of(event)
        changes = handler(rows, event)
        return [
            *changes,
            *watch_changes(rows, event, agent),
            *reminder_changes(rows, event, agent),
            *attention_changes(rows, event, agent, changes),
            *talk_changes(rows, event, changes),
        ]
    # Every error that an unreadable content can cause. Any other one is a fault of this program, and is
    # raised.
    except (RequestError, msgspec.MsgspecError, KeyError, TypeError, ValueError, OverflowError):
        count = rows.get(SKIPPED, event.type)
        return [(SKIPPED, event.type, encode_row(1 if count is None else decode_count(count) + 1))]


def agent_of(event: Event) -> str:
    """Return the name of the agent that an event is about: the sender, unless the event names another."""
    body = event.body
    if isinstance(body, MessageSent):  # Most events are messages, and none of the structs below.
        return event.sender
    match body:
        case DeliveryReport(agent=mailbox):
            return split_mailbox(mailbox)[0]
        case (
            AgentHello(agent=str(name))
            | AgentBye(agent=str(name))
            | AgentPaused(agent=str(name))
            | StatusChanged(agent=str(name))
            | LifeChanged(agent=str(name))
            | PermissionAnswered(agent=str(name))
            | SettingChanged(agent=str(name))
            | ForeignBody(agent=str(name))
        ):
            return name
    return event.sender


def _message(rows: Rows, event: Event) -> list[Change]:
    changes = opened_by_message(rows, event)
    if thread := body_as(event, MessageSent).thread:
        changes += fold_thread(rows, event, thread)
    return changes


def _imported(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of an imported event: a message is a part of its thread, and nothing else changes.

    Its agents, deliveries, tasks and rooms belong to the log that it comes from.
    """
    message = event.body
    if isinstance(message, MessageSent) and message.thread:
        return fold_thread(rows, event, message.thread)
    return []


def _hello(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a hello: a join carries the whole agent, a later hello sets what runs it."""
    hello = body_as(event, AgentHello)
    # An agent that cannot be read is None in the body, and the join would be taken for a later hello.
    _check(event, "agent")
    if isinstance(hello.agent, Agent):
        known = read_agent(rows, hello.agent.name)
        agent = msgspec.structs.replace(
            hello.agent, since=event.ts, joined=event.ts, seq=event.seq, left=False
        )
        # Its settings stay, even if another process runs it by then. The tag may differ from that in its
        # name.
        if known is not None:
            agent = msgspec.structs.replace(agent, paused=known.paused, tag=known.tag, hints=known.hints)
        return _sits_down(rows, agent)
    return _change_agent(rows, event, runtime=hello.runtime, version=hello.version)


def _bye(rows: Rows, event: Event) -> list[Change]:
    # The row stays: the name keeps its history and its mail, and the agent may return.
    reason = body_as(event, AgentBye).reason
    return _change_agent(
        rows, event, state="exited", left=True, ready=False, since=event.ts, detail=reason, tool=""
    )


def _status(rows: Rows, event: Event) -> list[Change]:
    status = body_as(event, StatusChanged)
    # None is also the value of a state that cannot be read, and must not replace the known state.
    if status.state is None:
        raise ValueError("state")
    return _change_agent(
        rows, event, state=status.state, detail=status.detail, tool=status.tool, since=event.ts
    )


def _paused(rows: Rows, event: Event) -> list[Change]:
    return _change_agent(rows, event, paused=event.type == PAUSED)


def _setting(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a setting of an agent or a channel. Settings of the bus are in its file."""
    setting = body_as(event, SettingChanged)
    if setting.key == VERBOSITY_KEY:
        return fold_irc_level(setting)
    if setting.key == TOPIC_KEY:
        return fold_irc_topic(event, setting)
    # The file of the bus is the only source of its settings. The event is only their history.
    if setting.agent is None:
        return []
    if setting.key == AUTO_RUN:
        return fold_auto_run(rows, setting)
    if setting.key not in (TAG_KEY, HINTS_KEY) or not isinstance(setting.value, str):
        raise ValueError(setting.key)
    return _change_agent(rows, event, **{setting.key: setting.value})


def _change_agent(rows: Rows, event: Event, **fields: object) -> list[Change]:
    known = read_agent(rows, agent_of(event))
    if known is None:
        raise ValueError(event.sender)
    return [(AGENTS, known.name, _agent_row(msgspec.structs.replace(known, **fields)))]


def _life(rows: Rows, event: Event) -> list[Change]:
    """Return the changes of a life event: a new seat or session replaces the agent; `ready` sets a flag."""
    life = body_as(event, LifeChanged)
    if life.is_ready:
        return _change_agent(rows, event, ready=True)
    if not life.has_agent:
        return []
    if not isinstance(life.agent, Agent):
        raise TypeError("agent")
    return _sits_down(rows, msgspec.structs.replace(life.agent, seq=event.seq))


def _check(event: Event, *fields: str) -> None:
    """Raise an error that the fold skips if one of the fields is there and cannot be read."""
    if not event.odd_fields.isdisjoint(fields):
        raise ValueError(", ".join(fields))


def _sits_down(rows: Rows, agent: Agent) -> list[Change]:
    changes: list[Change] = [(AGENTS, agent.name, _agent_row(agent))]
    if agent.seat is not None:
        # Never removed: a process that was an agent's must not become the human after the agent has left.
        changes.append((SEATS, seat_row(agent.seat), agent.name.encode()))
    if agent.parent:
        changes += _as_subagent(rows, agent)
    # Not for a sub-agent, whose `session` is its key in the harness and not the id of a session.
    elif agent.session:
        changes.append((SESSIONS, f"{agent.harness}/{agent.session}", agent.name.encode()))
    return changes


def _as_subagent(rows: Rows, agent: Agent) -> list[Change]:
    """Return the rows that map its harness key to the name, and mark its number as used."""
    # The largest number is kept, so that the name of an ended sub-agent is never given to another one.
    stem, number = split_subagent_name(agent.name)
    last = max(number, read_last_subagent(rows, stem))
    return [
        (SUBAGENTS, f"{agent.parent}/{agent.session}", agent.name.encode()),
        (LAST_SUBAGENT, stem, encode_row(last)),
    ]


def _agent_row(agent: Agent) -> bytes:
    # msgspec omits a default only if it is the same object, and the defaults of these two are strings.
    return encode_row(msgspec.structs.replace(agent, role=intern(agent.role), state=intern(agent.state)))


def _session_removed(rows: Rows, event: Event) -> list[Change]:
    body = body_as(event, SessionRemoved)
    return fold_session_removed(rows, event) + forget_auto_run(body.agent, body.session)


_HANDLERS: Final[Mapping[str, _Handler]] = {
    "message": _message,
    "delivery": moved_by_report,
    "bundle": made_bundle,
    **dict.fromkeys(ROOM_TYPES, fold_room),
    NOTE_ADDED: add_note,
    NOTE_RESOLVED: resolve_note,
    TASK_CREATE: fold_task,
    TASK_UPDATE: fold_task,
    TASK_COMPLETE: fold_task,
    HELLO: _hello,
    BYE: _bye,
    PAUSED: _paused,
    UNPAUSED: _paused,
    SETTING: _setting,
    "status": _status,
    LIFE: _life,
    PATH_SUBSCRIBED: fold_path_subscribed,
    PATH_UNSUBSCRIBED: fold_path_unsubscribed,
    SESSION_CREATED: fold_session_created,
    SESSION_REMOVED: _session_removed,
    DEAD_CLEARED: fold_dead_cleared,
    AUTO_TURN: fold_turn_started,
    AUTO_TURN_RESULT: fold_turn_ended,
    AUTO_TURN_ERROR: fold_turn_ended,
    TURN_SKIPPED: fold_turn_skipped,
    # Without a handler it would be taken for an envelope of another program, which is mail.
    REDACTED_TYPE: lambda rows, event: [],
}


# --------------------
# The bus as it was at a seq: rows in memory that go forward and back, event by event. Pure.
#
# The state is folded from the events up to a seq, so nothing of a later event shows in it. An undo record of
# the last steps makes small steps back cheap. A longer way back begins at a kept copy of an earlier state.

LIMIT_UNDO: Final = 10_000
"""Steps back that need no copy and no fold."""
LIMIT_KEPT_ROWS: Final = 4_000_000
"""Rows of all kept copies. A copy shares its values with the state, so that a row takes about 60 bytes."""
KEPT_EVERY: Final = 40_000
"""Events between two kept copies, as long as there is room for them."""

_LIMIT_BUCKET: Final = 1024
"""Keys that are sorted together: each change moves at most this many."""


class PastRows:
    """Rows in memory. A change costs about the same for ten rows and for a million."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, bytes]] = {}
        self._keys: dict[str, _SortedKeys] = {}

    def get(self, table: str, key: str) -> bytes | None:
        values = self._values.get(table)
        return None if values is None else values.get(key)

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        if (values := self._values.get(table)) is None:
            return []
        keys = self._keys[table].matching(prefix, after, is_reversed=reverse)
        return [(key, values[key]) for key in islice(keys, limit)]

    def change(self, changes: Iterable[Change]) -> list[Change]:
        """Store and remove rows. Return the changes that restore the former rows, in this order."""
        undo = [self._store(*change) for change in changes]
        # An event may change one row twice: the value from before the first change must be restored last.
        undo.reverse()
        return undo

    def copy(self) -> "PastRows":
        """Return rows that change independently of these."""
        rows = PastRows()
        rows._values = {table: dict(values) for table, values in self._values.items()}
        rows._keys = {table: keys.copy() for table, keys in self._keys.items()}
        return rows

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def tables(self) -> dict[str, dict[str, bytes]]:
        """Return a copy of all rows by table, without empty tables."""
        return {table: dict(values) for table, values in self._values.items() if values}

    def _store(self, table: str, key: str, value: bytes | None) -> Change:
        values = self._values.get(table)
        if values is None:
            values = self._values[table] = {}
            self._keys[table] = _SortedKeys()
        old = values.get(key)
        if value is not None:
            values[key] = value
            if old is None:
                self._keys[table].add(key)
        elif old is not None:
            del values[key]
            # Only for a row that exists: a change may remove a missing row, and `_SortedKeys` needs one that
            # is there.
            self._keys[table].remove(key)
        # A row that did not exist has None here, so that undoing the change removes it.
        return table, key, old


class PastState:
    """The folded rows at a seq, and the way to the events before it.

    The undo record has the last `limit_undo` steps; older ones are forgotten.
    """

    def __init__(self, limit_undo: int = LIMIT_UNDO) -> None:
        self.rows = PastRows()
        self.seq = 0
        """The seq of the newest folded event; 0 before the first."""
        self.ts = 0
        """The time of the newest folded event that was not imported; 0 before the first."""
        self._undo: deque[tuple[int, int, list[Change]]] = deque(maxlen=limit_undo)

    @property
    def oldest(self) -> int:
        """The lowest seq that `back` can reach."""
        return self._undo[0][0] if self._undo else self.seq

    def forward(self, event: Event) -> None:
        """Fold the next event. Raises ValueError if it is not above the present seq."""
        if event.seq <= self.seq:
            raise ValueError(f"event #{event.seq} does not come after #{self.seq}")
        # `apply` has read everything before the first row changes: it must see only rows from before the
        # event.
        undo = self.rows.change(apply(self.rows, event))
        self._undo.append((self.seq, self.ts, undo))
        self.seq = event.seq
        # An imported event has the time of another log, which can be far from that of this one.
        if not event.imported:
            self.ts = event.ts

    def back(self) -> None:
        """Take the newest event back. Raises IndexError at the end of the undo record."""
        self.seq, self.ts, undo = self._undo.pop()
        self.rows.change(undo)

    def copy(self) -> "PastState":
        """Return a state that changes independently of this one, and cannot go back.

        The undo record is not copied, because it would multiply the memory of the kept copies.
        """
        state = PastState(self._undo.maxlen or 0)
        state.rows, state.seq, state.ts = self.rows.copy(), self.seq, self.ts
        return state


class KeptStates:
    """Copies of a state at some seqs. When they have too many rows, the closest ones are thinned out."""

    def __init__(self, limit_rows: int = LIMIT_KEPT_ROWS, every: int = KEPT_EVERY) -> None:
        self._limit_rows = limit_rows
        self._every = every
        self._states: list[PastState] = []

    @property
    def seqs(self) -> tuple[int, ...]:
        """The seqs of the copies, in order."""
        return tuple(state.seq for state in self._states)

    def keep(self, state: PastState) -> None:
        """Keep a copy of a state, unless it is too large or there is one at a seq shortly before or after."""
        seqs = self.seqs
        at = bisect_left(seqs, state.seq)
        # The empty state at 0 needs no copy, and a copy close to it saves little.
        around = (0, *seqs[max(0, at - 1) : at + 1])
        is_far = all(abs(state.seq - seq) >= self._every for seq in around)
        # A larger state would fill the limit alone, and drive out all others.
        if is_far and len(state.rows) <= self._limit_rows // 2:
            self._states.insert(at, state.copy())
            self._thin_out()

    def before(self, at: int) -> PastState:
        """Return a copy of the newest kept state up to a seq; an empty state without one."""
        index = bisect_right(self.seqs, at)
        return self._states[index - 1].copy() if index else PastState()

    def clear(self) -> None:
        """Forget all copies."""
        self._states.clear()

    def _thin_out(self) -> None:
        """Drop the copies that are closest to their neighbours until the rest has few enough rows."""
        while self._states and sum(len(state.rows) for state in self._states) > self._limit_rows:
            # Drop the copy with the shortest way from the one before it: that costs a reader the fewest
            # events.
            seqs = (0, *self.seqs)
            gaps = [after - before for before, after in zip(seqs, self.seqs, strict=False)]
            del self._states[gaps.index(min(gaps))]


class _SortedKeys:
    """Different keys in order, in buckets of limited size."""

    def __init__(self) -> None:
        self._buckets: list[list[str]] = []
        self._lasts: list[str] = []

    def copy(self) -> "_SortedKeys":
        """Return the same keys, to be changed independently."""
        keys = _SortedKeys()
        keys._buckets = [bucket.copy() for bucket in self._buckets]
        keys._lasts = self._lasts.copy()
        return keys

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if not self._buckets:
            self._buckets.append([key])
            self._lasts.append(key)
            return
        # A key above all others goes into the last bucket.
        at = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        bucket = self._buckets[at]
        insort(bucket, key)
        if len(bucket) > _LIMIT_BUCKET:
            # Most keys are added at the end. Then the full bucket stays full, and the next one is short.
            half = _LIMIT_BUCKET if bucket[-1] is key else _LIMIT_BUCKET // 2
            self._buckets.insert(at + 1, bucket[half:])
            self._lasts.insert(at + 1, bucket[-1])
            del bucket[half:]
        self._lasts[at] = bucket[-1]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._lasts, key)
        bucket = self._buckets[at]
        del bucket[bisect_left(bucket, key)]
        if bucket:
            self._lasts[at] = bucket[-1]
        else:
            del self._buckets[at], self._lasts[at]

    def matching(self, prefix: str, after: str, *, is_reversed: bool) -> Iterator[str]:
        """Yield the keys with a prefix: those above `after` in order, or those below it in reverse order."""
        if is_reversed:
            return self._matching_below(prefix, after)
        return self._matching_above(prefix, after)

    def _matching_above(self, prefix: str, after: str) -> Iterator[str]:
        at = bisect_left(self._lasts, max(prefix, after))
        if at == len(self._buckets):
            return
        bucket = self._buckets[at]
        first = bucket[max(bisect_left(bucket, prefix), bisect_right(bucket, after) if after else 0) :]
        for key in chain(first, chain.from_iterable(self._buckets[at + 1 :])):
            if not key.startswith(prefix):
                return
            yield key

    def _matching_below(self, prefix: str, after: str) -> Iterator[str]:
        size = len(prefix)

        # Cut to the length of the prefix, all keys with the prefix compare equal to it, so that bisecting
        # finds the end of their range.
        def start(key: str) -> str:
            return key[:size]

        at = bisect_right(self._lasts, prefix, key=start)
        if after:
            at = min(at, bisect_left(self._lasts, after))
        if at < len(self._buckets):
            bucket = self._buckets[at]
            end = bisect_right(bucket, prefix, key=start)
            last = bucket[: min(end, bisect_left(bucket, after)) if after else end]
        else:
            last = []
        before = (key for index in range(at - 1, -1, -1) for key in reversed(self._buckets[index]))
        for key in chain(reversed(last), before):
            if not key.startswith(prefix):
                return
            yield key
