"""A bus with the reactor of automatic turns, and a runner that the test plays."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.fakes import HUMAN, Bus, OpenLog, Ring, opened_bus
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import PalaverError
from palaver.log.follow import news_of
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Request
from palaver.protocol.turns import (
    NoJob,
    RunnerJob,
    SetAutoRun,
    TriageJob,
    TurnConfig,
    TurnJob,
    TurnStats,
    session_of_mailbox,
)
from palaver.reactors.turns import NO_RUNNER_S, AutomaticTurns, Step, TurnSettings
from palaver.state.turns import read_queued_sessions, read_turn_stats

ACCEPT = {"accept": ["internal"]}
"""Every message of another agent or a person starts a turn without a triage."""
PROBE = "probe"


class Turning:
    """A bus with the reactor under test. Time passes only when a test lets it pass."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self.tasks = tasks
        self.rings: list[Ring] = []
        self.is_runner_awaited = asyncio.Event()
        self.failures: list[tuple[type, PalaverError]] = []
        """Requests that fail next, each with its error."""
        self.settings = TurnSettings(
            defaults=TurnConfig(),
            limit_an_hour=20,
            triage_command=("claude", "-p", "--model", "{model}"),
            command=(),
        )
        self.start()

    def start(self) -> None:
        self.turns = AutomaticTurns(
            self.bus.log,
            self.submit,
            clock=self.bus.clock,
            settings=lambda: self.settings,
            is_live=self._is_live,
            is_in_hand=self.bus.delivery.is_in_hand,
            call_later=self._call_later,
            tasks=self.tasks,
        )
        self.bus.delivery.messages_released = self.turns.messages_released
        self.turns.start()

    def restart(self) -> None:
        """Replace the reactor with a new one on the same log."""
        self.turns.close()
        self.start()

    async def submit(self, request: Request) -> object:
        for failure in self.failures:
            if isinstance(request, failure[0]):
                self.failures.remove(failure)
                raise failure[1]
        return await self.bus.broker.submit(SYSTEM_CALLER, request)

    def _is_live(self, agent: Agent) -> bool:
        return bool(agent.harness) and not agent.left and agent.name in self.bus.present

    def _call_later(self, wait_s: float, ring: Callable[[], None]) -> Ring:
        self.rings.append(Ring(self.bus.clock.monotonic_s() + wait_s, ring))
        if wait_s == NO_RUNNER_S:
            self.is_runner_awaited.set()
        return self.rings[-1]

    async def runner_is_due(self) -> None:
        """Wait until a batch is due, without taking its job."""
        async with asyncio.timeout(LIMIT_S):
            await self.turns._is_due.wait()

    async def runner_is_awaited(self) -> None:
        """Wait until a due batch waits for a runner."""
        async with asyncio.timeout(LIMIT_S):
            await self.is_runner_awaited.wait()
        self.is_runner_awaited.clear()

    def passes(self, seconds: float) -> None:
        """Advance the clock, and fire due timers."""
        self.bus.clock.advance(seconds)
        for ring in list(self.rings):
            if not ring.is_over and ring.moment_s <= self.bus.clock.monotonic_s() + 1e-9:
                ring.is_over = True
                ring.ring()

    async def join(self, name: str = "luna", value: object = ACCEPT, **fields: object) -> Caller:
        """Join an agent that is absent, with automatic turns."""
        joined = await self.bus.join(name, is_here=False, **fields)  # type: ignore[arg-type]  # fields of a join
        await self.set(name, value)
        return replace(joined, turn=f"{joined.name}+main")

    async def set(self, name: str, value: object, session: str = "") -> None:
        await self.bus.submit(HUMAN, SetAutoRun(agent=name, session=session, value=value))

    async def job(self) -> RunnerJob:
        """Return the next job, as the runner gets it."""
        job = await self.turns.next_job(LIMIT_S)
        assert not isinstance(job, NoJob)
        return job

    async def turn(self) -> TurnJob:
        job = await self.job()
        assert isinstance(job, TurnJob), job
        return job

    async def triage(self) -> TriageJob:
        job = await self.job()
        assert isinstance(job, TriageJob), job
        return job

    async def done(self, job: TurnJob, *, error: str = "", harness_session: str = "") -> None:
        await self.turns.ended(job.turn, "" if error else "done", error, harness_session)

    def batch(self, job: TurnJob) -> list[str]:
        """Return the texts of a turn's messages."""
        event = self.bus.log.event(job.turn)
        assert event is not None
        found = [self.bus.log.event(seq) for seq in event.payload["messages"]]  # type: ignore[attr-defined]  # seqs
        return [str(one.payload["text"]) for one in found if one is not None]

    async def run(self) -> list[str]:
        """Run the next turn to its end, and return the texts of its messages."""
        job = await self.turn()
        texts = self.batch(job)
        await self.done(job)
        return texts

    async def nothing_is_due(self, *, rejected: str = "") -> None:
        """Check that no session is due: a turn that becomes due later comes first.

        `rejected` is an agent whose due batch waits to be skipped.
        """
        if self.bus.broker.directory.get(PROBE) is None:
            await self.join(PROBE, {**ACCEPT, "maxBatchSize": 1})
        limit, self.settings = self.settings, replace(self.settings, limit_an_hour=0)
        await self.bus.send(HUMAN, "are you there?", f"@{PROBE}")
        job = await self.turn()
        assert job.agent == PROBE, (job, self.batch(job))
        await self.done(job)
        self.settings = limit
        due = [
            key
            for key in read_queued_sessions(self.bus.log.rows)
            if self.turns.plan(*session_of_mailbox(key)).step is Step.DUE
        ]
        assert [key for key in due if session_of_mailbox(key)[0] != rejected] == []

    async def send(self, text: str, to: str = "@luna", sender: Caller = HUMAN) -> Event:
        return await self.bus.send(sender, text, to)

    def stats(self) -> TurnStats:
        return read_turn_stats(self.bus.log.rows)

    async def types(self, agent: str = "luna") -> list[str]:
        """Return the types of the events of an agent's turns, in order."""
        found = ("auto-turn", "auto-turn-result", "auto-turn-error", "turn.skipped")
        return [event.type for event in await self.bus.log.read(Query(types=found, senders=(agent,)))]

    async def notified(self, name: str, count: int) -> list[str]:
        """Wait until the bus has sent `count` notices to an agent, and return them."""
        async with asyncio.timeout(LIMIT_S):
            with news_of(self.bus.log) as news:
                while len(found := await self.notices(name)) < count:
                    await news.wait()
                    news.clear()
        return found

    async def notices(self, name: str) -> list[str]:
        events = await self.bus.log.read(Query(types=("message",), senders=("[pal-events]",)))
        return [str(event.payload["text"]) for event in events if event.to == (name,)]


@asynccontextmanager
async def turning_bus(open_log: OpenLog, directory: Path, later_s: float = 0) -> AsyncIterator[Turning]:
    """Yield a bus with automatic turns and a registered runner, `later_s` seconds after the first start."""
    async with opened_bus(open_log, directory) as bus, asyncio.TaskGroup() as tasks:
        bus.clock.advance(later_s)
        made = Turning(bus, tasks)
        await made.turns.register(())
        yield made
        made.turns.close()
