"""Wake callers that wait for a change in a room. A signal says that something may have changed, never what.

One subscription to the log serves all waiting callers. An event of a room signals that room. An event about
an agent signals every room of which the agent is a member. No caller polls.

A separate module from `rooms.py`, because only waiting needs signals, timers and the order of callers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from palaver.broker.broker import Broker
from palaver.broker.context import Turn
from palaver.clock import CallLater, Clock
from palaver.domain.lease import Cause
from palaver.errors import DuplicateWait
from palaver.identity.presence import INBOX, AttendanceBook
from palaver.log.api import EventKind, Log
from palaver.log.follow import follow
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event, room_id_of
from palaver.protocol.events import AGENT_TYPES, Grade
from palaver.protocol.message import EXTERNAL
from palaver.protocol.query import EventFilter, Passes, Query, passes
from palaver.protocol.requests import Acknowledge, Claim
from palaver.state.agents import read_mail, read_mail_up_to
from palaver.state.fold import agent_of
from palaver.state.rooms import Room
from palaver.state.rows import OpenMessage


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
_PARKED: Final = "auto_claim_disabled"


HasNews = Callable[[Turn], Awaitable[bool]]
"""Whether there is an event that ends a wait for the stick, although it is not the caller's turn."""


async def _no_news(turn: Turn) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class _OpenWait:
    """A wait for the stick, with its request key. Compared by identity."""

    key: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The waits of all callers. Attendance records which callers wait."""

    log: Log
    broker: Broker
    clock: Clock
    attendance: AttendanceBook
    bell: RoomNotifier
    open: dict[tuple[str, str], "_OpenWait"] = field(default_factory=dict)
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
        with (
            self._only_wait(caller, room, key) if limit_ms != 0 else nullcontext(),
            self.attendance.waiting(room.id, caller.name, is_parked=request.is_parked),
            self.bell.listening(room.id) as listener,
        ):
            while True:
                listener.look()
                turn = await self._ask(caller, request, key)
                turn, is_news = self._said_once(caller, turn)
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
            if self.open[who] is own:
                del self.open[who]

    async def _ask(self, caller: Caller, request: Claim, key: bytes | None) -> Turn:
        turn = await self.broker.submit(caller, request, key=key)
        assert isinstance(turn, Turn)
        return turn

    def _said_once(self, caller: Caller, turn: Turn) -> tuple[Turn, bool]:
        """Report a pending handoff to a parked member once. Return the turn, and whether it is news."""
        if turn.reason != _PARKED or turn.room.pending is None:
            return turn, False
        if self.attendance.is_news(turn.room.id, caller.name, turn.room.pending.seq):
            return turn, True
        return replace(turn, reason="", hint=""), False

    async def events(
        self, room: Room, wanted: EventFilter, after: int, limit: int, limit_ms: int | None
    ) -> list[Event]:
        """Return the events after a seq that pass the filter, or wait for the first; empty on timeout."""
        seq, end_s = after, self._end(limit_ms)
        with self.bell.listening(room.id) as listener:
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
        last = self.log.last()
        query = Query(rooms=(room.id,), before=last + 1)
        found: list[Event] = []
        async with aclosing(follow(self.log, query, after=seq, with_archives=True)) as batches:
            async for events in batches:
                found += filter(is_wanted, events)
                if len(found) >= limit:
                    break
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
        shown, ways = self.attendance.shown, (room.id, INBOX)
        seqs = [
            mail.seq
            for mail in read_mail_up_to(self.log.rows, caller.name, up_to)
            if not mail.is_kept_back and any(shown.has(caller.name, way, mail.seq) for way in ways)
        ]
        if seqs:
            request = Acknowledge(messages=tuple(sorted(seqs)), lane=LANE, grade=Grade.ACKED)
            await self.broker.submit(caller, request)
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
    if turn.status in _ENDS or turn.reason in _SETTLED:
        return True
    return turn.status == "takeover_available" and turn.reason != Cause.OWNER_IDLE


def _sooner(left_ms: int | None, look_again_ms: int | None) -> int | None:
    if look_again_ms is None:
        return left_ms
    again_ms = max(look_again_ms, _SHORTEST_MS)
    return again_ms if left_ms is None else min(left_ms, again_ms)
