"""Shared fakes: a clock that is advanced by hand, and a bus without doors."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.limits import LIMIT_S

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER, Joined, Sent, Written
from palaver.delivery.reactor import DeliveryReactor
from palaver.domain.rights import Brakes
from palaver.errors import Unavailable
from palaver.identity.caller import Anchor
from palaver.ids import UlidSource
from palaver.log.api import Commit, Decide, Log
from palaver.log.memory import MemoryLog
from palaver.log.sqlite import SqliteLog
from palaver.protocol.agents import Agent, Caller, Seat, Standing, standing_of_role
from palaver.protocol.envelope import Event
from palaver.protocol.events import DeliveryReport, unlisted_fields
from palaver.protocol.lanes import Ability, Lane, LaneKind, LaneLevel, Offer
from palaver.protocol.query import Query
from palaver.protocol.requests import Acknowledge, Join, ReportDelivery, Request, Send
from palaver.state.agents import read_entry, read_line
from palaver.state.fold import apply
from palaver.state.rows import LedgerEntry

OPEN = LaneLevel()
START_MS = 1_700_000_000_000
LIMIT_HOPS = 4
LIMIT_A_MINUTE = 6

HUMAN = Caller(name="human", standing=Standing.HUMAN, kind="human")
SCRIPT = Caller(name="script", standing=Standing.WORKER, kind="external")


class FakeClock:
    """A clock that moves only when it is advanced."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: only the wall clock advances."""
        self._now_ms += round(seconds * 1000)


class Ring:
    """A timer that the test fires."""

    def __init__(self, moment_s: float, ring: Callable[[], None]) -> None:
        self.moment_s = moment_s
        self.ring = ring
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True


def seat(pid: int, key: str = "") -> Seat:
    """Return the seat of a process."""
    return Seat(pid=pid, start=pid * 10, boot="boot", key=key)


def caller(
    agent: Agent,
    *,
    harness: str = "",
    by: str | None = None,
    is_marked: bool = False,
    is_orphan: bool = False,
) -> Caller:
    """Return an agent as the doors pass it to the broker."""
    return Caller(
        name=agent.name,
        standing=standing_of_role(agent.role),
        kind="instance",
        seat=agent.seat,
        harness=harness,
        by=by,
        is_marked=is_marked,
        is_orphan=is_orphan,
    )


class GuardedTasks(asyncio.TaskGroup):
    """A task group in which a full disk stops only the task that meets it, as in the daemon."""

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # the same call, every task guarded
        return super().create_task(self._guard(coro), **options)

    async def _guard(self, coro: Coroutine[Any, Any, Any]) -> None:
        with suppress(Unavailable):
            await coro


class FakeMemberPresence:
    """Presence and waits in rooms, as the test sets them; by default no agent waits."""

    def __init__(self, present: set[str]) -> None:
        self.started_ms = 0
        self.present = present
        self.active: set[str] = set()
        self.gone: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.beats: dict[tuple[str, str], int] = {}
        self.waits: dict[tuple[str, str], int] = {}
        self.waiting: set[tuple[str, str]] = set()
        self.parked: set[tuple[str, str]] = set()
        self.known: set[tuple[str, int]] = set()

    def is_present(self, name: str) -> bool:
        return name in self.present

    def is_active(self, name: str) -> bool:
        return name in self.active

    def gone_since_ms(self, name: str) -> int | None:
        return self.gone.get(name)

    def token_ms(self, name: str) -> int | None:
        return self.tokens.get(name)

    def seen_ms(self, name: str) -> int | None:
        return self.seen.get(name)

    def idle_since_ms(self, name: str) -> int | None:
        return self.idle.get(name)

    def beat_ms(self, room: str, name: str) -> int | None:
        return self.beats.get((room, name))

    def last_wait_ms(self, room: str, name: str) -> int | None:
        return self.waits.get((room, name))

    def is_waiting(self, room: str, name: str) -> bool:
        return (room, name) in self.waiting

    def is_parked(self, room: str, name: str) -> bool:
        return (room, name) in self.parked

    def may_know(self, name: str, seq: int) -> bool:
        return (name, seq) in self.known


class Bus:
    """The log, broker and delivery of one home. The test puts the present agents into `present`."""

    def __init__(self, log: Log, clock: FakeClock, tasks: asyncio.TaskGroup) -> None:
        self.log = log
        self.clock = clock
        self.present: set[str] = set()
        self.member_presence = FakeMemberPresence(self.present)
        self.draws: Iterator[int] = itertools.count()
        self.deadlines = 0
        self.asked: list[Request] = []
        self.failure: Exception | None = None
        """The error that delivery gets when it submits to the broker."""
        self.has_failed = asyncio.Event()
        self.broker = Broker(
            log,
            clock=clock,
            ids=UlidSource(clock, bytes),
            is_present=self.present.__contains__,
            draw=lambda: next(self.draws),
            brakes=Brakes(limit_hops=LIMIT_HOPS, limit_a_minute=LIMIT_A_MINUTE),
            member_presence=self.member_presence,
        )
        self.delivery = DeliveryReactor(log, self._submit, clock=clock, tasks=tasks)
        self.delivery.deadline_changed = self._count_deadline

    def close(self) -> None:
        self.delivery.close()
        self.broker.close()

    async def _submit(self, request: Request) -> object:
        self.asked.append(request)
        if self.failure is not None:
            self.has_failed.set()
            raise self.failure
        return await self.broker.submit(SYSTEM_CALLER, request)

    def _count_deadline(self) -> None:
        self.deadlines += 1

    async def submit(self, asking: Caller, request: Request, *, key: bytes | None = None) -> Event | None:
        """Submit a request to the broker and return the written event."""
        outcome = await self.broker.submit(asking, request, key=key)
        assert isinstance(outcome, Sent | Written)
        return outcome.event

    async def join(
        self, name: str = "", *, by: Caller = HUMAN, is_here: bool = True, **fields: object
    ) -> Caller:
        """Let an agent join and be present; return it as a caller."""
        joined = await self.broker.submit(by, Join(name=name, **fields))  # type: ignore[arg-type]  # fields of a join
        assert isinstance(joined, Joined)
        if is_here:
            self.present.add(joined.agent.name)
        return caller(joined.agent)

    async def send(self, asking: Caller, text: str, *to: str, **fields: object) -> Event:
        """Send a text and return the stored message."""
        event = await self.submit(asking, Send(text=text, to=to, **fields))  # type: ignore[arg-type]  # fields of a send
        assert event is not None
        return event

    async def ack(self, asking: Caller, *seqs: int) -> Event | None:
        return await self.submit(asking, Acknowledge(messages=seqs, lane="sdk", grade="acked"))

    async def report(self, agent: str, state: str, *seqs: int, **fields: object) -> Event | None:
        """Write a ledger step as delivery would."""
        report = DeliveryReport(agent=agent, messages=seqs, state=state, **fields)  # type: ignore[arg-type]  # its fields
        return await self.submit(SYSTEM_CALLER, ReportDelivery(report=report))

    def agent(self, name: str) -> Agent:
        found = self.broker.directory.get(name)
        assert found is not None
        return found

    def entry(self, event: Event, name: str) -> LedgerEntry | None:
        return read_entry(self.log.rows, event.seq, name)

    def state(self, event: Event, name: str) -> str:
        """Return the state of a message for a recipient; empty if it was never a recipient."""
        line = read_line(self.log.rows, event.seq, name)
        return "" if line is None else line.state

    def texts(self, name: str) -> list[str]:
        """Return the waiting texts of an agent, in order, without changing their state."""
        reader = self.delivery.take(name)
        found = [str(event.payload.get("text", event.type)) for event in reader.poll(1000)]
        reader.close()
        return found

    def open_lane(
        self,
        name: str,
        kind: LaneKind = LaneKind.NATIVE,
        level: LaneLevel | None = OPEN,
        *,
        awaits: LaneKind | None = None,
        **abilities: bool,
    ) -> "FakeLane":
        """Open a lane with an open gate; with `level=None` it keeps its initial gate."""
        lane = FakeLane(
            self,
            name,
            Ability(kind=kind, awaits=awaits, **{"reaches_busy": True, "wakes_idle": True, **abilities}),
        )
        if level is not None:
            self.delivery.set_level(lane.lane, level)
        return lane


class FakeLane:
    """A lane that collects its offers."""

    def __init__(self, bus: Bus, name: str, ability: Ability) -> None:
        self._offers: asyncio.Queue[Offer] = asyncio.Queue()
        self.states: list[list[str]] = []

        def carry(offer: Offer) -> None:
            self.states.append([bus.state(event, name) for event in offer.events])
            self._offers.put_nowait(offer)

        self.lane: Lane = bus.delivery.open_lane(name, ability, carry)

    async def next(self) -> Offer:
        """Wait for the next offer."""
        async with asyncio.timeout(LIMIT_S):
            return await self._offers.get()

    async def next_texts(self) -> list[str]:
        return texts_of((await self.next()).events)

    @property
    def is_empty(self) -> bool:
        return self._offers.empty()


def texts_of(events: Sequence[Event]) -> list[str]:
    return [str(event.payload.get("text", event.type)) for event in events]


OpenLog = Callable[[Path], Awaitable[Log]]


async def open_memory(directory: Path) -> Log:
    return MemoryLog(apply=apply)


async def open_sqlite(directory: Path) -> Log:
    return await SqliteLog.open(directory, apply=apply, clock=FakeClock(), device="TEST")


async def check_payloads(log: Log) -> None:
    """Check that every written payload has only the fields listed for its event type."""
    for event in await log.read(Query(limit=10_000)):
        assert unlisted_fields(event.type, event.payload) == set(), event


@asynccontextmanager
async def opened_bus(open_log: OpenLog, directory: Path) -> AsyncIterator[Bus]:
    """Yield a bus on one log engine. Its reactors have finished when the block ends."""
    log = await open_log(directory)
    try:
        async with GuardedTasks() as tasks:
            bus = Bus(log, FakeClock(), tasks)
            yield bus
            bus.close()
    finally:
        await log.close()


class SlowLog:
    """A log that can hold commits back. It makes them one by one, in the order of their calls."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._held = asyncio.Semaphore(0)
        self._turn = asyncio.Lock()
        self._is_open = asyncio.Event()
        self._is_open.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, key: str | None, decide: Decide, *, request_key: bytes | None = None) -> Commit:
        if not self._is_open.is_set():
            self._held.release()
        async with self._turn:
            await self._is_open.wait()
            return await self._log.commit(key, decide, request_key=request_key)

    def hold(self) -> None:
        """Hold back all commits from now on."""
        self._is_open.clear()

    async def next_held(self) -> None:
        """Wait until one more commit is held back."""
        async with asyncio.timeout(LIMIT_S):
            await self._held.acquire()

    def release(self) -> None:
        """Make all commits."""
        self._is_open.set()


def nowhere(pid: int | None) -> Anchor:
    """Fail: these commands never join, so their caller needs no anchor."""
    raise AssertionError("only a join asks where its caller sits down")
