"""What the room tools are made of: the parts they share, and how a request is put to the broker.

Knows no tool. The tools are in `desk_rooms.py`, `desk_stick.py` and `desk_talk.py`; `desk.py` is all of them.
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
"""How long a harness lets one tool call wait; a door whose caller can wait longer gives its own limit."""
LIMIT_EVENTS: Final = 500
_SHOWN: Final = 1024
"""Events that are kept as they are shown: many wait for the same one."""


class Tools:
    """What every room tool works with."""

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
        """`agents` and `inbox` show everybody, and the newest mail of a name."""
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
        """Wake nobody any more."""
        self._bell.close()

    async def submit(self, caller: Caller, request: Request, key: bytes | None) -> object:
        """Put a request to the broker; who asks is at work."""
        self.attendance.saw(caller.name)
        return await self.broker.submit(caller, request, key=key)

    async def written(self, caller: Caller, request: Request, key: bytes | None) -> Event:
        """Have a request written that is refused or written, and give its event."""
        written = await self.submit(caller, request, key)
        assert isinstance(written, Written)
        assert written.event is not None  # else it would have been refused
        return written.event

    def facts(self, room: Room) -> Facts:
        """Look at everybody in a room."""
        return take_facts(self.attendance, self.clock.now_ms(), room.id, room.names)

    def outcome(self, status: str, id: str) -> Answer:
        """Give what became of a room."""
        room = find_room(self.log.rows, id)
        return {
            "status": status,
            "room_id": room.id,
            "room_state": room.state,
            "remaining_members": len(room.members),
        }

    def wait_ms(self, asked_ms: int | None, limit_ms: int | None) -> int | None:
        """Give how long to wait: as long as was asked, within what a caller can wait; None for ever."""
        if limit_ms is None:
            return None if asked_ms is None else max(0, asked_ms)
        longest = min(limit_ms, self.policy.long_poll_ms)
        return longest if asked_ms is None else max(0, min(asked_ms, longest))

    def page_of(self, caller: Caller, room: Room, events: Sequence[Event], after: int) -> Answer:
        """Give events as the tools show them, with the place of the last one to go on behind.

        What of it is mail of the caller is remembered as handed to it.
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
