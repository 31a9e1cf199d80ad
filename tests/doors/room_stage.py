"""Room services on their own bus, with a clock and timers that the test advances."""

import asyncio
import heapq
import inspect
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.fakes import HUMAN, Bus, FakeClock, GuardedTasks, OpenLog, open_memory
from tests.limits import LIMIT_S

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER
from palaver.domain.stick import Policy
from palaver.identity.presence import MemberPresenceBook
from palaver.identity.workspace import Workspaces
from palaver.ids import UlidSource
from palaver.log.api import Log
from palaver.protocol.agents import Caller
from palaver.protocol.message import FlatMessage, flat
from palaver.protocol.requests import Request
from palaver.reactors.timers import Sticks
from palaver.services.results import AgentView, ServiceResult
from palaver.services.rooms import RoomService
from palaver.state.agents import read_mail
from palaver.state.rooms import Room, find_room

HANDOFF = {"status": "tests pass", "next_action": "review"}
POLICY = Policy()
RoomResult = dict[str, Any]
"""A result as a door writes it."""


class Timer:
    def __init__(self) -> None:
        self.is_off = False

    def cancel(self) -> None:
        self.is_off = True


class Timers:
    """Timers that fire when the clock is advanced past them."""

    def __init__(self, clock: FakeClock, settle: Callable[[], Awaitable[None]]) -> None:
        self._clock = clock
        self._settle = settle
        self._line: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer()
        heapq.heappush(self._line, (self._clock.monotonic_s() + delay_s, next(self._numbers), timer, call))
        return timer

    def __len__(self) -> int:
        return sum(not timer.is_off for _, _, timer, _ in self._line)

    async def advance(self, seconds: float) -> None:
        """Advance the clock timer by timer, and let the effects of each timer settle."""
        end = self._clock.monotonic_s() + seconds
        while self._line and self._line[0][0] <= end:
            due, _, timer, call = heapq.heappop(self._line)
            self._clock.advance(max(0.0, due - self._clock.monotonic_s()))
            if not timer.is_off:
                call()
                await self._settle()
        self._clock.advance(end - self._clock.monotonic_s())
        await self._settle()


class RenderedRooms:
    """The room tools with their results as a door writes them: the objects of their JSON."""

    def __init__(self, rooms: RoomService) -> None:
        self._rooms = rooms

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._rooms, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            result = await found(*given, **named)
            return rendered(result) if isinstance(result, ServiceResult) else result

        return call


def rendered(result: ServiceResult) -> RoomResult:
    """Return the object that the JSON of a result contains."""
    return msgspec.json.decode(msgspec.json.encode(result), type=dict[str, Any])


class Stage(Bus):
    """A bus with rooms: room services, presence, and the reactor for time limits in rooms."""

    def __init__(self, log: Log, clock: FakeClock, tasks: asyncio.TaskGroup, policy: Policy) -> None:
        super().__init__(log, clock, tasks)
        self.broker.close()
        self.tasks = tasks
        self.timers = Timers(clock, self.settle)
        self.tokens: set[str] = set()
        self.book = MemberPresenceBook(
            log,
            clock=clock,
            is_present=self.present.__contains__,
            has_token=self.tokens.__contains__,
            policy=policy,
        )
        self.broker = Broker(
            log,
            clock=clock,
            ids=UlidSource(clock, bytes),
            is_present=self.present.__contains__,
            draw=lambda: next(self.draws),
            member_presence=self.book,
            policy=policy,
        )
        self.rooms = RoomService(
            log=log,
            broker=self.broker,
            clock=clock,
            member_presence=self.book,
            workspaces=Workspaces(["/nobody"]),
            policy=policy,
            agents=self._agents,
            inbox=self._inbox,
            call_later=self.timers.call_later,
        )
        self.rendered = RenderedRooms(self.rooms)
        self.submitted: list[Request] = []
        self.sticks = Sticks(
            log,
            self.submit_system,
            self.book,
            clock=clock,
            policy=policy,
            call_later=self.timers.call_later,
            tasks=tasks,
        )
        self.book.fell_silent = self.sticks.look_at
        self.refusal: Exception | None = None
        """The error that the reactor receives from the broker, if any."""

    async def settle(self) -> None:
        """Run all ready tasks and finish all pending writes."""
        for _ in range(5):
            for _ in range(20):
                await asyncio.sleep(0)
            await self.log.commit(None, lambda rows: None)

    async def submit_system(self, request: Request) -> object:
        self.submitted.append(request)
        if self.refusal is not None:
            raise self.refusal
        return await self.broker.submit(SYSTEM_CALLER, request)

    async def _agents(self) -> list[AgentView]:
        return [
            AgentView(
                name=agent.name,
                base=agent.base,
                tag=None,
                role=agent.role,
                harness=None,
                state=agent.state,
                detail=None,
                since=agent.since,
                joined=agent.joined,
                present=True,
                unread=0,
                device=self.log.device,
            )
            for agent in self.broker.directory.all()
        ]

    async def _inbox(self, name: str, limit: int) -> list[FlatMessage]:
        found = sorted(mail.seq for mail in read_mail(self.log.rows, name))
        return [flat(event) for seq in found[-limit:] if (event := self.log.event(seq)) is not None]

    def close(self) -> None:
        self.sticks.close()
        self.rooms.close()
        self.book.close()
        super().close()

    async def seat(self, path: Path, *names: str, by: Caller = HUMAN) -> list[Caller]:
        """Let agents join the bus and the room at a path."""
        os.makedirs(path, exist_ok=True)
        found = []
        for name in names:
            asking = await self.join(name, by=by)
            await self.rendered.join_path(asking, context_path=str(path))
            found.append(asking)
        return found

    def room(self, word: str = "work") -> Room:
        return find_room(self.log.rows, word)

    async def claim(self, asking: Caller, **fields: Any) -> RoomResult:
        return rendered(await self.rooms.wait_for_turn(asking, room_id="work", max_wait_ms=0, **fields))

    async def release(self, asking: Caller) -> RoomResult:
        room = self.room()
        freed = await self.rooms.release_stick(
            asking, room_id=room.id, lease_id=room.lease, expected_turn_id=room.turn, handoff=HANDOFF
        )
        return rendered(freed)

    def start(self, work: Coroutine[Any, Any, RoomResult]) -> asyncio.Task[RoomResult]:
        """Start a wait as a task; only the task reports its error."""
        return asyncio.get_running_loop().create_task(work)


async def done(task: asyncio.Task[RoomResult]) -> RoomResult:
    async with asyncio.timeout(LIMIT_S):
        return await task


@asynccontextmanager
async def opened_stage(
    directory: Path, *, policy: Policy = POLICY, open_log: OpenLog = open_memory
) -> AsyncIterator[Stage]:
    log = await open_log(directory)
    try:
        async with GuardedTasks() as tasks:
            stage = Stage(log, FakeClock(), tasks, policy)
            yield stage
            stage.close()
    finally:
        await log.close()
