"""The reactor of reminders: what is due is told, once, also after a restart and a full disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from tests.fakes import HUMAN, Bus, OpenLog, Ring, opened_bus
from tests.limits import LIMIT_S

from palaver.broker.broker import SYSTEM_CALLER
from palaver.errors import BadRequest, DiskFull, PalaverError
from palaver.model.agent import Caller
from palaver.model.envelope import Event
from palaver.model.query import Query
from palaver.model.request import Leave, SetStatus
from palaver.model.terminal import FireNag
from palaver.watches.nags import Nags

AFTER_S = 60.0


class Nagged:
    """A bus with the reactor under test."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self.failures: list[PalaverError] = []
        self.has_failed = asyncio.Event()
        self.rings: list[Ring] = []
        self._tasks = tasks
        self.start()

    def start(self) -> None:
        self.nags = Nags(
            self.bus.log,
            self._submit,
            clock=self.bus.clock,
            after_s=AFTER_S,
            call_later=self._call_later,
            tasks=self._tasks,
        )
        self.nags.start()

    def _call_later(self, wait_s: float, ring: Callable[[], None]) -> Ring:
        self.rings.append(Ring(self.bus.clock.monotonic_s() + wait_s, ring))
        return self.rings[-1]

    def passes(self, seconds: float) -> None:
        """Let time pass, and ring what is due."""
        self.bus.clock.advance(seconds)
        for ring in self.rings:
            if not ring.is_over and ring.moment_s <= self.bus.clock.monotonic_s():
                ring.is_over = True
                ring.ring()

    async def waits(self) -> None:
        """Let the reactor come to the end of what it has heard: it then waits for a timer, or for news."""
        for _ in range(5):
            await self.bus.send(HUMAN, "marker", "@luna")

    async def _submit(self, request: FireNag) -> object:
        if self.failures:
            self.has_failed.set()
            raise self.failures.pop()
        return await self.bus.broker.submit(SYSTEM_CALLER, request)

    async def ask(self, asking: Caller) -> Event:
        return await self.bus.send(asking, "which?", "@nova", expects_reply=True)

    async def idle(self, nova: Caller, *seqs: int) -> None:
        await self.bus.ack(nova, *seqs)
        await self.bus.submit(nova, SetStatus(state="idle"))

    async def told(self, count: int) -> list[Event]:
        """Wait until the bus has told so much, and give that."""
        news = asyncio.Event()
        stop = self.bus.log.subscribe(lambda _: news.set())
        async with asyncio.timeout(LIMIT_S):
            while True:
                news.clear()
                if len(found := await self._words()) >= count:
                    stop()
                    return found
                await news.wait()

    async def _words(self) -> list[Event]:
        events: Sequence[Event] = await self.bus.log.read(Query(types=("message",)))
        return [event for event in events if "nag" in event.payload]


@pytest.fixture
async def nagged(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Nagged]:
    async with opened_bus(open_log, tmp_path) as bus, asyncio.TaskGroup() as tasks:
        made = Nagged(bus, tasks)
        yield made
        made.nags.close()


async def test_closing_twice_or_before_the_start_is_harmless(nagged: Nagged) -> None:
    nagged.nags.close()
    nagged.nags.close()

    async with asyncio.TaskGroup() as tasks:
        Nags(
            nagged.bus.log,
            nagged.bus.broker.submit,  # type: ignore[arg-type]  # never called
            clock=nagged.bus.clock,
            after_s=0,
            call_later=asyncio.get_running_loop().call_later,
            tasks=tasks,
        ).close()


async def test_who_goes_idle_is_reminded_and_the_sender_told_of_the_end(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)

    await nagged.idle(nova, request.seq)
    (first,) = await nagged.told(1)
    await nagged.bus.submit(nova, Leave())
    _, last = await nagged.told(2)

    assert (first.to, last.to) == (("nova",), ("luna",))


async def test_what_fell_due_before_a_start_is_told_then_and_once(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    nagged.nags.close()
    request = await nagged.ask(luna)
    await nagged.idle(nova, request.seq)

    nagged.start()
    (first,) = await nagged.told(1)
    nagged.nags.close()
    nagged.start()
    nagged.bus.clock.advance(AFTER_S)
    await nagged.idle(nova, first.seq)

    assert [event.payload["nag"]["count"] for event in await nagged.told(2)] == [1, 2]  # type: ignore[index]  # written above


async def test_with_no_room_in_the_log_it_is_told_when_there_is_some(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)
    nagged.failures = [DiskFull("no room")]
    await nagged.idle(nova, request.seq)
    async with asyncio.timeout(LIMIT_S):
        await nagged.has_failed.wait()

    await nagged.bus.send(luna, "room again", "@nova")

    assert len(await nagged.told(1)) == 1


async def test_a_reminder_that_is_refused_stops_no_other(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    one, two = await nagged.ask(luna), await nagged.ask(luna)
    nagged.failures = [BadRequest("odd")]

    await nagged.idle(nova, one.seq, two.seq)

    (told,) = await nagged.told(1)
    assert told.to == ("nova",)


async def test_a_minute_lies_between_two_reminders(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)
    await nagged.idle(nova, request.seq)
    (first,) = await nagged.told(1)
    nagged.passes(7)
    await nagged.idle(nova, first.seq)
    await nagged.idle(nova)
    await nagged.waits()

    nagged.passes(AFTER_S - 7.001)
    await nagged.waits()
    early = len(await nagged.told(0))
    nagged.passes(0.001)

    assert early == 1
    assert [ring.moment_s for ring in nagged.rings] == [AFTER_S]
    assert len(await nagged.told(2)) == 2


async def test_who_is_at_work_again_then_is_reminded_when_it_goes_idle(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)
    await nagged.idle(nova, request.seq)
    (first,) = await nagged.told(1)
    await nagged.idle(nova, first.seq)
    await nagged.bus.submit(nova, SetStatus(state="active"))
    await nagged.waits()

    nagged.passes(AFTER_S)
    await nagged.waits()
    at_work = len(await nagged.told(0))
    await nagged.bus.submit(nova, SetStatus(state="idle"))

    assert at_work == 1
    assert len(await nagged.told(2)) == 2


async def test_of_one_who_stops_its_sender_hears_at_once(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)
    await nagged.idle(nova, request.seq)
    (first,) = await nagged.told(1)
    await nagged.idle(nova, first.seq)

    await nagged.bus.submit(nova, Leave())

    _, last = await nagged.told(2)
    assert last.to == ("luna",)


async def test_what_is_answered_meanwhile_is_not_reminded_of(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)
    await nagged.idle(nova, request.seq)
    (first,) = await nagged.told(1)
    await nagged.idle(nova, first.seq)
    await nagged.waits()

    await nagged.bus.send(nova, "this", "@luna", reply_to=str(request.seq))
    nagged.passes(AFTER_S)
    await nagged.waits()

    assert len(await nagged.told(0)) == 1


async def test_who_is_idle_when_it_sees_it_has_a_minute_for_the_answer(nagged: Nagged) -> None:
    luna, nova = await nagged.bus.join("luna"), await nagged.bus.join("nova")
    request = await nagged.ask(luna)
    await nagged.bus.ack(nova, request.seq)
    await nagged.waits()
    early = len(await nagged.told(0))

    nagged.passes(AFTER_S)

    assert early == 0
    assert len(await nagged.told(1)) == 1
