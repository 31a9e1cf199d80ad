"""Who is heard of in rooms: who waits, who beats, who did something last. Kept in memory, and nowhere else.

What the log knows is asked of it: since when somebody is gone, what it wrote since then, or says that it is
idle or at work. The rest begins anew with each start of the daemon, which is why the start itself counts as
having heard of everybody whose process is there.

Of one that speaks by a token no process is seen. It is present while a call of it is open and for the grace
of a waiter behind that, and alive for a lease behind its last word.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from palaver.clock import Clock
from palaver.errors import RequestError
from palaver.links.shown import Shown
from palaver.log.api import Log
from palaver.log.fold import agent_of
from palaver.log.fold_rooms import read_open_rooms
from palaver.log.state import read_agent, read_agents
from palaver.model.concern import JOINED, LEFT, from_agent
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.query import Query
from palaver.rooms.policy import Policy

_NO_SIGN: Final = frozenset({"delivery", "life", BYE, LEFT})
"""What is written about an agent, and not by it; or is its last word."""
_AT_REST: Final = frozenset({AgentState.IDLE.value, AgentState.EXITED.value})
_LOOK_BACK: Final = 100
"""So many of the newest events of somebody who is gone are looked at after a start."""
LIMIT_NAMES: Final = 10_000
"""So many names are remembered; when there are more, who was silent for longest is forgotten."""


@dataclass(slots=True)
class _Wait:
    """How somebody waits, or waited, in one room."""

    last_ms: int
    is_parked: bool = False
    count: int = 0
    """So many of its calls wait now."""


class _Moments:
    """When each of so many names was last heard of."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}

    def put(self, name: str, now_ms: int) -> None:
        self._at.pop(name, None)
        self._at[name] = now_ms
        if len(self._at) > LIMIT_NAMES:
            del self._at[next(iter(self._at))]

    def get(self, name: str) -> int | None:
        return self._at.get(name)


class AttendanceBook:
    """Keeps attendance for one daemon. Belongs to the loop's thread."""

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        is_present: Callable[[str], bool],
        has_token: Callable[[str], bool] = lambda name: False,
        policy: Policy | None = None,
    ) -> None:
        """`is_present` tells whose process is alive or who has a link, `has_token` for whom tokens are."""
        self._log = log
        self._clock = clock
        self._has_process = is_present
        self._has_token = has_token
        self._grace_ms = (policy or Policy()).waiter_grace_ms
        self._started_ms = clock.now_ms()
        self._seen = _Moments()
        self._tokens = _Moments()
        self._calls: dict[str, int] = {}
        self._active = {agent.name for agent in read_agents(log.rows) if agent.state == AgentState.ACTIVE}
        self._beats: dict[tuple[str, str], int] = {}
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._told: dict[tuple[str, str], int] = {}
        self.shown = Shown()
        self.changed: Callable[[str], None] = lambda room: None
        """Told the room in which somebody waits no longer: another one's turn may have come."""
        self.fell_silent: Callable[[str], None] = lambda name: None
        """Told who has no call open any more: from now on its time runs."""
        self._unsubscribe = log.subscribe(self._hear)

    async def recall(self) -> None:
        """Remember after a start what those in rooms did last whose process was gone by then."""
        for name in {name for room in read_open_rooms(self._log.rows) for name in room.names}:
            if (gone_ms := self.gone_since_ms(name)) is not None:
                query = Query(senders=(name,), since=gone_ms, last=_LOOK_BACK)
                signs = [event.ts for event in await self._log.read(query) if _is_sign(event)]
                if signs:
                    self._seen.put(name, max(signs))

    def close(self) -> None:
        """Hear of nothing more."""
        self._unsubscribe()

    # What happens

    def saw(self, name: str) -> None:
        """Somebody did something: asked, read, wrote."""
        self._seen.put(name, self._clock.now_ms())

    def spoke(self, name: str) -> None:
        """Somebody has shown a token: whatever became of its process, it is there."""
        self._tokens.put(name, self._clock.now_ms())

    @contextmanager
    def speaking(self, name: str) -> Iterator[None]:
        """A call by a token is open for as long as the block runs."""
        self.spoke(name)
        try:
            with self._calling(name):
                yield
        finally:
            self.spoke(name)
            self.fell_silent(name)

    @contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        self._calls[name] = self._calls.get(name, 0) + 1
        try:
            yield
        finally:
            self._calls[name] -= 1
            if not self._calls[name]:
                del self._calls[name]

    def beat(self, room: str, name: str) -> None:
        """A holder said, with its lease, that it still works."""
        self._beats[room, name] = self._clock.now_ms()

    @contextmanager
    def waiting(self, room: str, name: str, *, is_parked: bool = False) -> Iterator[None]:
        """Somebody waits for its turn for as long as the block runs; the newest call says how.

        One that is refused says nothing.
        """
        wait = self._touch(room, name)
        was_parked, wait.is_parked = wait.is_parked, is_parked
        wait.count += 1
        try:
            with self._calling(name):
                yield
        except RequestError:
            wait.is_parked = was_parked
            raise
        finally:
            wait.count -= 1
            wait.last_ms = self._clock.now_ms()
            self.changed(room)
            self.fell_silent(name)

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
        """Its process is alive or it has a link; or it waits, has a call open, or had one a moment ago."""
        if self._has_process(name) or name in self._calls:
            return True
        spoke_ms = self._tokens.get(name)
        return spoke_ms is not None and self._clock.now_ms() - spoke_ms <= self._grace_ms

    def is_active(self, name: str) -> bool:
        """Its process is alive, and it says that it works."""
        return name in self._active and self._has_process(name)

    def gone_since_ms(self, name: str) -> int | None:
        """Since when its process is surely gone; None while it has a call open, and where nobody can know."""
        agent = read_agent(self._log.rows, name)
        if agent is None or not agent.left or self._has_process(name) or name in self._calls:
            return None
        return agent.since

    def token_ms(self, name: str) -> int | None:
        """When it last spoke by a token; one who has a token may have done so until the daemon started."""
        spoke_ms = self._tokens.get(name)
        return self._started_ms if spoke_ms is None and self._has_token(name) else spoke_ms

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
                self._hear_status(event)
            elif _is_sign(event):
                self.saw(event.sender)
            room = event.payload.get("room")
            if not isinstance(room, str):
                continue
            if event.type == JOINED:
                self._touch(room, event.sender)
            elif event.type == LEFT:
                if "kick" not in event.payload:  # The kick itself was heard; who it was may be back.
                    self.forget(room, from_agent(event) or event.sender)
            elif event.type == "kick":
                for name in event.to:
                    self.forget(room, name)
            elif event.type == "close":
                for where, name in [*self._waits, *self._beats, *self._told]:
                    if where == room:
                        self.forget(room, name)

    def _hear_status(self, event: Event) -> None:
        """Whoever was at work has been so until now, also when it rests from now on."""
        name, state = agent_of(event), event.payload.get("state")
        was_active = name in self._active
        if state == AgentState.ACTIVE:
            self._active.add(name)
        else:
            self._active.discard(name)
        if was_active or _is_sign(event):
            self.saw(name)


def _is_sign(event: Event) -> bool:
    """Tell whether an event is a sign of the one who wrote it."""
    if event.type == "status":
        return event.payload.get("state") not in _AT_REST
    return event.type not in _NO_SIGN
