"""Actions that are due at a time: leases of the stick that end, notices about the stick, and reminders."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from palaver.clock import CallLater, Clock, Timer
from palaver.domain.stick import (
    MemberPresence,
    Policy,
    gone_at_ms,
    reservation_until_ms,
    retires_at_ms,
    take_facts,
)
from palaver.errors import PalaverError, Unavailable
from palaver.log.api import EventKind, Log
from palaver.log.follow import HandlerSwitch, news_of
from palaver.protocol.envelope import Event, body_as, from_agent, room_id_of
from palaver.protocol.events import (
    BYE,
    KICK,
    PASS,
    RELEASE,
    RESERVATION_EXPIRED,
    ROOM_TYPES,
    SEAT_TYPES,
    TAKEOVER,
    AgentState,
    Freed,
    Kicked,
    Passed,
    TakenOver,
)
from palaver.protocol.query import Query
from palaver.protocol.requests import (
    ExpireReservation,
    FireReminder,
    HandOn,
    Notify,
    RetireMember,
    Submit,
    TellKick,
)
from palaver.protocol.subscriptions import DELIVERY, STATUS
from palaver.state.fold import agent_of
from palaver.state.rooms import Room, StickState, read_open_rooms, read_room, read_rooms_of
from palaver.state.watches import due_reminders, has_reminders, read_reminder, read_reminder_due

# --------------------
# Notices about the stick for agents that do not wait for it. Pure: events in, requests out.
#
# An agent that waits for its turn gets the stick there. Others are active or idle and would not notice.

RESERVING: Final = (PASS, RELEASE, RESERVATION_EXPIRED)
"""Events that reserve the stick for a member, or for none."""


def stick_notice(event: Event, is_waiting: Callable[[str], bool]) -> Notify | None:
    """Return the notice of a room event for the affected agent; None if it waits or no agent is affected."""
    body = event.body
    if isinstance(body, Freed):
        room, whom = body.room, body.reserved_for
        if not whom or is_waiting(whom):
            return None
        how = "passes you" if isinstance(body, Passed) else "has released"
        giver = from_agent(event) or "the bus"
        text = (
            f"{giver} {how} the stick of #{room}, and it is reserved for you: take it with "
            f"'pal stick claim --room {room}' or wait_for_turn; the handoff is included"
        )
        return _notify(event, whom, text)
    if isinstance(body, TakenOver) and event.to:
        text = (
            f"{event.sender} has taken over the stick of #{body.room} from you "
            f"({body.reason or body.cause}): stop changing files there"
        )
        return _notify(event, event.to[0], text)
    if isinstance(body, Kicked) and event.to:
        why = f": {body.reason}" if body.reason else ""
        text = f"{event.sender} has removed you from #{body.room}{why}"
        return _notify(event, event.to[0], text)
    return None


def _notify(event: Event, whom: str, text: str) -> Notify:
    return Notify(to=whom, text=text, cause=event.id, kind="stick")


# --------------------
# The reactor for time in rooms: it passes sticks on, ends reservations, and retires members that are long
# offline.
#
# An agent that gets the stick without waiting for it, or loses it, is notified; a kick is reported to all
# listeners for leave events. Each notice is written once, also if the daemon ended before it was written.
#
# It decides nothing: when something may be due it submits a request, and the broker checks again. A room
# has a timer only while time alone can change it; other rooms cost nothing.

_logger: Final = logging.getLogger("palaver.watches")

_TRY_AGAIN_MS: Final = 1000
"""Delay before a retry when the broker could not do what was due."""
_LONGEST_S: Final = 24 * 3600.0
"""Longest timer of a room. When it rings and nothing is due, the next one is set."""
_LOOK_BACK: Final = 100
"""Number of newest events per type that are checked after a start; unwritten notices are among them."""

Due = HandOn | ExpireReservation | RetireMember
NoticeRequest = Notify | TellKick


class Sticks:
    """Watches the open rooms. Belongs to the loop's thread."""

    def __init__(
        self,
        log: Log,
        submit: Submit,
        member_presence: MemberPresence,
        *,
        clock: Clock,
        policy: Policy,
        call_later: CallLater,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Create the reactor. Its requests run in `tasks`, whose owner waits for them."""
        self._log = log
        self._submit = submit
        self._member_presence = member_presence
        self._clock = clock
        self._policy = policy
        self._call_later = call_later
        self._tasks = tasks
        self._timers: dict[str, Timer] = {}
        self._busy: set[str] = set()
        self._unsaid: list[NoticeRequest] = []
        self._again: Timer | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start: check every open room once, then rooms with new events.

        Notices that the last daemon may not have written are submitted again; a repeat is one event.
        """
        self._unsubscribe = self._log.subscribe(self._hear, ROOM_TYPES | SEAT_TYPES)
        for room in read_open_rooms(self._log.rows):
            self._look(room)
        # No await since the subscription, so no event between the two is missed.
        self._tasks.create_task(self._catch_up(self._log.last() + 1))

    def close(self) -> None:
        """Stop. Actions that fall due meanwhile are done after the next start. Closing twice is harmless."""
        self._unsubscribe()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._again is not None:
            self._again.cancel()

    def look_at(self, name: str) -> None:
        """Check the rooms of an agent whose presence has changed."""
        for room in read_rooms_of(self._log.rows, name):
            self._look(room)

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type in ROOM_TYPES and (about := room_id_of(event)) is not None:
                self._tell(event, about)
        # Each room once: a batch can have many events of the same room.
        for id in dict.fromkeys(id for event in events for id in self._touched(event)):
            if (room := read_room(self._log.rows, id)) is not None:
                self._look(room)

    async def _catch_up(self, before: int) -> None:
        """Submit again the notices of events before a seq that may still matter."""
        # Events from `before` on were heard by the subscription. Each type separately, because a query for
        # one type is found by its index.
        for type in (*RESERVING, TAKEOVER, KICK):
            for event in await self._log.read(Query(types=(type,), before=before, last=_LOOK_BACK)):
                room = read_room(self._log.rows, room_id_of(event) or "")
                # An old reservation is over, and its notice would be wrong now.
                if room is not None and (type not in RESERVING or _is_reserved_by(room, event)):
                    self._tell(event, room.id)

    def _tell(self, event: Event, room: str) -> None:
        requests: list[NoticeRequest | None] = [
            stick_notice(event, lambda name: self._member_presence.is_waiting(room, name)),
            *(TellKick(room=room, member=name, kick=event.id) for name in event.to if event.type == KICK),
        ]
        for one in requests:
            if one is not None:
                self._tasks.create_task(self._say(one))

    async def _say(self, request: NoticeRequest) -> None:
        """Submit a notice; retry later if it cannot be written now."""
        try:
            await self._submit(request)
        except Unavailable as error:
            _logger.warning("not notified: %s: %s", error.code, error)
            self._unsaid.append(request)
            # One timer for all of them: a full disk refuses every notice at the same time.
            if self._again is None:
                self._again = self._call_later(_TRY_AGAIN_MS / 1000, self._say_again)

    def _say_again(self) -> None:
        # Exchanged first: a notice that fails again sets the next timer.
        unsaid, self._unsaid, self._again = self._unsaid, [], None
        for request in unsaid:
            self._tasks.create_task(self._say(request))

    def _touched(self, event: Event) -> Iterator[str]:
        """Yield the rooms in which an event can change the due actions."""
        if event.type in ROOM_TYPES and (room := room_id_of(event)) is not None:
            yield room
        elif event.type in SEAT_TYPES:
            yield from (room.id for room in read_rooms_of(self._log.rows, agent_of(event)))

    def _look(self, room: Room, *, at_least_ms: int = 0) -> None:
        """Set the timer of a room to its next due action, or remove it."""
        if (timer := self._timers.pop(room.id, None)) is not None:
            timer.cancel()
        times_ms = [at_ms for at_ms, _ in self._due(room)]
        # While `_act` runs it sets the next timer itself: another one would submit the same requests.
        if times_ms and room.id not in self._busy:
            wait_ms = max(min(times_ms) - self._clock.now_ms(), at_least_ms, 0)
            wait_s = min(wait_ms / 1000, _LONGEST_S)
            self._timers[room.id] = self._call_later(wait_s, lambda: self._ring(room.id))

    def _ring(self, id: str) -> None:
        self._timers.pop(id, None)
        self._busy.add(id)
        self._tasks.create_task(self._act(id))

    async def _act(self, id: str) -> None:
        """Submit every due action of a room. Failed ones are retried later."""
        try:
            room = read_room(self._log.rows, id)
            now_ms = self._clock.now_ms()
            for request in [] if room is None else [one for at, one in self._due(room) if at <= now_ms]:
                await self._submit(request)
        # Not raised: the action is still due, so it is submitted again below.
        except PalaverError as error:
            _logger.warning("action in the room %s failed: %s: %s", id, error.code, error)
        finally:
            self._busy.discard(id)
        # If something is still due, the broker could not do it: without a delay this would run in a loop.
        if (room := read_room(self._log.rows, id)) is not None:
            self._look(room, at_least_ms=_TRY_AGAIN_MS if self._is_overdue(room) else 0)

    def _is_overdue(self, room: Room) -> bool:
        return any(at_ms <= self._clock.now_ms() for at_ms, _ in self._due(room))

    def _due(self, room: Room) -> Iterator[tuple[int, Due]]:
        """Yield the actions that time alone will cause in a room, each with its due time."""
        if not room.is_open:
            return
        facts = take_facts(self._member_presence, self._clock.now_ms(), room.id, room.names)
        if room.state == StickState.OWNED:
            gone = gone_at_ms(room, room.owner, facts, self._policy)
            if gone is not None:
                yield gone, HandOn(room=room.id, turn=room.turn)
        elif room.state == StickState.RESERVED:
            yield (
                reservation_until_ms(room, facts, self._policy),
                ExpireReservation(room=room.id, turn=room.turn),
            )
        for name in room.names:
            if (at_ms := retires_at_ms(room, name, facts, self._policy)) is not None:
                yield at_ms, RetireMember(room=room.id, member=name)


def _is_reserved_by(room: Room, event: Event) -> bool:
    """Whether the stick of a room is still reserved as an event reserved it."""
    freed = body_as(event, Freed)
    is_turn = room.state == StickState.RESERVED and freed.turn_id == room.turn
    return is_turn and freed.reserved_for == room.reserved_for


# --------------------
# The reactor that writes due reminders. The fold decides which are due; the reactor keeps no state.
#
# At the start all due reminders are written, later those that become due with a status, a leave or a
# delivery. A minimum time passes between two reminders of the same message, and before the first one to an
# agent that was idle when it saw the message; the agent must be idle at the end of that time. The id of a
# reminder is derived from its cause, so a repeat is one event.


class Reminders:
    """The reminders of all local agents.

    After an event of an agent it checks the agent's rows and writes due reminders.
    """

    def __init__(
        self,
        log: Log,
        submit: Submit,
        *,
        clock: Clock,
        after_s: float,
        call_later: CallLater,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Create the reactor.

        `after_s` is the minimum time between two reminders. The owner of `tasks` waits for its work.
        """
        self._log = log
        self._submit = submit
        self._clock = clock
        self._after_ms = round(after_s * 1000)
        self._call_later = call_later
        self._tasks = tasks
        self._timers: dict[tuple[str, int], Timer] = {}
        self._agents: set[str] = set()
        self._news = asyncio.Event()
        self._agent_events = HandlerSwitch(log, self._hear_agents, (STATUS, BYE, DELIVERY))
        """On while an agent owes a reply: only then a reminder can become due."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._work: asyncio.Task[None] | None = None

    def set_after(self, after_s: float) -> None:
        """Change the minimum time between two reminders, from the next one on."""
        self._after_ms = round(after_s * 1000)

    def start(self) -> None:
        """Start with the reminders that are already due."""
        # A request turns the other handler on, so this one must always be on.
        self._unsubscribe = self._log.subscribe(self._hear_request, (EventKind.EXPECTS_REPLY,))
        self._agent_events.turn(is_on=has_reminders(self._log.rows))
        self._agents = {agent for agent, _ in due_reminders(self._log.rows)}
        self._news.set()
        self._work = self._tasks.create_task(self._run())

    def close(self) -> None:
        """Stop. Unwritten reminders are written after the next start. Closing twice is harmless."""
        self._unsubscribe()
        self._agent_events.turn(is_on=False)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._work is not None:
            self._work.cancel()

    def _hear_request(self, events: Sequence[Event]) -> None:
        self._agent_events.turn(is_on=True)
        for event in events:
            self._look_at(event.delivered_to)

    def _hear_agents(self, events: Sequence[Event]) -> None:
        self._look_at(map(agent_of, events))

    def _look_at(self, agents: Iterable[str]) -> None:
        self._agents.update(agents)
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._agent_events.turn(is_on=has_reminders(self._log.rows))
            # Exchanged, not cleared: events at an await below add to the new set.
            agents, self._agents = self._agents, set()
            for agent in agents:
                # For each agent that an event was about, not for all: the cost must not grow with their
                # number.
                for name, seq in due_reminders(self._log.rows, agent):
                    if (wait_ms := self._wait_ms(name, seq)) > 0:
                        self._wait(name, seq, wait_ms)
                    else:
                        await self._tell(FireReminder(agent=name, request=seq))

    def _wait_ms(self, agent: str, seq: int) -> int:
        """Return how long a reminder must still wait.

        The sender of a request to a stopped agent is notified at once.
        """
        reminder, due = (
            read_reminder(self._log.rows, agent, seq),
            read_reminder_due(self._log.rows, agent, seq),
        )
        if reminder is None or due is None or due.state != AgentState.IDLE:
            return 0
        last = self._log.event(reminder.last) if reminder.last else None
        since = max(due.since, 0 if last is None else last.ts)
        return since + self._after_ms - self._clock.now_ms()

    def _wait(self, agent: str, seq: int, wait_ms: int) -> None:
        if (agent, seq) not in self._timers:
            # At most the minimum time, also if the wall clock was set back: the times in the log are of that
            # clock.
            wait_s = min(wait_ms, self._after_ms) / 1000
            self._timers[agent, seq] = self._call_later(wait_s, lambda: self._look_again(agent, seq))

    def _look_again(self, agent: str, seq: int) -> None:
        # Removed first: `_wait` sets no timer for a reminder that has one.
        del self._timers[agent, seq]
        self._look_at([agent])

    async def _tell(self, request: FireReminder) -> None:
        """Submit one request. If the log is full, check again after the next event, or after a second."""
        # Before the submit: an event that is stored right after the failure shows that there is room again.
        with news_of(self._log) as news:
            try:
                await self._submit(request)
            except Unavailable:
                # By time too, because there may be room again without another event.
                timer = self._call_later(_TRY_AGAIN_MS / 1000, news.set)
                try:
                    await news.wait()
                finally:
                    timer.cancel()
                self._look_at([request.agent])
            except PalaverError as error:
                _logger.warning("skipped a reminder of #%d to %s: %s", request.request, request.agent, error)
