"""Rooms in use: join, write, read, wait, and work by turns, as the room commands and tools show them."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from math import ceil
from typing import Final

from msgspec.structs import asdict, replace

from palaver.broker.broker import Broker
from palaver.broker.context import Seated, Sent, Turn, Written
from palaver.clock import CallLater, Clock
from palaver.domain.stick import (
    Cause,
    Policy,
    RoomFacts,
    check_holder,
    conditions,
    is_gone,
    lease_until_ms,
    take_facts,
)
from palaver.errors import BadRequest, DuplicateWait, NotAPlace, UnknownMember, WhoAreYou
from palaver.identity.presence import INBOX, MemberPresenceBook
from palaver.identity.workspace import Workspaces
from palaver.log.api import EventKind, Log
from palaver.log.follow import follow
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.envelope import Event, body_as, room_id_of
from palaver.protocol.events import AGENT_TYPES, Freed, Grade, Granted, NoteAdded
from palaver.protocol.message import EXTERNAL, MESSAGE, FlatMessage
from palaver.protocol.query import (
    ANY,
    SELF,
    EventFilter,
    Passes,
    Query,
    RoomEvent,
    event_filter,
    passes,
    room_event,
)
from palaver.protocol.requests import (
    Acknowledge,
    AddNote,
    Claim,
    CloseRoom,
    JoinRoom,
    KickMember,
    LeaveRoom,
    PassStick,
    ReleaseStick,
    Request,
    ResolveNote,
    Send,
    TakeOver,
)
from palaver.services.results import (
    YOUR_TURN,
    AgentList,
    AgentView,
    DeniedTurn,
    EventPage,
    FreedStick,
    GrantedTurn,
    InboxPage,
    LeaseView,
    MemberView,
    NoteList,
    NoteView,
    PendingHandoff,
    PolicyView,
    RoomChange,
    RoomLine,
    RoomList,
    RoomSent,
    RoomView,
    StickView,
    TurnView,
)
from palaver.state.agents import find_mail, read_mail, read_mail_up_to
from palaver.state.fold import agent_of
from palaver.state.rooms import (
    Handover,
    Member,
    Note,
    Room,
    StickState,
    find_member,
    find_note,
    find_room,
    read_all_rooms,
    read_notes,
    read_open_rooms,
    read_room,
    read_room_at,
    read_rooms_of,
)
from palaver.state.rows import OpenMessage, deliverable

# --------------------
# Rooms, members, turns and notes as results of the room tools.
#
# Pure: presence and time are passed in.

FindAgent = Callable[[str], Agent | None]


def stick_view(room: Room, facts: RoomFacts, policy: Policy) -> StickView:
    """Return the state of the stick, which is part of every result about a room."""
    is_owned = room.state == StickState.OWNED
    return StickView(
        room_id=room.id,
        room_state=room.state,
        turn_id=room.turn,
        owner_agent_id=room.owner or None,
        lease_expires_at=lease_until_ms(room, facts, policy) if is_owned else None,
        reserved_for=room.reserved_for or None,
        claim_expires_at=room.claim_until_ms or None,
        conditions=tuple(map(str, conditions(room, facts, policy))),
    )


def room_view(
    room: Room,
    facts: RoomFacts,
    policy: Policy,
    find: FindAgent,
    *,
    caller: str,
    cursor: int,
    is_new: bool | None = None,
    warning: str | None = None,
) -> RoomView:
    """Return all fields of a room as of now; `cursor` is the seq that the caller continues after."""
    return RoomView(
        **asdict(stick_view(room, facts, policy)),
        name=room.name,
        canonical_path=room.path,
        created_at=room.made_ms,
        closed_at=room.closed_ms or None,
        prior_owner_agent_id=room.prior_owner or None,
        pending_handoff=handover_view(room.pending) if room.is_open else None,
        members=tuple(member_view(room, member, facts, policy, find) for member in room.members),
        policy=policy_view(policy),
        agent_id=caller,
        is_new=is_new,
        cursor_event_seq=cursor,
        warning=warning,
    )


def room_line(room: Room, facts: RoomFacts, policy: Policy, caller: str) -> RoomLine:
    """Return a room as an entry of a list."""
    return RoomLine(
        **asdict(stick_view(room, facts, policy)),
        name=room.name,
        canonical_path=room.path,
        created_at=room.made_ms,
        closed_at=room.closed_ms or None,
        member_count=len(room.members),
        present_count=sum(facts.of(name).is_present for name in room.names),
        is_member=room.is_open and room.member(caller) is not None,
    )


def member_view(room: Room, member: Member, facts: RoomFacts, policy: Policy, find: FindAgent) -> MemberView:
    """Return one member with its current status in the room."""
    sight = facts.of(member.name)
    agent = find(member.name)
    here = "active" if sight.is_present else "away"
    return MemberView(
        agent_id=member.name,
        harness=member.harness or None,
        status="gone" if is_gone(room, member.name, facts, policy) else here,
        present=sight.is_present,
        state=None if agent is None else agent.state,
        waiting=sight.is_waiting,
        parked=sight.is_parked,
        is_owner=member.name == room.owner,
        joined_at=member.joined_ms,
        last_seen_at=sight.seen_ms,
        last_turn_id=member.last_turn or None,
    )


def handover_view(handover: Handover | None) -> PendingHandoff | None:
    """Return a handoff that waits for the next owner."""
    if handover is None:
        return None
    return PendingHandoff(from_agent_id=handover.by, event_seq=handover.seq, handoff=handover.fields)


def turn_view(turn: Turn, facts: RoomFacts, policy: Policy) -> TurnView:
    """Return the result of a request for the stick."""
    stick = stick_view(turn.room, facts, policy)
    reason, hint = turn.reason or None, turn.hint or None
    if turn.status != YOUR_TURN:
        return DeniedTurn(status=turn.status, reason=reason, **asdict(stick), hint=hint)
    return GrantedTurn(
        status=turn.status,
        reason=reason,
        room_id=turn.room.id,
        turn_id=turn.turn,
        lease_id=turn.lease,
        lease_expires_at=stick.lease_expires_at,
        heartbeat_interval_ms=policy.heartbeat_ms,
        handoff=turn.handoff,
        from_agent_id=turn.sender or None,
        revoked=turn.revoked or None,
        hint=hint,
    )


def note_view(note: Note) -> NoteView:
    """Return one note."""
    return NoteView(
        note_id=note.id,
        room_id=note.room,
        author_agent_id=note.by,
        body=note.text,
        turn_id=note.turn_id,
        event_seq=note.seq,
        created_at=note.ts,
        resolved_at=note.resolved_ms or None,
        resolved_by_agent_id=note.resolved_by or None,
    )


def policy_view(policy: Policy) -> PolicyView:
    """Return the limits that a member of a room needs to know."""
    return PolicyView(
        lease_ms=policy.lease_ms,
        heartbeat_interval_ms=policy.heartbeat_ms,
        claim_ms=policy.claim_ms,
        waiter_grace_ms=policy.waiter_grace_ms,
        presence_ms=policy.presence_ms,
        long_poll_ms=policy.long_poll_ms,
        message_bytes=policy.message_bytes,
        note_bytes=policy.note_bytes,
    )


# --------------------
# Wake callers that wait for a change in a room. A signal says that something may have changed, never what.
#
# One subscription to the log serves all waiting callers. An event of a room signals that room. An event about
# an agent signals every room of which the agent is a member. No caller polls.


class RoomNotifier:
    """The signals of changes, one for each room. Use it only on the event loop's thread."""

    def __init__(
        self, log: Log, rooms_of: Callable[[str], Iterable[str]], call_later: CallLater | None = None
    ) -> None:
        """`rooms_of` returns the rooms of an agent. `call_later` defaults to that of the running loop."""
        self._rooms_of = rooms_of
        self._call_later = call_later
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._unsubscribe = log.subscribe(self._hear, AGENT_TYPES | {EventKind.IN_ROOM})

    def close(self) -> None:
        """Stop reading the log. Later events wake no caller."""
        self._unsubscribe()

    def ring(self, room: str) -> None:
        """Wake all callers that wait in a room."""
        for news in self._waiting.get(room, ()):
            news.set()

    @contextmanager
    def listening(self, room: str) -> Iterator["Listener"]:
        """Listen to a room while the block runs. A signal that arrives between two waits is kept."""
        news = asyncio.Event()
        listeners = self._waiting.setdefault(room, set())
        listeners.add(news)
        try:
            yield Listener(news, self._call_later or asyncio.get_running_loop().call_later)
        finally:
            listeners.discard(news)
            if not listeners and self._waiting.get(room) is listeners:
                del self._waiting[room]

    def _hear(self, events: Sequence[Event]) -> None:
        # This is called for every event of a room or agent, and most of the time no caller waits.
        if not self._waiting:
            return
        for event in events:
            if (room := room_id_of(event)) is not None:
                self.ring(room)
            if event.type in AGENT_TYPES:
                for one in self._rooms_of(agent_of(event)):
                    self.ring(one)


class Listener:
    """One waiting caller."""

    def __init__(self, news: asyncio.Event, call_later: CallLater) -> None:
        self._news = news
        self._call_later = call_later

    def look(self) -> None:
        """Forget earlier signals. Call this before each look at the room, so that no change is missed."""
        self._news.clear()

    async def wait(self, limit_ms: int | None) -> None:
        """Wait for a signal, at most `limit_ms` milliseconds; None waits indefinitely."""
        if limit_ms is None:
            await self._news.wait()
            return
        timer = self._call_later(limit_ms / 1000, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()


# --------------------
# Waiting in rooms: for the stick, and for events. A wait ends with its connection.
#
# A waiting caller is woken by the room's events and, if time alone can change the result, at the time that
# the last result named. There is no polling. Waiting for events changes no state.

LANE: Final = "room"
"""Name of the lane in the ledger for messages that a cursor acknowledges."""

_SHORTEST_MS: Final = 20
"""Shortest timed wait before the next request for the stick, in milliseconds, to bound the load."""
_ENDS: Final = frozenset({"your_turn", "closed"})
_SETTLED: Final = frozenset({"lease_expired"})
"""Reasons for `not_yet` that waiting cannot change."""
_AUTO_CLAIM_DISABLED: Final = "auto_claim_disabled"

HasNews = Callable[[Turn], Awaitable[bool]]
"""Whether there is an event that ends a wait for the stick, although it is not the caller's turn."""


async def _no_news(turn: Turn) -> bool:
    return False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _OpenWait:
    """A wait for the stick, with its request key. Compared by identity."""

    key: bytes | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The waits of all callers. The presence book records which callers wait."""

    log: Log
    broker: Broker
    clock: Clock
    member_presence: MemberPresenceBook
    notifier: RoomNotifier
    open: dict[tuple[str, str], "_OpenWait"] = dataclasses.field(default_factory=dict)
    """The wait for the stick of each member, by room and name."""

    async def turn(
        self,
        caller: Caller,
        room: Room,
        request: Claim,
        limit_ms: int | None,
        key: bytes | None,
        has_news: HasNews = _no_news,
    ) -> Turn:
        """Request the stick until the result is final, there is news, or the time is over.

        An idle owner may be taken over, but that alone does not end the wait. A second wait of the same
        member is refused. A request that only looks is not a wait.
        """
        if room.member(caller.name) is None:
            return await self._ask(caller, request, key)  # It is refused, or the room is closed.
        end_s = self._end(limit_ms)
        # In this order: a refused second wait must not count as a wait in the presence book.
        with (
            self._only_wait(caller, room, key) if limit_ms != 0 else nullcontext(),
            self.member_presence.waiting(room.id, caller.name, is_parked=request.is_parked),
            self.notifier.listening(room.id) as listener,
        ):
            while True:
                listener.look()
                # The same key each time: it is stored only with an event, so a request that wrote none is
                # decided again.
                turn = await self._ask(caller, request, key)
                turn, is_news = self._reported_once(caller, turn)
                if is_news or _is_answer(turn) or await has_news(turn):
                    return turn
                left_ms = self._left_ms(end_s)
                if left_ms == 0:
                    return turn
                await listener.wait(_sooner(left_ms, turn.look_again_ms))

    @contextmanager
    def _only_wait(self, caller: Caller, room: Room, key: bytes | None) -> Iterator[None]:
        """Refuse a member that waits already.

        The same request again is allowed: its client repeats it when the connection has ended, which the
        first call may not have noticed yet.
        """
        who, own = (room.id, caller.name), _OpenWait(key)
        other = self.open.get(who)
        if other is not None and (key is None or other.key != key):
            raise DuplicateWait(caller.name, room.id)
        self.open[who] = own
        try:
            yield
        finally:
            if self.open.get(who) is own:  # A repeat may have begun, and even ended, in the meantime.
                del self.open[who]

    async def _ask(self, caller: Caller, request: Claim, key: bytes | None) -> Turn:
        turn = await self.broker.submit(caller, request, key=key)
        assert isinstance(turn, Turn)
        return turn

    def _reported_once(self, caller: Caller, turn: Turn) -> tuple[Turn, bool]:
        """Report a pending handoff to a parked member once. Return the turn, and whether it is news."""
        if turn.reason != _AUTO_CLAIM_DISABLED or turn.room.pending is None:
            return turn, False
        if self.member_presence.is_news(turn.room.id, caller.name, turn.room.pending.seq):
            return turn, True
        return dataclasses.replace(turn, reason="", hint=""), False

    async def events(
        self, room: Room, wanted: EventFilter, after: int, limit: int, limit_ms: int | None
    ) -> list[Event]:
        """Return the events after a seq that pass the filter, or wait for the first; empty on timeout."""
        seq, end_s = after, self._end(limit_ms)
        with self.notifier.listening(room.id) as listener:
            while True:
                listener.look()
                found, seq = await self._scan(room, lambda event: passes(wanted, event), seq, limit)
                left_ms = self._left_ms(end_s)
                if found or left_ms == 0:
                    return found
                await listener.wait(left_ms)

    async def stored(self, room: Room, is_wanted: Passes, after: int, limit: int) -> list[Event]:
        """Return the first `limit` wanted events after a seq, including archived ones."""
        return (await self._scan(room, is_wanted, after, limit))[0]

    async def _scan(self, room: Room, is_wanted: Passes, seq: int, limit: int) -> tuple[list[Event], int]:
        """Scan the stored events after a seq. Return those wanted and the seq that was scanned up to.

        Archived events are included: they are part of the room's history and may be unread messages.
        """
        # Without an end, `follow` would wait for new events and never return.
        last = self.log.last()
        query = Query(rooms=(room.id,), before=last + 1)
        found: list[Event] = []
        async with aclosing(follow(self.log, query, after=seq, with_archives=True)) as batches:
            async for events in batches:
                found += filter(is_wanted, events)
                if len(found) >= limit:
                    break
        # Never below the given seq: a cursor of the caller may be above the end of the log.
        return found[:limit], max(seq, last)

    def cursor(self, caller: Caller, room: Room) -> int:
        """Return the seq to continue after: just before the oldest unread message, or else the last seq."""
        unread = self.first_unread(caller, room)
        return self.log.last() if unread is None else unread - 1

    def first_unread(self, caller: Caller, room: Room) -> int | None:
        """Return the seq of the caller's oldest unread message of a room, or None."""
        unread = self._in_room(caller, room, read_mail(self.log.rows, caller.name))
        return min((event.seq for event in unread), default=None)

    async def acknowledge(self, caller: Caller, room: Room, up_to: int) -> None:
        """Mark the messages up to a cursor as read, as far as the caller was shown them.

        This covers messages shown by any call about this room and by its inbox, in any room or none. If none
        of them is open, nothing is stored.
        """
        if caller.kind == EXTERNAL:
            return
        shown, ways = self.member_presence.shown, (room.id, INBOX)
        seqs = [
            mail.seq
            for mail in read_mail_up_to(self.log.rows, caller.name, up_to)
            if not mail.is_kept_back and any(shown.has(caller.name, way, mail.seq) for way in ways)
        ]
        if seqs:
            request = Acknowledge(messages=tuple(sorted(seqs)), lane=LANE, grade=Grade.ACKED)
            await self.broker.submit(caller, request)
            # Only after the commit: a refused request must be possible again with the same cursor.
            for way in ways:
                shown.forget(caller.name, way, seqs)

    def _in_room(self, caller: Caller, room: Room, waiting: Iterable[OpenMessage]) -> Iterator[Event]:
        """Yield a caller's open messages of a room. A script has no mailbox; held messages are left out."""
        if caller.kind == EXTERNAL:
            return
        for mail in waiting:
            event = None if mail.is_kept_back else self.log.event(mail.seq)
            if event is not None and room_id_of(event) == room.id:
                yield event

    def _end(self, limit_ms: int | None) -> float | None:
        return None if limit_ms is None else self.clock.monotonic_s() + limit_ms / 1000

    def _left_ms(self, end_s: float | None) -> int | None:
        """Return the remaining milliseconds of a wait, rounded up; None is indefinitely."""
        return None if end_s is None else max(0, ceil((end_s - self.clock.monotonic_s()) * 1000))


def _is_answer(turn: Turn) -> bool:
    """Return whether a result ends a wait. An idle owner alone does not, although it could be replaced."""
    if turn.status in _ENDS or turn.reason in _SETTLED:
        return True
    return turn.status == "takeover_available" and turn.reason != Cause.OWNER_IDLE


def _sooner(left_ms: int | None, look_again_ms: int | None) -> int | None:
    """Return how long to sleep: until the end of the wait, or until time alone can change the result."""
    if look_again_ms is None:
        return left_ms
    again_ms = max(look_again_ms, _SHORTEST_MS)
    return again_ms if left_ms is None else min(left_ms, again_ms)


# --------------------
# The shared parts of the room tools, and the call of the broker.

LIMIT_WAIT_MS: Final = 110_000
"""Longest wait of one tool call, in milliseconds. A door whose caller can wait longer overrides it."""
LIMIT_EVENTS: Final = 500
_SHOWN: Final = 1024
"""Rendered events kept in a cache, because many callers wait for the same event. The oldest is dropped."""


class RoomToolBase:
    """The state and the helper methods that every room tool uses."""

    def __init__(
        self,
        *,
        log: Log,
        broker: Broker,
        clock: Clock,
        member_presence: MemberPresenceBook,
        workspaces: Workspaces,
        policy: Policy,
        agents: Callable[[], Awaitable[list[AgentView]]],
        inbox: Callable[[str, int], Awaitable[list[FlatMessage]]],
        call_later: CallLater | None = None,
    ) -> None:
        """`agents` returns the views of all agents; `inbox` returns the newest messages for a name."""
        self.log = log
        self.broker = broker
        self.clock = clock
        self.member_presence = member_presence
        self.workspaces = workspaces
        self.policy = policy
        self.show_agents = agents
        self.show_inbox = inbox
        self.find: FindAgent = broker.directory.get
        self._notifier = RoomNotifier(
            log, lambda name: [room.id for room in read_rooms_of(log.rows, name)], call_later
        )
        self.waits = Waits(
            log=log, broker=broker, clock=clock, member_presence=member_presence, notifier=self._notifier
        )
        self._shown: dict[int, tuple[Event, RoomEvent]] = {}
        member_presence.changed = self._notifier.ring

    def close(self) -> None:
        """Stop waking waiting callers."""
        self._notifier.close()

    async def submit(self, caller: Caller, request: Request, key: bytes | None) -> object:
        """Submit a request to the broker, and record that the caller is active."""
        self.member_presence.saw(caller.name)
        return await self.broker.submit(caller, request, key=key)

    async def written(self, caller: Caller, request: Request, key: bytes | None) -> Event:
        """Submit a request that is either refused or stored, and return its event."""
        written = await self.submit(caller, request, key)
        assert isinstance(written, Written)
        assert written.event is not None  # a request without an event is refused
        return written.event

    def facts(self, room: Room) -> RoomFacts:
        """Return presence and waits of all members of a room, as of now."""
        return take_facts(self.member_presence, self.clock.now_ms(), room.id, room.names)

    def outcome(self, status: str, id: str) -> RoomChange:
        """Return a status together with the current state of a room."""
        room = find_room(self.log.rows, id)
        return RoomChange(
            status=status,
            room_id=room.id,
            room_state=room.state,
            remaining_members=len(room.members),
        )

    def wait_ms(self, asked_ms: int | None, limit_ms: int | None) -> int | None:
        """Return how long to wait, within the limits of the caller and the policy; None is indefinitely."""
        if limit_ms is None:
            return None if asked_ms is None else max(0, asked_ms)
        longest = min(limit_ms, self.policy.long_poll_ms)
        return longest if asked_ms is None else max(0, min(asked_ms, longest))

    def start_after(self, caller: Caller, room: Room, after: int | None, since: int | None) -> int:
        """Return the seq that a wait for events starts after.

        Without `after` it starts at the oldest unread message, or else with the next event. `since` is the
        last seq when a repeated call was first made.
        """
        if after is not None:
            return after
        cursor = self.waits.cursor(caller, room)
        return cursor if since is None else min(cursor, since)

    def page_of(self, caller: Caller, room: Room, events: Sequence[Event], after: int) -> EventPage:
        """Return rendered events, and the seq of the last one as the cursor to continue after.

        Messages to the caller among them are recorded as shown to it.
        """
        mail = (event.seq for event in events if _is_mail_of(caller, event))
        self.member_presence.shown.add(caller.name, room.id, mail)
        return EventPage(
            events=tuple(map(self._show, events)),
            cursor_event_seq=events[-1].seq if events else after,
        )

    def _show(self, event: Event) -> RoomEvent:
        known = self._shown.get(event.seq)
        # The seq alone is not enough: a redaction changes a stored event.
        if known is None or known[0] != event:
            if known is None and len(self._shown) >= _SHOWN:
                del self._shown[next(iter(self._shown))]
            known = self._shown[event.seq] = event, room_event(event)
        return known[1]


def _is_mail_of(caller: Caller, event: Event) -> bool:
    is_own = event.type == MESSAGE and caller.kind != EXTERNAL
    return is_own and caller.name in deliverable(event).delivered_to


# --------------------
# Room tools for rooms and members: join, leave, remove, close, list and show.

_PERSONS: Final = frozenset({Standing.HUMAN, Standing.GUEST})


class RoomTools(RoomToolBase):
    """The tools for rooms and their members."""

    async def join_path(
        self,
        caller: Caller,
        *,
        context_path: str,
        force_new: bool = False,
        home: str = "",
        key: bytes | None = None,
    ) -> RoomView:
        """Join the deepest open room that contains a path, or create the room it belongs to.

        With `force_new` it joins or creates only a room at exactly this folder. It refuses the caller's own
        `home`. Returns `room_id agent_id canonical_path members policy room_state cursor_event_seq`, and
        `warning` if the joined room is above the workspace root or the new room is inside another one.
        """
        self.member_presence.saw(caller.name)
        workspace = await self.workspaces.find(context_path, is_exact=force_new, home=home)
        request = JoinRoom(workspaces=workspace.chain, inside=workspace.inside, is_new=force_new)
        seated = await self.submit(caller, request, key)
        assert isinstance(seated, Seated)
        room = self._now(seated.room)
        warning = None
        if seated.ancestor_of:
            warning = f"Joined ancestor room {room.path} above this workspace root {seated.ancestor_of}"
        elif seated.nested_in:
            outer = find_room(self.log.rows, seated.nested_in)
            warning = f"Created nested room inside {outer.path} ({outer.id})"
        return self._view(caller, room, is_new=seated.is_new, warning=warning)

    async def list_rooms(
        self, caller: Caller, *, context_path: str | None = None, include_closed: bool = False
    ) -> RoomList:
        """Return `rooms`: all of them, or those at and above a path, deepest first."""
        self.member_presence.saw(caller.name)
        if context_path is None:
            walk = read_all_rooms if include_closed else read_open_rooms
            rooms = list(walk(self.log.rows))
        else:
            rooms = [room for room in await self._around(context_path) if include_closed or room.is_open]
        return RoomList(
            rooms=tuple(room_line(room, self.facts(room), self.policy, caller.name) for room in rooms)
        )

    async def leave_room(self, caller: Caller, *, room_id: str, key: bytes | None = None) -> RoomChange:
        """Leave a room. `status` is `left`, with `remaining_members` and `room_state`."""
        room = find_room(self.log.rows, room_id)
        await self.submit(caller, LeaveRoom(room=room.id), key)
        return self.outcome("left", room.id)

    async def kick_member(
        self,
        caller: Caller,
        *,
        room_id: str,
        target_agent_id: str,
        force: bool = False,
        reason: str = "",
        key: bytes | None = None,
    ) -> RoomChange:
        """Remove a member. `status` is `kicked`, with `target_was_owner` and `room_state`."""
        # Read before the request: afterwards the removed member owns nothing.
        before = find_room(self.log.rows, room_id)
        request = KickMember(room=before.id, target=target_agent_id, is_forced=force, reason=reason)
        event = await self.written(caller, request, key)
        target = event.to[0]
        return replace(
            self.outcome("kicked", before.id),
            target_agent_id=target,
            target_was_owner=before.owner == target,
        )

    async def close_room(
        self, caller: Caller, *, room_id: str, reason: str = "", key: bytes | None = None
    ) -> RoomChange:
        """Close a room. `status` is `closed`. Its history stays readable."""
        room = find_room(self.log.rows, room_id)
        await self.submit(caller, CloseRoom(room=room.id, reason=reason), key)
        return self.outcome("closed", room.id)

    async def room_here(self, caller: Caller, path: str) -> str | None:
        """Return the open room that a path selects; None if there is no such room.

        The deepest room at or above the path of which the caller is a member comes first, then the deepest
        room.
        """
        rooms = await self._open_around(path)
        own = [room.id for room in rooms if room.member(caller.name) is not None]
        return next(iter([*own, *(room.id for room in rooms)]), None)

    async def own_room_here(self, caller: Caller, path: str) -> str | None:
        """Return the deepest open room at or above a path of which the caller is a member, or None."""
        rooms = await self._open_around(path)
        return next((room.id for room in rooms if room.member(caller.name) is not None), None)

    async def room_meant(self, caller: Caller, path: str) -> str | None:
        """Return the room for a caller that names none and is not a member of one at or above a path.

        A person may read any room and write in it, so for a person the room at the path comes first. For any
        caller the only room it is a member of comes next; several raise BadRequest with their ids. For agents
        the room at the path comes last.
        """
        here = await self.room_here(caller, path)
        if here is not None and caller.standing in _PERSONS:
            return here
        own = [room.id for room in read_rooms_of(self.log.rows, caller.name)]
        if len(own) > 1:
            raise BadRequest(f"choose a room with --room: you are in {', '.join(own)}, but in no room here")
        return next(iter(own), here)

    async def get_room_state(self, caller: Caller, *, room_id: str) -> RoomView:
        """Return the current state of a room: members, stick, conditions, policy.

        `cursor_event_seq` is the same as in `join_path`: never after a message that the caller has not read.
        """
        self.member_presence.saw(caller.name)
        return self._view(caller, find_room(self.log.rows, room_id))

    def _view(
        self, caller: Caller, room: Room, *, is_new: bool | None = None, warning: str | None = None
    ) -> RoomView:
        return room_view(
            room,
            self.facts(room),
            self.policy,
            self.find,
            caller=caller.name,
            cursor=self.waits.cursor(caller, room),
            is_new=is_new,
            warning=warning,
        )

    def _now(self, room: Room) -> Room:
        return read_room(self.log.rows, room.id) or room

    async def _open_around(self, path: str) -> list[Room]:
        try:
            return [room for room in await self._around(path) if room.is_open]
        except NotAPlace:
            return []

    async def _around(self, path: str) -> list[Room]:
        """Return the newest room at a path and at each folder above it, deepest first."""
        workspace = await self.workspaces.find(path)
        return [room for one in workspace.around if (room := read_room_at(self.log.rows, one)) is not None]


# --------------------
# Room tools for the stick: wait for it, keep it, release it, pass it, take it over.

_PAGE: Final = 100
_CLAIM: Final = "claim"
_PARKED: Final = "parked"


class StickTools(RoomToolBase):
    """The tools for the stick."""

    async def wait_for_turn(
        self,
        caller: Caller,
        *,
        room_id: str,
        max_wait_ms: int | None = None,
        mode: str = "claim",
        allow_solo_claim: bool = True,
        events: bool = False,
        after_event_seq: int | None = None,
        is_woken_by_events: bool = True,
        since_event_seq: int | None = None,
        limit_ms: int | None = LIMIT_WAIT_MS,
        key: bytes | None = None,
    ) -> TurnView:
        """Wait until the caller gets the stick, a takeover is possible, or the room is closed.

        `status` is `your_turn` (with `turn_id lease_id handoff from_agent_id reason`), `not_yet`,
        `takeover_available` or `closed`. With `events` or `after_event_seq` the result also contains the
        room's events for the caller after that seq, and the first of them ends the wait, unless
        `is_woken_by_events` is False. `since_event_seq` is as in `wait_for_events`. If `limit_ms` is None,
        `max_wait_ms` has no upper limit, and None there waits indefinitely.
        """
        if mode not in (_CLAIM, _PARKED):
            raise BadRequest(f"the mode must be {_CLAIM} or {_PARKED}, not {mode!r}")
        room = find_room(self.log.rows, room_id)
        request = Claim(room=room.id, is_parked=mode == _PARKED, allows_solo=allow_solo_claim)
        wait_ms = self.wait_ms(max_wait_ms, limit_ms)
        if not events and after_event_seq is None:
            turn = await self.waits.turn(caller, room, request, wait_ms, key)
            return turn_view(turn, self.facts(turn.room), self.policy)
        # Fixed before the wait: otherwise "the next event" would move with every event that arrives.
        after = self.start_after(caller, room, after_event_seq, since_event_seq)

        async def has_news(turn: Turn) -> bool:
            return is_woken_by_events and bool(await self._events_for(caller, turn.room, after, limit=1))

        turn = await self.waits.turn(caller, room, request, wait_ms, key, has_news)
        # The events are read again below, because more may have come since the one that ended the wait.
        view = turn_view(turn, self.facts(turn.room), self.policy)
        page = self.page_of(
            caller, turn.room, await self._events_for(caller, turn.room, after, limit=_PAGE), after
        )
        return replace(view, events=page.events, cursor_event_seq=page.cursor_event_seq)

    async def heartbeat(
        self, caller: Caller, *, room_id: str, lease_id: str, expected_turn_id: int
    ) -> LeaseView:
        """Record that the owner is at work; `status` is `ok`, with `lease_expires_at`. Stores no event."""
        room = find_room(self.log.rows, room_id)
        check_holder(room, caller.name, expected_turn_id, lease_id)
        self.member_presence.beat(room.id, caller.name)
        return LeaseView(
            status="ok",
            room_id=room.id,
            turn_id=room.turn,
            lease_expires_at=lease_until_ms(room, self.facts(room), self.policy),
            heartbeat_interval_ms=self.policy.heartbeat_ms,
        )

    async def release_stick(
        self,
        caller: Caller,
        *,
        room_id: str,
        lease_id: str,
        expected_turn_id: int,
        handoff: Mapping[str, object],
        key: bytes | None = None,
    ) -> FreedStick:
        """Release the stick. `status` is `released`; `reserved_for` is the next waiting member or null."""
        request = ReleaseStick(room=room_id, turn=expected_turn_id, lease=lease_id, handoff=dict(handoff))
        return self._given("released", await self.written(caller, request, key))

    async def pass_stick(
        self,
        caller: Caller,
        *,
        room_id: str,
        lease_id: str,
        expected_turn_id: int,
        to_agent_id: str,
        handoff: Mapping[str, object],
        operator_override: bool = False,
        key: bytes | None = None,
    ) -> FreedStick:
        """Pass the stick to a member. `status` is `passed`; `reserved_for` is that member."""
        request = PassStick(
            room=room_id,
            turn=expected_turn_id,
            lease=lease_id,
            to=to_agent_id,
            handoff=dict(handoff),
            is_override=operator_override,
        )
        return self._given("passed", await self.written(caller, request, key))

    async def takeover_stick(
        self,
        caller: Caller,
        *,
        room_id: str,
        expected_turn_id: int,
        reason: str,
        operator_override: bool = False,
        key: bytes | None = None,
    ) -> TurnView:
        """Take over the stick if that is allowed. Returns the fields of `your_turn`, and `revoked`."""
        request = TakeOver(room=room_id, turn=expected_turn_id, reason=reason, is_override=operator_override)
        turn = await self.submit(caller, request, key)
        assert isinstance(turn, Turn)
        return turn_view(turn, self.facts(turn.room), self.policy)

    def _given(self, status: str, event: Event) -> FreedStick:
        """Return the result of a release or pass: the member it is reserved for, and whether it is parked."""
        freed = body_as(event, Freed)
        room, whom = freed.room, freed.reserved_for
        return FreedStick(
            status=status,
            room_id=room,
            turn_id=freed.turn_id,
            reserved_for=whom or None,
            claim_expires_at=freed.until or None,
            routed_to_parked=bool(whom) and self.member_presence.is_parked(room, whom),
            event_seq=event.seq,
        )

    async def _events_for(self, caller: Caller, room: Room, after: int, *, limit: int) -> list[Event]:
        """Return the events for the caller after a seq, without its own and without claims of ended turns."""
        wanted = event_filter(caller=caller.name, target=SELF)
        return await self.waits.stored(
            room,
            lambda event: (
                passes(wanted, event) and event.sender != caller.name and not _is_old_claim(event, room)
            ),
            after,
            limit,
        )


def _is_old_claim(event: Event, room: Room) -> bool:
    """Return whether an event reports an owner that has been replaced since, so that it is not news."""
    return isinstance(event.body, Granted) and event.body.turn_id != room.turn


# --------------------
# Room tools for messages, events and notes. Recipients do not limit readers: a reader of a room sees all.


class TalkTools(RoomToolBase):
    """The tools for messages, events and notes."""

    async def send_message(
        self,
        caller: Caller,
        *,
        room_id: str,
        body: str,
        to_agent_id: str | Sequence[str] | None = None,
        delivery_hint: str = "normal",
        key: bytes | None = None,
    ) -> RoomSent:
        """Send to members or the whole room. Returns `event_seq event_id created_at delivered_to`."""
        # For `Send` an empty room means no room, so the message would leave the room's conversation.
        if not room_id:
            raise BadRequest("room_id is empty: name a room; nothing was sent")
        to = () if to_agent_id is None else (to_agent_id,) if isinstance(to_agent_id, str) else to_agent_id
        if to_agent_id is not None and not to:
            raise BadRequest("to_agent_id is empty: leave it out to send to the whole room")
        request = Send(text=body, room=room_id, to=tuple(to), delivery_hint=delivery_hint)
        sent = await self.submit(caller, request, key)
        assert isinstance(sent, Sent)
        assert sent.event is not None  # not a dry run
        return RoomSent(
            event_seq=sent.event.seq,
            event_id=sent.event.id,
            created_at=sent.event.ts,
            delivered_to=sent.delivered_to,
        )

    async def wait_for_events(
        self,
        caller: Caller,
        *,
        room_id: str,
        after_event_seq: int | None = None,
        event_type: str | Sequence[str] | None = None,
        target_agent_id: str = "self",
        from_agent_id: str | None = None,
        max_wait_ms: int | None = None,
        since_event_seq: int | None = None,
        limit: int = 100,
        limit_ms: int | None = LIMIT_WAIT_MS,
    ) -> EventPage:
        """Return the events after a seq, or wait for the first one: `events cursor_event_seq`.

        Waiting changes neither the room nor the order of the waiting members. Without `after_event_seq` the
        result starts at the oldest message of the room that the caller has not read, or else with the next
        event. A given `after_event_seq` marks the caller's messages up to it as read, as far as any earlier
        call has shown them.

        `since_event_seq` is for a call that is repeated because the daemon restarted: the last seq at its
        first start. Events stored since then count as new.
        """
        self.member_presence.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        for name, word in (("target_agent_id", target_agent_id), ("from_agent_id", from_agent_id)):
            if word == "":
                raise BadRequest(f"{name} is empty: name an agent, or leave it out")
        wanted = event_filter(
            caller=None if caller.kind == EXTERNAL else caller.name,
            target=target_agent_id if target_agent_id in (SELF, ANY) else self._named(room, target_agent_id),
            event_type=event_type,
            sender=None if from_agent_id is None else self._named(room, from_agent_id),
        )
        after = self.start_after(caller, room, after_event_seq, since_event_seq)
        if after_event_seq is not None:
            await self.waits.acknowledge(caller, room, after)
        wait_ms = self.wait_ms(max_wait_ms, limit_ms)
        found = await self.waits.events(room, wanted, after, _page(limit), wait_ms)
        return self.page_of(caller, room, found, after)

    async def get_room_events(
        self, caller: Caller, *, room_id: str, after_event_seq: int = 0, limit: int = 100
    ) -> EventPage:
        """Return all events of a room after a seq, including archived ones: `events cursor_event_seq`."""
        self.member_presence.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        found = await self.waits.stored(room, lambda event: True, after_event_seq, _page(limit))
        return self.page_of(caller, room, found, after_event_seq)

    async def add_note(
        self,
        caller: Caller,
        *,
        room_id: str,
        body: str,
        turn_id: int | None = None,
        key: bytes | None = None,
    ) -> NoteView:
        """Store a note and return it."""
        event = await self.written(caller, AddNote(room=room_id, text=body, turn=turn_id), key)
        added = body_as(event, NoteAdded)
        return self._note(added.room, added.note)

    async def list_notes(
        self,
        caller: Caller,
        *,
        room_id: str,
        after_note_id: str | None = None,
        include_resolved: bool = False,
        limit: int = 50,
    ) -> NoteList:
        """Return `notes`, oldest first."""
        self.member_presence.saw(caller.name)
        room = find_room(self.log.rows, room_id)
        after = "" if after_note_id is None else after_note_id
        notes = read_notes(
            self.log.rows, room.id, after=after, include_resolved=include_resolved, limit=limit
        )
        return NoteList(room_id=room.id, notes=tuple(map(note_view, notes)))

    async def resolve_note(
        self, caller: Caller, *, room_id: str, note_id: str, key: bytes | None = None
    ) -> NoteView:
        """Mark a note as resolved and return it."""
        room = find_room(self.log.rows, room_id)
        await self.submit(caller, ResolveNote(room=room.id, note=note_id), key)
        return self._note(room.id, note_id)

    def _named(self, room: Room, word: str) -> str:
        """Return the name of the member that `word` selects; `word` itself if it may be a former member."""
        try:
            return find_member(room, word, self.member_presence.is_present).name
        except UnknownMember:
            # Events of a former member are still in the room, so a filter may name it.
            return word

    def _note(self, room: str, id: str) -> NoteView:
        return note_view(find_note(self.log.rows, room, id))


def _page(limit: int) -> int:
    return max(1, min(limit, LIMIT_EVENTS))


# --------------------
# The one implementation of rooms, the stick and notes for every door.
#
# Parameters and results are those of the room tools; a refused request raises an error. A door may change the
# wire format but never the meaning. Paths must be absolute; the door completes relative ones.


class RoomService(RoomTools, StickTools, TalkTools):
    """All room tools. Rooms are stored in the log; waiting callers are in the presence book."""

    async def list_agents(self, caller: Caller) -> AgentList:
        """Return `agents`, present ones first."""
        self.member_presence.saw(caller.name)
        return AgentList(agents=tuple(await self.show_agents()))

    async def inbox(self, caller: Caller, *, limit: int = 50) -> InboxPage:
        """Return `messages`: the newest for the caller, each with its `state`. None is marked as read.

        To mark a message as read, the caller passes a cursor at or after it to `wait_for_events`.
        """
        if caller.kind == EXTERNAL:
            raise WhoAreYou("you have no mailbox: join first with 'pal join'")
        self.member_presence.saw(caller.name)
        messages = await self.show_inbox(caller.name, max(1, min(limit, LIMIT_EVENTS)))
        # Only these count as shown: a cursor must not acknowledge a text that the caller could not read.
        seqs = (message.seq for message in messages)
        self.member_presence.shown.add(
            caller.name, INBOX, (seq for seq in seqs if self._is_open(caller.name, seq))
        )
        return InboxPage(messages=tuple(messages))

    def _is_open(self, name: str, seq: int) -> bool:
        """Return whether a message is unread and the inbox shows its text."""
        found = find_mail(self.log.rows, name, seq)
        return found is not None and not found[1].is_kept_back and not found[1].raw
