"""The hub of all open views: it makes the snapshots and the changes that they get.

All open views share one hub. It follows the log only while there is one, computes each change once, and
encodes it once for all of them. Changes are at most 30 a second, however many events there are.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice
from typing import Final, Self, TypeVar

import msgspec

from palaver.clock import CallLater, Timer
from palaver.domain.stick import outlook
from palaver.errors import PalaverError, StorageFailed, Unavailable
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event, room_id_of
from palaver.protocol.events import AGENT_TYPES, AgentState, DeliveryReport, MessageSent, State, TextRemoved
from palaver.protocol.lines import push_line
from palaver.protocol.message import HUMAN
from palaver.protocol.paths import split_mailbox
from palaver.protocol.views import AgentRow, Attention, Changes, ConversationRow, Counts, EventRow, Snapshot
from palaver.services.queries import Queries
from palaver.services.view_facts import LiveFacts, ViewSources
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader, in_steps, let_others_run
from palaver.services.view_rows import LastMessage, event_row, last_message
from palaver.state.agents import read_mail
from palaver.state.attention import LIMIT_KIND, touched_by
from palaver.state.conversations import conversations_of, count_unread, read_conversation
from palaver.state.fold import agent_of
from palaver.state.rooms import Room, read_memberships, read_open_rooms, read_room
from palaver.state.rows import answered_seq

LIMIT_WAITING_BYTES: Final = 1024 * 1024
"""Bytes that may wait for a view which does not read. Above it they are dropped for a new snapshot."""
MOST_A_SECOND: Final = 30
"""Changes that a view gets in a second."""
LIMIT_CONTINUED: Final = 2000
"""Events that a snapshot of a continued view can have. If there are more, it has the newest ones instead."""
FLOOD_A_SECOND: Final = 20
"""Changes in a second while each has many events: a record costs more than its events."""
_MANY_EVENTS: Final = 150
"""Events in one record from which on the pace is that of a flood."""
_FULL_RECORD: Final = 500
"""Events that do not wait for a longer pause: the log has only the newest ones in memory."""
_LIMIT_EVENTS: Final = 1000
"""Events in one record; further ones follow in the next."""
_LIMIT_AGENTS: Final = 100
"""Agents in one record; further ones follow in the next."""
_LIMIT_TALKS: Final = 100
_LIMIT_KEYS: Final = 200
_LIMIT_ROOMS: Final = 20
_LIMIT_WAITING: Final = 20
"""Waiting messages of an agent that are read again when the gate of a lane changes."""
_LIMIT_SNAPSHOT: Final = 500
"""Entries of attention in a snapshot, and events in one that does not continue."""
_REMOVAL_MS: Final = 500
"""Milliseconds between two looks at a message whose text is being removed: no event reports the end."""
_EVENT_STEP: Final = 100
"""Events that are noted before other callers can run: one costs a few microseconds."""
_LONGEST_SLEEP_S: Final = 60.0
"""The clock of the machine may be set while nothing happens."""
_logger: Final = logging.getLogger("palaver.views")
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class ViewRecord:
    """A snapshot, or the changes since the last record, as one JSON object."""

    seq: int
    is_snapshot: bool
    data: bytes

    @cached_property  # All connections send the same bytes.
    def line(self) -> bytes:
        """The record as a line of the line protocol."""
        return push_line("view", {"snapshot" if self.is_snapshot else "changes": msgspec.Raw(self.data)})


class OpenView:
    """The records of one open view. Iterate over it, and always close it.

    The next record is requested when the last one was written. At most 1 MiB waits in the meantime; then it
    is dropped, and the next record is a new snapshot. It continues the events of the last record if it can.
    """

    def __init__(self, hub: "ViewHub", me: str, after: int, epoch: str) -> None:
        self.me = me
        self.after = after
        """The seq of the record that the view got last."""
        self.is_continuing = bool(after or epoch)
        self.needs_snapshot = True
        """Whether it needs a snapshot before any changes."""
        self._hub = hub
        self._records: deque[ViewRecord] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._is_closed = False
        self._error: PalaverError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ViewRecord:
        # The record that was returned last has been written, so it does not count any more.
        self._waiting_bytes = sum(len(record.data) for record in self._records)
        while not self._records:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise StopAsyncIteration
            if self.needs_snapshot:
                self._hub.want_snapshot(self)
            self._news.clear()
            await self._news.wait()
        # It counts until the next one is requested: only then it was written.
        record = self._records.popleft()
        self.after, self.is_continuing = record.seq, True
        return record

    def put(self, record: ViewRecord) -> None:
        """Add a record, or drop all waiting ones if there are too many."""
        if self._is_closed:
            return
        size = len(record.data)
        # A single record is kept whatever its size: otherwise a large bus could never send its snapshot.
        if self._waiting_bytes and self._waiting_bytes + size > LIMIT_WAITING_BYTES:
            self.drop_records()
            self._hub.count_slow()
            return
        self._records.append(record)
        self._waiting_bytes += size
        self.needs_snapshot = False
        self._news.set()

    def drop_records(self) -> None:
        """Drop all waiting records: the next one is a new snapshot."""
        self._records.clear()
        self.needs_snapshot = True
        self._news.set()

    def fail(self, error: PalaverError) -> None:
        """End the view with an error."""
        # Set before the close, which wakes the reader.
        self._error = error
        self.close()

    def close(self) -> None:
        """End the view; its iterator stops. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._records.clear()
            self._news.set()
            self._hub.forget(self)


# --------------------
# The hub: it collects everything that has changed since the last record, and makes the next one.


_Key = TypeVar("_Key")


class _Changed:
    """The keys of everything that may have changed since the last record. Each is read when it is sent."""

    def __init__(self) -> None:
        # Dictionaries, because they keep order; the values are unused.
        self.agents: dict[str, None] = {}
        self.counted: dict[str, None] = {}
        """Agents of which only the number of unread messages has changed. They come after the others."""
        self.talks: dict[str, None] = {}
        self.attention: dict[str, None] = {}
        self.moved: dict[int, None] = {}
        self.rooms: dict[str, None] = {}

    def __bool__(self) -> bool:
        return any((self.agents, self.counted, self.talks, self.attention, self.moved, self.rooms))

    def note(self, event: Event, queries: Queries) -> None:
        """Add everything that an event may have changed."""
        body = event.body
        if isinstance(body, MessageSent):
            self.note_message(event, body)
        elif isinstance(body, DeliveryReport):
            self.note_report(body, queries)
        else:
            self.note_other(event, queries)

    def note_message(self, event: Event, message: MessageSent) -> None:
        self.agents[event.sender] = None
        self.note_unread(message.delivered_to)
        self.talks.update(dict.fromkeys(conversations_of(event)))
        if answered := answered_seq(event):
            self.moved[answered] = None

    def note_unread(self, mailboxes: Iterable[str]) -> None:
        self.counted.update((split_mailbox(mailbox)[0], None) for mailbox in mailboxes)

    def note_report(self, report: DeliveryReport, queries: Queries) -> None:
        self.note_unread((report.agent,))
        for seq in report.messages:
            self.moved[seq] = None
            if report.agent == HUMAN and (event := queries.event(seq)) is not None:
                self.talks.update(dict.fromkeys(conversations_of(event)))
        if report.answers:
            self.moved[report.answers] = None

    def note_other(self, event: Event, queries: Queries) -> None:
        name = agent_of(event)
        self.agents[name] = None
        self.note_unread(event.delivered_to)
        self.talks.update(dict.fromkeys(conversations_of(event)))
        if room := room_id_of(event):
            self.rooms[room] = None
            self.agents.update(dict.fromkeys(event.to))

    def note_removed(self, seq: int, queries: Queries) -> None:
        """Add everything that shows the text of a message."""
        self.moved[seq] = None
        self.attention.update((f"{kind}/{seq}", None) for kind in ("request", "held", "dead"))
        if (event := queries.event(seq)) is not None:
            self.agents[event.sender] = None
            self.talks.update(dict.fromkeys(conversations_of(event)))

    def note_agent(self, name: str, rooms: Iterable[str]) -> None:
        """Add an agent whose presence, or whose time, has changed."""
        self.agents[name] = None
        self.attention[f"agent/{name}"] = None
        for room in rooms:
            self.rooms[room] = None
            self.attention[f"stick/{room}"] = None


def _take(keys: dict[_Key, None], limit: int) -> list[_Key]:
    """Remove the first keys, at most `limit`, and return them."""
    taken = list(islice(keys, limit))
    for key in taken:
        del keys[key]
    return taken


class _Entries:
    """The entries of attention as the views know them: of each kind the newest `LIMIT_KIND`."""

    def __init__(self) -> None:
        self._entries: dict[str, Attention] = {}
        self._groups: dict[str, set[str]] = {}
        """The keys by the part up to the last slash: `unconfirmed/42/` has those of all its recipients."""
        self._kinds: Counter[str] = Counter()
        self.is_incomplete = False
        """Whether older entries of a kind, which were left out, have become part of the list."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Attention | None:
        """Return an entry, or None."""
        return self._entries.get(key)

    def oldest_first(self) -> list[Attention]:
        """Return all entries."""
        return sorted(self._entries.values(), key=_age)

    def touched_by(self, event: Event) -> Iterator[str]:
        """Yield the keys of the entries that an event may have changed, begun or ended."""
        if isinstance(message := event.body, MessageSent) and _is_plain(message):
            return
        for key in touched_by(event):
            if key.endswith("/"):
                yield from self._groups.get(key, ())
            elif key in self._entries or _may_begin(event, key):
                yield key
        if isinstance(report := event.body, DeliveryReport) and report.unconfirmed:
            yield from (f"unconfirmed/{seq}/{report.agent}" for seq in report.messages)

    def put(self, entry: Attention) -> list[str]:
        """Add or replace an entry. Return the keys of those that are too many now."""
        before = self._entries.get(entry.key)
        if before is not None:
            self._kinds[before.kind] -= 1
        self._entries[entry.key] = entry
        self._kinds[entry.kind] += 1
        self._groups.setdefault(_group(entry.key), set()).add(entry.key)
        if self._kinds[entry.kind] <= LIMIT_KIND:
            return []
        # A search through all is enough, because this happens only above the limit.
        oldest = min((one for one in self._entries.values() if one.kind == entry.kind), key=_age)
        self._forget(oldest)
        return [oldest.key]

    def remove(self, key: str) -> list[str]:
        """Remove an entry that has ended. Return its key, if it was known."""
        entry = self._entries.get(key)
        if entry is None:
            return []
        self.is_incomplete = self.is_incomplete or self._kinds[entry.kind] >= LIMIT_KIND
        self._forget(entry)
        return [key]

    def replace(self, entries: Iterable[Attention]) -> list[Attention]:
        """Take the whole list, and return those that are new or changed."""
        self.is_incomplete = False
        found = [entry for entry in entries if self._entries.get(entry.key) != entry]
        for entry in found:
            self.put(entry)
        return found

    def _forget(self, entry: Attention) -> None:
        del self._entries[entry.key]
        self._kinds[entry.kind] -= 1
        group = self._groups[_group(entry.key)]
        group.discard(entry.key)
        if not group:
            del self._groups[_group(entry.key)]


def _is_plain(message: MessageSent) -> bool:
    """Return whether a message is certainly in no entry: that is quick to see, and true for most."""
    is_reply = message.reply_to is not None or message.answers is not None
    return not (is_reply or message.held or message.dead or HUMAN in message.delivered_to)


def _age(entry: Attention) -> tuple[int, str]:
    return entry.since, entry.key


def _group(key: str) -> str:
    return key[: key.rindex("/") + 1]


def _may_begin(event: Event, key: str) -> bool:
    """Return whether an event can begin this entry: most messages and reports begin none."""
    kind = key.partition("/")[0]
    match event.body:
        case MessageSent(delivered_to=to, held=held, dead=dead):
            return {"request": HUMAN in to, "held": bool(held), "dead": bool(dead)}.get(kind, False)
        case DeliveryReport(agent=mailbox, state=state):
            return (kind == "held" and state == State.HELD) or (kind == "request" and mailbox == HUMAN)
    return True


class ViewHub:
    """Follows the log for all open views. One task, which ends with the last view."""

    def __init__(self, sources: ViewSources, facts: LiveFacts, call_later: CallLater) -> None:
        self.views: set[OpenView] = set()
        self.is_over = False
        self._sources = sources
        self._queries = sources.queries
        self._clock = sources.clock
        self._facts = facts
        self._pages = ViewPages(sources.queries.rows, LogReader(sources.queries), facts)
        self._call_later = call_later
        self._wake = asyncio.Event()
        self._asking: set[OpenView] = set()
        self._changed = _Changed()
        self._seq = 0
        self._next_s = self._flood_s = float("-inf")
        self._timer: Timer | None = None
        self._timer_s = float("inf")
        self._is_paced = False
        """Whether the timer wakes the task in time for the next record, so that no event has to."""
        self._due = _DueTimes()
        self._states: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._children: dict[str, set[str]] = {}
        self._last: dict[str, LastMessage | None] = {}
        self._attention = _Entries()
        self._counts: Counts | None = None

    # Called by views and by the parts of the daemon

    def _hear(self, events: Sequence[Event]) -> None:
        if not self._is_paced:
            self._wake.set()

    def want_snapshot(self, view: OpenView) -> None:
        """Prepare a snapshot for a view."""
        self._asking.add(view)
        self._wake.set()

    def count_slow(self) -> None:
        """Count a view that reads too slowly."""
        self._sources.count_slow("view")

    def forget(self, view: OpenView) -> None:
        """Remove a closed view. The hub ends with the last one."""
        self.views.discard(view)
        self._asking.discard(view)
        if not self.views:
            self.is_over = True
            self._wake.set()

    def end(self) -> None:
        """Close all views."""
        # A copy, because each close removes the view.
        for view in list(self.views):
            view.close()

    def _fail(self, error: PalaverError) -> None:
        for view in list(self.views):
            view.fail(error)

    def _wait_changed(self, room: str, name: str) -> None:
        self._changed.agents[name] = None
        self._changed.rooms[room] = None
        self._wake.set()

    def _presence_changed(self, name: str) -> None:
        rows = self._queries.rows
        for one in (name, *self._descendants(name)):
            self._changed.note_agent(one, read_memberships(rows, one).get(one, ()))
        self._wake.set()

    def _level_changed(self, name: str) -> None:
        """Note the first waiting messages of an agent: the reason why they wait may be another one."""
        # Limited, because gates change often and a mailbox can be long.
        waiting = islice(read_mail(self._queries.rows, name), _LIMIT_WAITING)
        if moved := {mail.seq: None for mail in waiting}:
            self._changed.counted[name] = None
            self._changed.moved.update(moved)
            self._wake.set()

    def _permission_changed(self, id_: str) -> None:
        self._changed.attention[f"permission/{id_}"] = None
        # A blocked agent is listed once: by its request, or as blocked.
        pending = self._sources.permissions.get(id_)
        known = self._attention.get(f"permission/{id_}")
        for name in {pending.agent if pending else "", known.who if known else ""} - {""}:
            self._changed.attention[f"agent/{name}"] = None
        self._wake.set()

    def _descendants(self, name: str) -> Iterator[str]:
        for child in self._children.get(name, ()):
            yield child
            yield from self._descendants(child)

    # The task

    async def run(self) -> None:
        """Serve the views until the last one is closed."""
        presence, permissions = self._sources.presence, self._sources.permissions
        unsubscribe = self._queries.subscribe(self._hear)
        members, delivery = self._sources.members, self._sources.delivery
        presence.changed, permissions.changed = self._presence_changed, self._permission_changed
        members.wait_changed = self._wait_changed
        delivery.level_changed = self._level_changed
        try:
            await self._begin()
            while not self.is_over:
                await self._serve()
        except PalaverError as error:
            _logger.error("all open views have ended: %s: %s", error.code, error)
            self._fail(error)
        except Exception:
            # The views get an error for people; the exception itself goes to the log of the daemon.
            self._fail(Unavailable("an internal error in the daemon; see daemon.log in its home"))
            raise
        finally:
            self.is_over = True
            unsubscribe()
            # A new hub may have begun already.
            if presence.changed == self._presence_changed:
                presence.changed = lambda name: None
                permissions.changed = lambda id: None
                members.wait_changed = lambda room, name: None
                delivery.level_changed = lambda agent: None
            if self._timer is not None:
                self._timer.cancel()
            self.end()

    async def _begin(self) -> None:
        # Before everything is read: an event in between is then read twice, and not missed.
        self._seq = self._queries.last()
        # A copy: agents may join meanwhile.
        for at, agent in enumerate(tuple(self._sources.directory.all())):
            await let_others_run(at)
            self._count(agent)
            self._watch_agent(agent)
        for room in read_open_rooms(self._queries.rows):
            await asyncio.sleep(0)
            self._watch_room(room)
        self._attention.replace(await self._pages.attention())
        self._counts = self._current_counts()

    async def _serve(self) -> None:
        """Wait for something to do, and do it."""
        self._sleep_until_due()
        await self._wake.wait()
        # Cleared before anything is read: a signal from now on leads to another round.
        self._wake.clear()
        if self._asking:
            await self._send_snapshots()
        self._note_due()
        if not (self._changed or self._seq < self._queries.last()):
            return
        begin_s = self._clock.monotonic_s()
        if (wait_s := self._next_record_s(begin_s) - begin_s) > 0:
            self._wake_after(wait_s)
            self._is_paced = True
            return
        # Counted from the begin, so that the time to make a record does not slow the pace.
        self._next_s = self._flood_s = begin_s + 1 / MOST_A_SECOND
        try:
            if await self._send_changes() >= _MANY_EVENTS:
                self._flood_s = begin_s + 1 / FLOOD_A_SECOND
        except StorageFailed as error:
            # Some events cannot be read. A new snapshot says that it does not continue.
            _logger.error("open views get a new snapshot: %s", error)
            self._seq = self._queries.last()
            for view in self.views:
                view.drop_records()
        if self._changed or self._seq < self._queries.last():
            self._wake_after(self._next_s - self._clock.monotonic_s())

    def _next_record_s(self, now_s: float) -> float:
        """Return when the next record may be made, or when to ask again."""
        is_full = self._queries.last() - self._seq >= _FULL_RECORD
        return self._next_s if is_full or now_s < self._next_s else self._flood_s

    def _wake_after(self, wait_s: float) -> None:
        at_s = self._clock.monotonic_s() + wait_s
        if self._timer is not None:
            if self._timer_s <= at_s:
                return  # The earlier ring leads to `_serve`, which sets the timer again.
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._call_later(max(0.0, wait_s), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._is_paced = False
        self._wake.set()

    # Time

    def _sleep_until_due(self) -> None:
        if (at_ms := self._due.first()) is not None:
            wait_s = max(0.0, (at_ms - self._clock.now_ms()) / 1000)
            self._wake_after(min(wait_s, _LONGEST_SLEEP_S))

    def _note_due(self) -> None:
        """Note agents that have become stale, and leases that are over."""
        for kind, key in self._due.take(self._clock.now_ms()):
            if kind == "agent":
                self._changed.note_agent(key, ())
                if (agent := self._sources.directory.get(key)) is not None:
                    self._watch_agent(agent)
            elif kind == "text":
                self._note_removed(*map(int, key.split("/")))
            else:
                self._changed.rooms[key] = None
                self._changed.attention[f"stick/{key}"] = None

    def _note_removed(self, seq: int, order: int) -> None:
        """Read a message again whose text is being removed, until that is done; `order` is its seq."""
        self._changed.note_removed(seq, self._queries)
        # Any agent's newest message may be the removed one.
        self._last.clear()
        if order > self._queries.redacted():
            self._due.put(self._clock.now_ms() + _REMOVAL_MS, "text", f"{seq}/{order}")

    def _watch_agent(self, agent: Agent) -> None:
        limit_ms = self._facts.stale_after_ms
        if limit_ms and agent.state == AgentState.ACTIVE and not agent.left:
            at_ms = agent.since + limit_ms + 1  # An agent is stale after more than the limit.
            if at_ms > self._clock.now_ms():  # Else it is stale already, and would be due in every round.
                self._due.put(at_ms, "agent", agent.name)

    def _watch_room(self, room: Room) -> None:
        names = filter(None, (room.owner, room.reserved_for))
        at_ms = outlook(room, self._facts.room(room.id, names), self._facts.policy).changes_ms
        if at_ms is not None:
            self._due.put(at_ms + 1, "room", room.id)

    # Snapshots

    async def _send_snapshots(self) -> None:
        asking = sorted(self._asking, key=lambda view: (view.me, view.is_continuing, view.after))
        self._asking.clear()
        # Views that continue at the same seq share a snapshot: after a loss many ask at the same time.
        made: dict[tuple[str, bool, int], ViewRecord] = {}
        bare: dict[str, Snapshot] = {}
        for view in asking:
            key = view.me, view.is_continuing, view.after
            if key not in made:
                if view.me not in bare:
                    bare[view.me] = await self._snapshot(view.me)
                made[key] = await self._continued(bare[view.me], view)
            # No await between here and the last change: the view gets every later one.
            if view in self.views and view.needs_snapshot:
                view.put(made[key])

    async def _snapshot(self, me: str) -> Snapshot:
        snapshot = await self._pages.snapshot(me, seq=self._seq)
        # The entries as the hub knows them, because the next changes are relative to these.
        attention = tuple(islice(self._attention.oldest_first(), _LIMIT_SNAPSHOT))
        counts = self._current_counts()
        return msgspec.structs.replace(snapshot, seq=self._seq, attention=attention, counts=counts)

    async def _continued(self, snapshot: Snapshot, view: OpenView) -> ViewRecord:
        """Return the snapshot with the events after the view's last record, if there are not too many."""
        if view.is_continuing and view.after <= self._seq:
            missed = await self._events_after(view.after)
            if missed is not None:
                events = tuple(await in_steps(missed, event_row))
                snapshot = msgspec.structs.replace(snapshot, events=events, is_continued=True)
                data = _encode(snapshot)
                # The missed events must not make it larger than the records that may wait for a view.
                if len(data) <= LIMIT_WAITING_BYTES:
                    return ViewRecord(seq=snapshot.seq, is_snapshot=True, data=data)
                newest = snapshot.events[-_LIMIT_SNAPSHOT:]
                snapshot = msgspec.structs.replace(snapshot, events=newest, is_continued=False)
        return ViewRecord(seq=snapshot.seq, is_snapshot=True, data=_encode(snapshot))

    async def _events_after(self, after: int) -> list[Event] | None:
        """Return the events after a seq up to the last record; None if too many or lost ones."""
        found: list[Event] = []
        while after < self._seq:
            try:
                events, after = await self._queries.next_events(after, _LIMIT_EVENTS)
            except StorageFailed:
                return None
            found.extend(event for event in events if event.seq <= self._seq)
            if len(found) > LIMIT_CONTINUED:
                return None
        return found

    # Changes

    async def _send_changes(self) -> int:
        """Send everything since the last record. Return the number of its events."""
        after = self._seq
        events, seq = await self._queries.next_events(after, _LIMIT_EVENTS)
        newest: dict[str, Event] = {}
        rows: list[EventRow] = []
        noted: set[tuple[object, ...]] = set()
        for at, event in enumerate(events, 1):
            if at % _EVENT_STEP == 0:
                await asyncio.sleep(0)
            rows.append(event_row(event))
            # In a flood most messages are like the one before.
            kind = _kind_of_message(event)
            if kind is None or kind not in noted:
                self._note(event)
                noted.add(kind or ())
            if isinstance(event.body, MessageSent):
                newest[event.sender] = event
        # Before the rows of agents are made, which contain the newest message of each.
        self._last.update((sender, last_message(event)) for sender, event in newest.items())
        changes = await self._changes(after, seq, rows)
        self._seq = seq
        if not _is_empty(changes):
            record = ViewRecord(seq=seq, is_snapshot=False, data=_encode(changes))
            for view in self.views:
                if not view.needs_snapshot:
                    view.put(record)
        return len(events)

    def _note(self, event: Event) -> None:
        self._changed.note(event, self._queries)
        self._changed.attention.update(dict.fromkeys(self._attention.touched_by(event)))
        if isinstance(event.body, TextRemoved):
            self._note_removed(event.body.event, event.seq)
        elif event.type in AGENT_TYPES:
            agent = self._sources.directory.get(agent_of(event))
            if agent is not None:
                self._count(agent)
                self._watch_agent(agent)

    async def _changes(self, after: int, seq: int, events: Iterable[EventRow]) -> Changes:
        agents = await self._agent_rows()
        talks = await self._talk_rows()
        attention, settled = await self._attention_entries()
        moved = _take(self._changed.moved, _LIMIT_EVENTS)
        rooms = await self._room_ids()
        # The last of all, because the numbers include entries of attention that were changed above.
        counts = self._current_counts()
        is_new = counts != self._counts
        self._counts = counts
        return Changes(
            after=after,
            seq=seq,
            events=tuple(events),
            agents=tuple(agents),
            talks=tuple(talks),
            attention=tuple(attention),
            settled=tuple(settled),
            moved=tuple(moved),
            rooms=tuple(rooms),
            counts=counts if is_new else None,
        )

    async def _agent_rows(self) -> list[AgentRow]:
        names = _take(self._changed.agents, _LIMIT_AGENTS)
        names += _take(self._changed.counted, _LIMIT_AGENTS - len(names))
        rows = []
        for at, name in enumerate(dict.fromkeys(names)):
            await let_others_run(at)
            # Senders and recipients are not always agents: people, webhooks and parts of the bus have no row.
            if self._sources.directory.get(name) is None:
                continue
            if name not in self._last:
                self._last[name] = await self._pages.last_message(name)
            if (row := self._pages.agent_row(name, self._last[name])) is not None:
                rows.append(row)
        return rows

    async def _room_ids(self) -> list[str]:
        """Return the changed rooms, and note when they change by time."""
        ids = _take(self._changed.rooms, _LIMIT_ROOMS)
        for id_ in ids:
            await asyncio.sleep(0)  # A room can have many members.
            if (room := read_room(self._queries.rows, id_)) is not None:
                self._watch_room(room)
        return ids

    async def _talk_rows(self) -> list[ConversationRow]:
        rows, text_of = self._queries.rows, self._facts.text_of
        keys = _take(self._changed.talks, _LIMIT_TALKS)
        found = await in_steps(keys, lambda key: read_conversation(rows, key, text_of=text_of))
        return [row for row in found if row is not None]

    async def _attention_entries(self) -> tuple[list[Attention], list[str]]:
        """Return the changed entries, and the keys of those that have ended since the last record."""
        found: list[Attention] = []
        settled: list[str] = []
        for at, key in enumerate(_take(self._changed.attention, _LIMIT_KEYS)):
            await let_others_run(at)
            entry = self._pages.attention_of(key)
            if entry is None:
                settled += self._attention.remove(key)
            elif self._attention.get(key) != entry:
                settled += self._attention.put(entry)
                found.append(entry)
        # Of each kind only the newest are known. After one has ended, an older one takes its place.
        if self._attention.is_incomplete:
            found += self._attention.replace(await self._pages.attention())
        return found, settled

    # Numbers

    def _count(self, agent: Agent) -> None:
        if agent.parent:
            self._children.setdefault(agent.parent, set()).add(agent.name)
        before = self._states.get(agent.name, "")
        now = "" if agent.left else agent.state
        if before == now:
            return
        if before:
            self._numbers[before] -= 1
        if now:
            self._numbers[now] += 1
        self._states[agent.name] = now

    def _current_counts(self) -> Counts:
        agents = {state: number for state, number in self._numbers.items() if number}
        unread = count_unread(self._queries.rows)
        return Counts(agents=agents, attention=len(self._attention), unread=unread)


def _kind_of_message(event: Event) -> tuple[object, ...] | None:
    """Return the fields of a message that decide which rows it changes; None for other events."""
    message = event.body
    if not isinstance(message, MessageSent) or not _is_plain(message):
        return None
    return (
        event.sender,
        event.to,
        event.imported,
        message.delivered_to,
        message.scope,
        message.thread,
        message.room,
        message.channel,
        message.raw is None,
    )


def _is_empty(changes: Changes) -> bool:
    return changes == Changes(after=changes.after, seq=changes.after)


class _DueTimes:
    """Times at which something changes without an event: at most one for each key, the earliest."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str]] = []
        self._times: dict[tuple[str, str], int] = {}

    def put(self, at_ms: int, kind: str, key: str) -> None:
        """Add a time. A later one than the known one is ignored: it is computed again when that is due."""
        known = self._times.get((kind, key))
        if known is None or at_ms < known:
            self._times[kind, key] = at_ms
            heappush(self._heap, (at_ms, kind, key))

    def first(self) -> int | None:
        """Return the earliest time, or None."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> list[tuple[str, str]]:
        """Remove and return the keys whose time has come."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, kind, key = heappop(self._heap)
            # A key that got an earlier time later is in the heap twice; only the earlier one counts.
            if self._times.get((kind, key)) == at_ms:
                del self._times[kind, key]
                found.append((kind, key))
        return found
