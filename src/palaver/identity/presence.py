"""Which agents are present: in general, and in rooms. Not stored."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.clock import CallLater, Clock, Timer
from palaver.domain.stick import Policy
from palaver.errors import RequestError
from palaver.identity.process import ProcessWatch, boot_id
from palaver.identity.seats import AgentTerminals, Holders, HolderTerminals, SeatIndex
from palaver.log.api import Log
from palaver.protocol.agents import Agent, Seat
from palaver.protocol.envelope import Event, from_agent, room_id_of
from palaver.protocol.events import AGENT_TYPES, BYE, AgentState, MemberLeft, StatusChanged
from palaver.protocol.message import HUMAN
from palaver.protocol.query import JOINED, LEFT, Query
from palaver.state.agents import read_agent, read_agents, read_seats
from palaver.state.fold import agent_of
from palaver.state.rooms import read_open_rooms

# --------------------
# Which agents are present: their seat's process is alive, or they have a link.
#
# Reports once per agent when it is offline: its process has ended, or its last link was lost and no new one
# was opened within the grace period. A holder has the same grace period to report how the process that it
# runs ended.


LINK_GRACE_S = 10.0


class ExitWatch(Protocol):
    """Reports the end of a seat's process; implemented by `ProcessWatch`."""

    def add(self, seat: Seat, callback: Callable[[], None]) -> None: ...

    def remove(self, seat: Seat) -> None: ...

    def close(self) -> None: ...


Gone = Callable[[str, Seat | None, str], None]
"""Called with the name, the seat it had, and the reason."""


class Presence:
    """Follows the agents of this device. Belongs to the loop's thread."""

    def __init__(self, watch: ExitWatch, gone: Gone, call_later: CallLater) -> None:
        self._watch = watch
        self._gone = gone
        self._call_later = call_later
        self._seats: dict[str, Seat] = {}
        self._ended: dict[str, Seat] = {}
        self._links: dict[str, int] = {}
        self._timers: dict[str, Timer] = {}
        self._parents: dict[str, str] = {}
        self.changed: Callable[[str], None] = lambda name: None
        """Called with each agent whose process or connections have changed; its sub-agents change with it."""

    def is_present(self, name: str) -> bool:
        """Whether the agent's process is alive, or it has a link. A sub-agent is present with its parent."""
        while (parent := self._parents.get(name)) is not None:
            name = parent
        return name in self._seats or name in self._links

    def put(self, agent: Agent) -> None:
        """Record the current state of an agent in the log. The end of a sub-agent is reported by others."""
        if agent.parent and not agent.left:
            self._parents[agent.name] = agent.parent
            return
        self._parents.pop(agent.name, None)
        seat = None if agent.left or agent.remote else agent.seat
        if seat is not None and self._ended.get(agent.name) == seat:
            return  # That process has ended; its grace period or a connection goes on.
        self._ended.pop(agent.name, None)
        known = self._seats.get(agent.name)
        if known != seat:
            self._forget_seat(agent.name)
            if seat is not None:
                self._seats[agent.name] = seat
                is_held = bool(agent.holder)
                self._watch.add(seat, lambda: self._seat_ended(agent.name, seat, is_held=is_held))
        if agent.left:
            self._stop_timer(agent.name)
        # After a start of the daemon no connection is open yet: the agent has the grace period to come back.
        elif agent.link and agent.name not in self._links and agent.name not in self._timers:
            self._start_timer(agent.name)

    def link_opened(self, name: str) -> None:
        """Record one more connection of the agent."""
        self._stop_timer(name)
        self._links[name] = self._links.get(name, 0) + 1
        self.changed(name)

    def link_closed(self, name: str) -> None:
        """Record one connection less; after the last one the grace period begins."""
        left = self._links.get(name, 0) - 1
        if left > 0:
            self._links[name] = left
        else:
            self._links.pop(name, None)
            self._start_timer(name)
            self.changed(name)

    def close(self) -> None:
        """Stop watching, and report nothing more."""
        self._watch.close()
        for name in list(self._timers):
            self._stop_timer(name)

    def _seat_ended(self, name: str, seat: Seat, *, is_held: bool) -> None:
        # The agent may have joined with another process since, which is then its seat.
        if self._seats.get(name) == seat:
            del self._seats[name]
            self.changed(name)
            if is_held:
                self._ended[name] = seat
                # A timer that is only overwritten would still fire, and would remove the new one from the
                # table.
                self._stop_timer(name)
                self._timers[name] = self._call_later(LINK_GRACE_S, lambda: self._never_reported(name, seat))
            elif name not in self._links:
                self._gone(name, seat, "its process ended")
            else:
                self._ended[name] = seat  # Reported when its last connection is lost too.

    def _never_reported(self, name: str, seat: Seat) -> None:
        del self._timers[name]
        if self._ended.get(name) == seat:
            self._gone(name, seat, "its process ended")

    def _forget_seat(self, name: str) -> None:
        if (seat := self._seats.pop(name, None)) is not None:
            self._watch.remove(seat)

    def _start_timer(self, name: str) -> None:
        self._stop_timer(name)  # That of its holder, whose end `_grace_over` reports as well.
        self._timers[name] = self._call_later(LINK_GRACE_S, lambda: self._grace_over(name))

    def _stop_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _grace_over(self, name: str) -> None:
        del self._timers[name]
        # Its process runs, so it is present without a connection.
        if name in self._seats:
            return
        # With the seat that the log still has: the broker takes another one for a newer process.
        seat = self._ended.get(name)
        self._gone(name, seat, "its connection was lost" if seat is None else "its process ended")


# --------------------
# Seats and presence of all agents, kept in step with the state.


class AgentIndex:
    """The seats, presence, terminals and holders of all agents. Empty until it starts."""

    def __init__(self, log: Log, gone: Gone, call_later: CallLater, secret: bytes) -> None:
        """`gone` is called with an agent that is offline, its seat, and the reason.

        `secret` signs the marks.
        """
        boot = boot_id()
        self._log = log
        self._unsubscribe: Callable[[], None] = lambda: None
        self.presence = Presence(ProcessWatch(), gone, call_later)
        self.seats = SeatIndex(boot, secret=secret)
        self.terminals = HolderTerminals(boot)
        self.agent_terminals = AgentTerminals(boot)
        self.holders = Holders(boot)

    def start(self) -> None:
        """Read the state, and from then on every change, before its commit returns."""
        self._unsubscribe = self._log.subscribe(self._follow, AGENT_TYPES)
        # Also the seats of agents that have left: a process that was an agent never becomes the human, not
        # even after a restart of the daemon.
        for seat in read_seats(self._log.rows, self.seats.boot):
            self.seats.remember(seat)
        for agent in read_agents(self._log.rows):
            self._put(agent)

    def close(self) -> None:
        """Stop watching."""
        self._unsubscribe()
        self.presence.close()

    def is_in_reach(self, name: str) -> bool:
        """Whether a member of a room is present: a person always is, at any terminal."""
        return name == HUMAN or self.presence.is_present(name)

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if (agent := read_agent(self._log.rows, agent_of(event))) is not None:
                self._put(agent)

    def _put(self, agent: Agent) -> None:
        self.seats.put(agent)
        self.presence.put(agent)
        self.terminals.put(agent)
        self.agent_terminals.put(agent)
        self.holders.put(agent)


# --------------------
# Which messages of a room, or of an inbox, were shown to whom: only those can be acknowledged.
#
# Kept in memory, and bounded: forgotten messages, and all messages after a restart, are shown once more or
# stay unread. A message that was not shown is never acknowledged.

LIMIT_READERS: Final = 4096
LIMIT_MESSAGES: Final = 1024
"""Unacknowledged messages per reader; above the limit the oldest are forgotten."""

INBOX: Final = ""
"""Used as the room of an inbox, whose messages may be of any room or of none."""
BY_COMMANDS: Final = "commands"
"""Used as the room of messages that commands have shown; no cursor of a tool acknowledges these."""


class ShownMessages:
    """The messages shown to each reader. Belongs to the loop's thread."""

    def __init__(self, *, limit_readers: int = LIMIT_READERS, limit_messages: int = LIMIT_MESSAGES) -> None:
        """When full, the reader that was shown nothing for longest is forgotten first."""
        self._limit_readers = limit_readers
        self._limit_messages = limit_messages
        # Dictionaries, because they keep order; the values are unused.
        self._readers: dict[tuple[str, str], dict[int, None]] = {}

    def add(self, name: str, room: str, seqs: Iterable[int]) -> None:
        """Record that messages of a room, or of the inbox, were shown to a reader."""
        new = dict.fromkeys(seqs)
        if not new:
            return
        # Removed and added again, so that both dictionaries keep the order in which the limits forget.
        known = self._readers.pop((name, room), {})
        for seq in new:
            known.pop(seq, None)
        known |= new
        while len(known) > self._limit_messages:
            del known[next(iter(known))]
        self._readers[name, room] = known
        if len(self._readers) > self._limit_readers:
            del self._readers[next(iter(self._readers))]

    def has(self, name: str, room: str, seq: int) -> bool:
        """Whether a message was shown to a reader, as far as remembered."""
        return seq in self._readers.get((name, room), ())

    def has_any(self, name: str, seq: int) -> bool:
        """Whether a message was shown to a reader in any room or in its inbox, as far as remembered."""
        return any(seq in seqs for (reader, _), seqs in self._readers.items() if reader == name)

    def forget(self, name: str, room: str, seqs: Iterable[int]) -> None:
        """Forget messages that are settled."""
        known = self._readers.get((name, room), {})
        for seq in seqs:
            known.pop(seq, None)
        if not known:
            self._readers.pop((name, room), None)


# --------------------
# Signs of life of agents in rooms: waits, renewed leases, last actions. Kept only in memory.
#
# Stored facts are read from the log: since when an agent is offline, its events since then, whether it
# reports idle or active. Everything else starts empty with each start of the daemon. So the start itself
# counts as a sign of life of every agent whose process runs.
#
# A caller with a token has no visible process. It is present while one of its calls is open and for the grace
# period of a waiter afterwards, and alive for a lease after its last call.

_NO_SIGN: Final = frozenset({"delivery", "life", BYE, LEFT})
"""Events that are written about an agent and not by it, or that are its last event."""
_AT_REST: Final = frozenset({AgentState.IDLE.value, AgentState.EXITED.value})
_LOOK_BACK: Final = 100
"""After a start, look at this many of the newest events of an offline agent."""
LIMIT_NAMES: Final = 10_000
"""Names that are remembered. Above the limit the name that was silent for longest is forgotten."""


@dataclass(slots=True)
class _Wait:
    """How an agent waits, or waited, in one room."""

    last_ms: int
    is_parked: bool = False
    count: int = 0
    """The number of its calls that wait now."""


class _LastSigns:
    """When each of up to `LIMIT_NAMES` names last gave a sign of life."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}

    def put(self, name: str, now_ms: int) -> None:
        # Removed first: an assignment alone would keep its old position, and the first one is forgotten.
        self._at.pop(name, None)
        self._at[name] = now_ms
        if len(self._at) > LIMIT_NAMES:
            del self._at[next(iter(self._at))]

    def get(self, name: str) -> int | None:
        return self._at.get(name)


class MemberPresenceBook:
    """Keeps the presence and activity of room members for one daemon. Belongs to the loop's thread."""

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        is_present: Callable[[str], bool],
        has_token: Callable[[str], bool] = lambda name: False,
        policy: Policy | None = None,
    ) -> None:
        """`is_present`: whether an agent's process is alive or it has a link.

        `has_token`: whether it has a token. It is asked only about agents without a live process.
        """
        self._log = log
        self._clock = clock
        self._has_process = is_present
        self._has_token = has_token
        self._policy = policy or Policy()
        self._started_ms = clock.now_ms()
        self._seen = _LastSigns()
        self._tokens = _LastSigns()
        self._calls: dict[str, int] = {}
        self._active = {agent.name for agent in read_agents(log.rows) if agent.state == AgentState.ACTIVE}
        self._beats: dict[tuple[str, str], int] = {}
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._notified: dict[tuple[str, str], int] = {}
        self.shown = ShownMessages()
        self.changed: Callable[[str], None] = lambda room: None
        """Called with the room in which a wait ended: it may be the turn of another member."""
        self.fell_silent: Callable[[str], None] = lambda name: None
        """Called with an agent when one of its calls has ended: from then on its time runs."""
        self.wait_changed: Callable[[str, str], None] = lambda room, name: None
        """Called with a room and a member that begins or ends a wait there, or renews its lease."""
        self.is_in_hand: Callable[[str, int], bool] = lambda name, seq: False
        """Whether a reader or lane of an agent has a message and has not confirmed it yet."""
        self._unsubscribe = log.subscribe(self._hear)

    async def recall(self) -> None:
        """After a start, remember the last event of each room member whose process had exited by then."""
        for name in {name for room in read_open_rooms(self._log.rows) for name in room.names}:
            if (gone_ms := self.gone_since_ms(name)) is not None:
                query = Query(senders=(name,), since=gone_ms, last=_LOOK_BACK)
                signs = [event.ts for event in await self._log.read(query) if _is_sign(event)]
                if signs:
                    self._seen.put(name, max(signs))

    def close(self) -> None:
        """Stop following the log."""
        self._unsubscribe()

    # Recording

    def saw(self, name: str) -> None:
        """Record that an agent did something: a request, a read, a write."""
        self._seen.put(name, self._clock.now_ms())

    def spoke(self, name: str) -> None:
        """Record that an agent has shown a token: it is present, whatever became of its process."""
        self._tokens.put(name, self._clock.now_ms())

    @contextmanager
    def speaking(self, name: str) -> Iterator[None]:
        """Record an open call by a token while the block runs."""
        self.spoke(name)
        try:
            with self._calling(name):
                yield
        finally:
            # Recorded again, because its grace period runs from the end of the call.
            self.spoke(name)
            self.fell_silent(name)

    @contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        self._calls[name] = self._calls.get(name, 0) + 1
        try:
            yield
        finally:
            self._calls[name] -= 1
            # Removed at 0, because `is_present` only asks whether there is an entry.
            if not self._calls[name]:
                del self._calls[name]

    def beat(self, room: str, name: str) -> None:
        """Record that an owner confirmed, with its lease, that it still works."""
        self._beats[room, name] = self._clock.now_ms()
        self.wait_changed(room, name)

    @contextmanager
    def waiting(self, room: str, name: str, *, is_parked: bool = False) -> Iterator[None]:
        """Record that a member waits for its turn while the block runs; its newest call decides how it waits.

        A call that is refused does not change how it waits.
        """
        wait = self._touch(room, name)
        was_parked, wait.is_parked = wait.is_parked, is_parked
        wait.count += 1
        self.wait_changed(room, name)
        try:
            with self._calling(name):
                yield
        except RequestError:
            wait.is_parked = was_parked
            raise
        finally:
            wait.count -= 1
            wait.last_ms = self._clock.now_ms()
            self.wait_changed(room, name)
            self.changed(room)
            self.fell_silent(name)

    def is_news(self, room: str, name: str, seq: int) -> bool:
        """Record that a member was notified of a handoff; False if it already was notified of this one."""
        is_known = self._notified.get((room, name)) == seq
        self._notified[room, name] = seq
        return not is_known

    def forget(self, room: str, name: str) -> None:
        """Forget a former member: nothing of it counts any more, not even calls that still wait."""
        for table in (self._waits, self._beats, self._notified):
            table.pop((room, name), None)

    # Reading

    @property
    def started_ms(self) -> int:
        """When this daemon started."""
        return self._started_ms

    def is_present(self, name: str) -> bool:
        """Whether its process is alive, or it has a link, an open call or a recent call with a token."""
        if self._has_process(name) or name in self._calls:
            return True
        spoke_ms = self._tokens.get(name)
        return spoke_ms is not None and self._clock.now_ms() - spoke_ms <= self._policy.waiter_grace_ms

    def is_active(self, name: str) -> bool:
        """Whether its process is alive and it reports that it works."""
        return name in self._active and self._has_process(name)

    def gone_since_ms(self, name: str) -> int | None:
        """Since when its process has exited; None while it has an open call, or if that is unknown."""
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.left or self._has_process(name) or name in self._calls:
            return None
        return agent.since

    def token_ms(self, name: str) -> int | None:
        """When it last used a token; None if it never did.

        An agent that has a token and no live process may have used it until the daemon started.
        """
        spoke_ms = self._tokens.get(name)
        if spoke_ms is not None or self._has_process(name):
            return spoke_ms
        return self._started_ms if self._has_token(name) else None

    def seen_ms(self, name: str) -> int | None:
        """When it last did something."""
        return self._seen.get(name)

    def idle_since_ms(self, name: str) -> int | None:
        """Since when it reports idle; None if it does not, or has never reported its state."""
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.ready or agent.state != AgentState.IDLE:
            return None
        return agent.since

    def beat_ms(self, room: str, name: str) -> int | None:
        """When it last confirmed its lease."""
        return self._beats.get((room, name))

    def last_wait_ms(self, room: str, name: str) -> int | None:
        """When it last waited, or joined; the current time while it waits."""
        wait = self._waits.get((room, name))
        if wait is None:
            return None
        return self._clock.now_ms() if wait.count else wait.last_ms

    def is_waiting(self, room: str, name: str) -> bool:
        """Whether it waits now."""
        wait = self._waits.get((room, name))
        return wait is not None and wait.count > 0

    def is_parked(self, room: str, name: str) -> bool:
        """Whether its last wait was only for a reserved stick."""
        wait = self._waits.get((room, name))
        return wait is not None and wait.is_parked

    def may_know(self, name: str, seq: int) -> bool:
        """Whether a reader or lane has a message for it, or a tool or command has shown the message to it."""
        return self.is_in_hand(name, seq) or self.shown.has_any(name, seq)

    def waiters(self, room: str) -> list[str]:
        """Return the members that wait in a room now."""
        return [name for (where, name), wait in self._waits.items() if where == room and wait.count]

    def count_waiting(self) -> int:
        """Return how many members wait now, in all rooms."""
        return sum(1 for wait in self._waits.values() if wait.count)

    def _touch(self, room: str, name: str) -> _Wait:
        now = self._clock.now_ms()
        wait = self._waits.setdefault((room, name), _Wait(now))
        wait.last_ms = now
        return wait

    def _hear(self, events: Sequence[Event]) -> None:
        """Count an agent's own events as signs of life, except a status that it is idle."""
        for event in events:
            if event.type == "status":
                self._hear_status(event)
            elif _is_sign(event):
                self.saw(event.sender)
            room, body = room_id_of(event), event.body
            if room is None:
                continue
            if event.type == JOINED:
                self._touch(room, event.sender)
            elif isinstance(body, MemberLeft):
                # The kick event itself was handled; the agent may have joined again since.
                if not body.kick:
                    self.forget(room, from_agent(event) or event.sender)
            elif event.type == "kick":
                for name in event.to:
                    self.forget(room, name)
            elif event.type == "close":
                # A list, because `forget` changes these tables.
                for where, name in [*self._waits, *self._beats, *self._notified]:
                    if where == room:
                        self.forget(room, name)

    def _hear_status(self, event: Event) -> None:
        """Count an agent that was active as active until now, even if it is idle from now on."""
        name, state = agent_of(event), _state(event)
        was_active = name in self._active
        if state == AgentState.ACTIVE:
            self._active.add(name)
        else:
            self._active.discard(name)
        if was_active or _is_sign(event):
            self.saw(name)


def _is_sign(event: Event) -> bool:
    """Whether an event is a sign of life of its sender."""
    if event.type == "status":
        return _state(event) not in _AT_REST
    return event.type not in _NO_SIGN


def _state(event: Event) -> str | None:
    return event.body.state if isinstance(event.body, StatusChanged) else None
