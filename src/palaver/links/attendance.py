"""Who is heard of in rooms: who waits, who beats, who did something last. Kept in memory, and nowhere else.

What the log knows is asked of it: since when somebody is gone, or says that it is idle. The rest begins anew
with each start of the daemon, which is why the start itself counts as having heard of everybody.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from palaver.clock import Clock
from palaver.log.api import Log
from palaver.log.state import read_agent
from palaver.model.concern import JOINED, LEFT, from_agent
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event

_NO_SIGN: Final = frozenset({"delivery", "life", "agent.bye", LEFT})
"""What is written about an agent, and not by it; or is its last word."""
_AT_REST: Final = frozenset({AgentState.IDLE.value, AgentState.EXITED.value})


@dataclass(slots=True)
class _Wait:
    """How somebody waits, or waited, in one room."""

    last_ms: int
    is_parked: bool = False
    count: int = 0
    """So many of its calls wait now."""


class AttendanceBook:
    """Keeps attendance for one daemon. Belongs to the loop's thread."""

    def __init__(self, log: Log, *, clock: Clock, is_present: Callable[[str], bool]) -> None:
        self._log = log
        self._clock = clock
        self._is_present = is_present
        self._started_ms = clock.now_ms()
        self._seen: dict[str, int] = {}
        self._beats: dict[tuple[str, str], int] = {}
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._told: dict[tuple[str, str], int] = {}
        self.changed: Callable[[str], None] = lambda room: None
        """Told the room in which somebody waits no longer: another one's turn may have come."""
        self._unsubscribe = log.subscribe(self._hear)

    def close(self) -> None:
        """Hear of nothing more."""
        self._unsubscribe()

    # What happens

    def saw(self, name: str) -> None:
        """Somebody did something: asked, read, wrote."""
        self._seen[name] = self._clock.now_ms()

    def beat(self, room: str, name: str) -> None:
        """A holder said, with its lease, that it still works."""
        self._beats[room, name] = self._clock.now_ms()

    @contextmanager
    def waiting(self, room: str, name: str, *, is_parked: bool = False) -> Iterator[None]:
        """Somebody waits for its turn for as long as the block runs; the newest call says how."""
        wait = self._touch(room, name)
        wait.is_parked = is_parked
        wait.count += 1
        try:
            yield
        finally:
            wait.count -= 1
            wait.last_ms = self._clock.now_ms()
            self.changed(room)

    def is_news(self, room: str, name: str, place: int) -> bool:
        """Tell somebody of a hand-over in a room: True the first time, False when it was told of this one."""
        is_known = self._told.get((room, name)) == place
        self._told[room, name] = place
        return not is_known

    def forget(self, room: str, name: str) -> None:
        """Somebody is no member any more: nothing of it counts, also what waits still."""
        for table in (self._waits, self._beats, self._told):
            table.pop((room, name), None)

    # What is known

    @property
    def started_ms(self) -> int:
        """When this daemon started."""
        return self._started_ms

    def is_present(self, name: str) -> bool:
        """Its process is alive, or it has a link."""
        return self._is_present(name)

    def gone_since_ms(self, name: str) -> int | None:
        """Since when it is surely gone; None while it is there, and for those of whom nobody can know."""
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.left or self._is_present(name):
            return None
        return agent.since

    def seen_ms(self, name: str) -> int | None:
        """When it last did something."""
        return self._seen.get(name)

    def idle_since_ms(self, name: str) -> int | None:
        """Since when it says that it is idle; None for one that has never said what it does."""
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.ready or agent.state != AgentState.IDLE:
            return None
        return agent.since

    def beat_ms(self, room: str, name: str) -> int | None:
        """When it last beat."""
        return self._beats.get((room, name))

    def last_wait_ms(self, room: str, name: str) -> int | None:
        """When it last waited, or joined; while it waits that is now."""
        wait = self._waits.get((room, name))
        if wait is None:
            return None
        return self._clock.now_ms() if wait.count else wait.last_ms

    def is_waiting(self, room: str, name: str) -> bool:
        """It waits now."""
        wait = self._waits.get((room, name))
        return wait is not None and wait.count > 0

    def is_parked(self, room: str, name: str) -> bool:
        """It waited only for what is reserved for it, the last time."""
        wait = self._waits.get((room, name))
        return wait is not None and wait.is_parked

    def waiters(self, room: str) -> list[str]:
        """Give those who wait in a room now."""
        return [name for (where, name), wait in self._waits.items() if where == room and wait.count]

    def _touch(self, room: str, name: str) -> _Wait:
        now = self._clock.now_ms()
        wait = self._waits.setdefault((room, name), _Wait(now))
        wait.last_ms = now
        return wait

    def _hear(self, events: Sequence[Event]) -> None:
        """What an agent writes is a sign of it, but for what says that it rests."""
        for event in events:
            if event.type == "status":
                if event.payload.get("state") not in _AT_REST:
                    self.saw(event.sender)
            elif event.type not in _NO_SIGN:
                self.saw(event.sender)
            room = event.payload.get("room")
            if not isinstance(room, str):
                continue
            if event.type == JOINED:
                self._touch(room, event.sender)
            elif event.type == LEFT:
                self.forget(room, from_agent(event) or event.sender)
            elif event.type == "kick":
                for name in event.to:
                    self.forget(room, name)
            elif event.type == "close":
                for where, name in [*self._waits, *self._beats, *self._told]:
                    if where == room:
                        self.forget(room, name)
