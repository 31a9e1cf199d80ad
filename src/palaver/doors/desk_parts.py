"""The base of the room tools: their shared parts, and the call of the broker.

Contains no tool. The tools are in `desk_rooms.py`, `desk_stick.py` and `desk_talk.py`; `desk.py` combines
them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from palaver.broker.broker import Broker
from palaver.broker.outcome import Written
from palaver.clock import Clock
from palaver.doors.bell import Bell, CallLater
from palaver.doors.desk_views import FindAgent
from palaver.doors.desk_waits import Waits
from palaver.links.attendance import AttendanceBook
from palaver.links.places import Places
from palaver.log.api import Log
from palaver.log.fold_rooms import find_room, read_rooms_of
from palaver.model.agent import Caller
from palaver.model.envelope import Event
from palaver.model.mail import deliverable
from palaver.model.message import EXTERNAL, MESSAGE
from palaver.model.request import Request
from palaver.rooms.attendance import Facts, take_facts
from palaver.rooms.events import room_event
from palaver.rooms.policy import Policy
from palaver.rooms.room import Room

Answer = dict[str, object]

LIMIT_WAIT_MS: Final = 110_000
"""Longest wait of one tool call, in milliseconds. A door whose caller can wait longer overrides it."""
LIMIT_EVENTS: Final = 500
_SHOWN: Final = 1024
"""Rendered events kept in a cache, because many callers wait for the same event. The oldest is dropped."""


class Tools:
    """The state and the helper methods that every room tool uses."""

    def __init__(
        self,
        *,
        log: Log,
        broker: Broker,
        clock: Clock,
        attendance: AttendanceBook,
        places: Places,
        policy: Policy,
        agents: Callable[[], Awaitable[list[Answer]]],
        inbox: Callable[[str, int], Awaitable[list[Answer]]],
        call_later: CallLater | None = None,
    ) -> None:
        """`agents` returns the views of all agents; `inbox` returns the newest messages for a name."""
        self.log = log
        self.broker = broker
        self.clock = clock
        self.attendance = attendance
        self.places = places
        self.policy = policy
        self.show_agents = agents
        self.show_inbox = inbox
        self.find: FindAgent = broker.directory.get
        self._bell = Bell(log, lambda name: [room.id for room in read_rooms_of(log.rows, name)], call_later)
        self.waits = Waits(log=log, broker=broker, clock=clock, attendance=attendance, bell=self._bell)
        self._shown: dict[int, Answer] = {}
        attendance.changed = self._bell.ring

    def close(self) -> None:
        """Stop waking waiting callers."""
        self._bell.close()

    async def submit(self, caller: Caller, request: Request, key: bytes | None) -> object:
        """Submit a request to the broker, and record that the caller is active."""
        self.attendance.saw(caller.name)
        return await self.broker.submit(caller, request, key=key)

    async def written(self, caller: Caller, request: Request, key: bytes | None) -> Event:
        """Submit a request that is either refused or stored, and return its event."""
        written = await self.submit(caller, request, key)
        assert isinstance(written, Written)
        assert written.event is not None  # a request without an event is refused
        return written.event

    def facts(self, room: Room) -> Facts:
        """Return presence and waits of all members of a room, as of now."""
        return take_facts(self.attendance, self.clock.now_ms(), room.id, room.names)

    def outcome(self, status: str, id: str) -> Answer:
        """Return a status together with the current state of a room."""
        room = find_room(self.log.rows, id)
        return {
            "status": status,
            "room_id": room.id,
            "room_state": room.state,
            "remaining_members": len(room.members),
        }

    def wait_ms(self, asked_ms: int | None, limit_ms: int | None) -> int | None:
        """Return how long to wait, within the limits of the caller and the policy; None is indefinitely."""
        if limit_ms is None:
            return None if asked_ms is None else max(0, asked_ms)
        longest = min(limit_ms, self.policy.long_poll_ms)
        return longest if asked_ms is None else max(0, min(asked_ms, longest))

    def page_of(self, caller: Caller, room: Room, events: Sequence[Event], after: int) -> Answer:
        """Return rendered events, and the seq of the last one as the cursor to continue after.

        Messages to the caller among them are recorded as shown to it.
        """
        mail = (event.seq for event in events if _is_mail_of(caller, event))
        self.attendance.shown.add(caller.name, room.id, mail)
        return {
            "events": [self._show(event) for event in events],
            "cursor_event_seq": events[-1].seq if events else after,
        }

    def _show(self, event: Event) -> Answer:
        shown = self._shown.get(event.seq)
        if shown is None:
            if len(self._shown) >= _SHOWN:
                del self._shown[next(iter(self._shown))]
            shown = self._shown[event.seq] = room_event(event)
        return shown


def _is_mail_of(caller: Caller, event: Event) -> bool:
    is_own = event.type == MESSAGE and caller.kind != EXTERNAL
    return is_own and caller.name in deliverable(event).delivered_to
