"""A bus whose watches can be closed and started again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.fakes import HUMAN, Bus, OpenLog, open_memory, open_sqlite, opened_bus
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.events import Filter
from palaver.protocol.query import Query
from palaver.protocol.requests import Leave, Request, SetStatus
from palaver.protocol.subscriptions import Subscribe, Subscription
from palaver.reactors.subscriptions import Watches
from palaver.state.watches import read_subscription


class Watched:
    """A bus with the reactor under test."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self.failures = 0
        """The number of next requests that fail."""
        self.failure: Exception = DiskFull("no room")
        self.has_failed = asyncio.Event()
        self._tasks = tasks
        self._numbers = count(1)
        self._marks = ""
        self.start()

    def make(self) -> Watches:
        return Watches(self.bus.log, self._submit, tasks=self._tasks)

    def start(self) -> None:
        self.watches = self.make()
        self.watches.start()

    async def _submit(self, request: Request) -> object:
        if self.failures:
            self.failures -= 1
            self.has_failed.set()
            raise self.failure
        return await self.bus.broker.submit(SYSTEM_CALLER, request)

    async def subscribe(self, asking: Caller, owner: str = "", **fields: object) -> Subscription:
        """Subscribe; keyword arguments that are not fields of the request belong to the filter."""
        own = {name: fields.pop(name) for name in ("once", "preset", "text", "send") if name in fields}
        request = Subscribe(filter=Filter(**fields), owner=owner, **own)  # type: ignore[arg-type]  # their fields
        event = await self.bus.submit(asking, request)
        assert event is not None
        made = read_subscription(self.bus.log.rows, str(event.payload["id"]))
        assert made is not None
        return made

    async def ask(self, asking: Caller, *to: str) -> Event:
        """Send a request."""
        return await self.bus.send(asking, "can you review this?", *to, intent="request", is_confirmed=True)

    async def status(self, asking: Caller, state: str, **fields: str) -> Event:
        event = await self.bus.submit(asking, SetStatus(state=state, **fields))
        assert event is not None
        return event

    async def leave(self, asking: Caller) -> Event:
        event = await self.bus.submit(asking, Leave())
        assert event is not None
        return event

    async def put(self, type: str, sender: str = "ci", **payload: object) -> Event:
        """Store an event unchanged."""
        number = next(self._numbers)
        draft = Draft(type=type, sender=sender, payload=payload, id=f"put-{number}", ts=number)
        event = (await self.bus.log.commit(None, lambda rows: draft)).event
        assert event is not None
        return event

    async def events(self, *types: str) -> list[Event]:
        return await self.bus.log.read(Query(types=types, limit=100_000))

    async def told(self, name: str) -> list[Event]:
        """Return the notices that the bus sent to an agent, after all events so far were processed."""
        await self.settled()
        return [
            event for event in await self.events("message") if event.to == (name,) and event.sender[0] == "["
        ]

    async def texts(self, name: str) -> list[str]:
        return [str(event.payload["text"]) for event in await self.told(name)]

    async def settled(self) -> None:
        """Wait until all consequences of the stored events are stored too; events are processed by seq.

        The first mark covers direct consequences, the second covers the consequences of those.
        """
        if not self._marks:
            self._marks = (await self.subscribe(HUMAN, "marks", types=("mark",))).id
        for _ in range(2):
            mark = await self.put("mark")
            await self._heard(mark)

    async def _heard(self, mark: Event) -> None:
        """Wait until the notice of a mark is stored."""
        is_told = asyncio.Event()

        def hear(events: Sequence[Event]) -> None:
            if any(event.payload.get("event") == mark.seq for event in events):
                is_told.set()

        stop = self.bus.log.subscribe(hear)
        hear(await self.events("message"))
        async with asyncio.timeout(LIMIT_S):
            await is_told.wait()
        stop()


@asynccontextmanager
async def watched_bus(open_log: OpenLog, directory: Path) -> AsyncIterator[Watched]:
    async with opened_bus(open_log, directory) as bus, asyncio.TaskGroup() as tasks:
        await bus.join("marks")
        watched = Watched(bus, tasks)
        yield watched
        watched.watches.close()


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
async def watched(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Watched]:
    async with watched_bus(request.param, tmp_path) as made:
        yield made
