"""Services for tests of doors, on a bus without doors."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from tests.fakes import Bus, open_memory, opened_bus
from tests.limits import LIMIT_S

from palaver.config import LiveSettings, LoadedSettings, Settings
from palaver.identity.seats import SeatIndex
from palaver.protocol.agents import Agent
from palaver.protocol.query import Query
from palaver.services.agents import CompanionBook, Subagents
from palaver.services.evidence import Conversations
from palaver.services.permissions import PermissionBook
from palaver.services.queries import Queries
from palaver.services.services import Services

BOOT = "boot"


class Links:
    """Count the open connections of each name."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}

    def is_present(self, name: str) -> bool:
        return self.count.get(name, 0) > 0

    def link_opened(self, name: str) -> None:
        self.count[name] = self.count.get(name, 0) + 1

    def link_closed(self, name: str) -> None:
        self.count[name] -= 1


class SlowFollowers:
    """The metrics that doors write: the door of each client that was disconnected because it was slow."""

    def __init__(self) -> None:
        self.doors: list[str] = []

    def count_slow_follower(self, door: str) -> None:
        self.doors.append(door)


class Parts:
    """The parts of a daemon that a test inspects."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup, settings: Settings, home: Path) -> None:
        self.bus = bus
        self.home = home
        self.tasks = tasks
        self.settings = LiveSettings(LoadedSettings(settings=settings, origins={}))
        self.log = bus.log
        self.queries = Queries(bus.log)
        self.broker = bus.broker
        self.clock = bus.clock
        self.delivery = bus.delivery
        self.conversations = Conversations(bus.delivery, self.queries, tasks)
        self.subagents = Subagents(bus.log, bus.broker, tasks)
        self.permissions = PermissionBook()
        self.seats = SeatIndex(BOOT)
        self.presence: Links = Links()
        self.companions = CompanionBook()
        self.daemon = self.callers = self.agents = self  # The groups of `Services`, in one object.

    @property
    def services(self) -> Services:
        return cast("Services", self)

    def sit(self, name: str) -> Agent:
        """Register the current seat of an agent, as the daemon does for every hello."""
        agent = self.bus.agent(name)
        self.seats.put(agent)
        return agent

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something written to the log makes this true."""
        changed = asyncio.Event()
        unsubscribe = self.log.subscribe(lambda _: changed.set())
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                changed.clear()
                await changed.wait()
        unsubscribe()

    async def payloads(self, type: str) -> list[dict[str, object]]:
        """Return the payloads of all events of a type, oldest first."""
        found = await self.log.read(Query(types=(type,), limit=100))
        return [dict(event.payload) for event in found]


@asynccontextmanager
async def opened_parts(directory: Path, **settings: int) -> AsyncIterator[Parts]:
    """Open the parts of a daemon with these settings; their tasks end with the block."""
    made = Settings(**settings)  # type: ignore[arg-type]  # numbers only
    async with opened_bus(open_memory, directory) as bus, asyncio.TaskGroup() as tasks:
        yield Parts(bus, tasks, made, directory)
