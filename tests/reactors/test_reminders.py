"""The reminder reactor: due reminders are sent once, also after a restart and with a full disk."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
from tests.fakes import HUMAN, Bus, OpenLog, Ring, opened_bus
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import BadRequest, DiskFull, PalaverError
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Leave, Request, SetStatus
from palaver.reactors.timers import Reminders

AFTER_S = 60.0


class RemindedBus:
    """A bus with the reactor under test."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self.failures: list[PalaverError] = []
        self.has_failed = asyncio.Event()
        self.rings: list[Ring] = []
        self.has_pause = asyncio.Event()
        self._tasks = tasks
        self.start()

    def start(self) -> None:
        self.reminders = Reminders(
            self.bus.log,
            self._submit,
            clock=self.bus.clock,
            after_s=AFTER_S,
            call_later=self._call_later,
            tasks=self._tasks,
        )
        self.reminders.start()

    def _call_later(self, wait_s: float, ring: Callable[[], None]) -> Ring:
        self.rings.append(Ring(self.bus.clock.monotonic_s() + wait_s, ring))
        if wait_s == 1:
            self.has_pause.set()
        return self.rings[-1]

    def passes(self, seconds: float) -> None:
        """Advance the clock, and fire due timers."""
        self.bus.clock.advance(seconds)
        for ring in self.rings:
            if not ring.is_over and ring.moment_s <= self.bus.clock.monotonic_s():
                ring.is_over = True
                ring.ring()

    async def waits(self) -> None:
        """Let the reactor process all events so far; it then waits for a timer or an event."""
        for _ in range(5):
            await self.bus.send(HUMAN, "marker", "@luna")

    async def _submit(self, request: Request) -> object:
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
        """Wait until the bus has sent `count` reminders, and return them."""
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
async def reminded(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[RemindedBus]:
    async with opened_bus(open_log, tmp_path) as bus, asyncio.TaskGroup() as tasks:
        made = RemindedBus(bus, tasks)
        yield made
        made.reminders.close()


async def test_close_twice_or_before_the_start_is_harmless(reminded: RemindedBus) -> None:
    reminded.reminders.close()
    reminded.reminders.close()

    async with asyncio.TaskGroup() as tasks:
        Reminders(
            reminded.bus.log,
            reminded.bus.broker.submit,  # type: ignore[arg-type]  # never called
            clock=reminded.bus.clock,
            after_s=0,
            call_later=asyncio.get_running_loop().call_later,
            tasks=tasks,
        ).close()


async def test_idle_agent_is_reminded_and_the_sender_notified_of_its_end(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)

    await reminded.idle(nova, request.seq)
    (first,) = await reminded.told(1)
    await reminded.bus.submit(nova, Leave())
    _, last = await reminded.told(2)

    assert (first.to, last.to) == (("nova",), ("luna",))


async def test_reminder_due_before_a_start_is_sent_once_after_it(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    reminded.reminders.close()
    request = await reminded.ask(luna)
    await reminded.idle(nova, request.seq)

    reminded.start()
    (first,) = await reminded.told(1)
    reminded.reminders.close()
    reminded.start()
    reminded.bus.clock.advance(AFTER_S)
    await reminded.idle(nova, first.seq)

    assert [event.payload["nag"]["count"] for event in await reminded.told(2)] == [1, 2]  # type: ignore[index]  # written above


async def test_reminder_is_sent_when_the_disk_has_room_again(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    reminded.failures = [DiskFull("no room")]
    await reminded.idle(nova, request.seq)
    async with asyncio.timeout(LIMIT_S):
        await reminded.has_failed.wait()

    await reminded.bus.send(luna, "room again", "@nova")

    assert len(await reminded.told(1)) == 1


async def test_reminder_is_sent_when_the_disk_has_room_again_without_an_event(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    reminded.failures = [DiskFull("no room")]
    await reminded.idle(nova, request.seq)
    async with asyncio.timeout(LIMIT_S):
        await reminded.has_pause.wait()

    reminded.passes(1)

    assert len(await reminded.told(1)) == 1


async def test_refused_reminder_does_not_stop_others(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    one, two = await reminded.ask(luna), await reminded.ask(luna)
    reminded.failures = [BadRequest("odd")]

    await reminded.idle(nova, one.seq, two.seq)

    (notice,) = await reminded.told(1)
    assert notice.to == ("nova",)


async def test_reminders_are_at_least_a_minute_apart(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    await reminded.idle(nova, request.seq)
    (first,) = await reminded.told(1)
    reminded.passes(7)
    await reminded.idle(nova, first.seq)
    await reminded.idle(nova)
    await reminded.waits()

    reminded.passes(AFTER_S - 7.001)
    await reminded.waits()
    early = len(await reminded.told(0))
    reminded.passes(0.001)

    assert early == 1
    assert [ring.moment_s for ring in reminded.rings] == [AFTER_S]
    assert len(await reminded.told(2)) == 2


async def test_active_agent_is_reminded_when_it_is_idle_again(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    await reminded.idle(nova, request.seq)
    (first,) = await reminded.told(1)
    await reminded.idle(nova, first.seq)
    await reminded.bus.submit(nova, SetStatus(state="active"))
    await reminded.waits()

    reminded.passes(AFTER_S)
    await reminded.waits()
    at_work = len(await reminded.told(0))
    await reminded.bus.submit(nova, SetStatus(state="idle"))

    assert at_work == 1
    assert len(await reminded.told(2)) == 2


async def test_sender_is_notified_at_once_when_the_recipient_leaves(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    await reminded.idle(nova, request.seq)
    (first,) = await reminded.told(1)
    await reminded.idle(nova, first.seq)

    await reminded.bus.submit(nova, Leave())

    _, last = await reminded.told(2)
    assert last.to == ("luna",)


async def test_answered_request_is_not_reminded(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    await reminded.idle(nova, request.seq)
    (first,) = await reminded.told(1)
    await reminded.idle(nova, first.seq)
    await reminded.waits()

    await reminded.bus.send(nova, "this", "@luna", reply_to=str(request.seq))
    reminded.passes(AFTER_S)
    await reminded.waits()

    assert len(await reminded.told(0)) == 1


async def test_idle_agent_has_a_minute_after_it_sees_the_request(reminded: RemindedBus) -> None:
    luna, nova = await reminded.bus.join("luna"), await reminded.bus.join("nova")
    request = await reminded.ask(luna)
    await reminded.bus.ack(nova, request.seq)
    await reminded.waits()
    early = len(await reminded.told(0))

    reminded.passes(AFTER_S)

    assert early == 0
    assert len(await reminded.told(1)) == 1
