"""Mail for agents at their usage limit: held, reported, and queued again at the reset time or earlier."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.fakes import HUMAN, Bus, Ring, caller
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.delivery.usage_limits import UsageLimits, is_same_limit
from palaver.errors import DiskFull
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.envelope import Event
from palaver.protocol.lanes import Ability, LaneKind, Offer
from palaver.protocol.query import Query
from palaver.protocol.requests import Leave, Request, SetStatus

HOUR_S = 3600.0
NATIVE = Ability(kind=LaneKind.NATIVE, reaches_busy=True, wakes_idle=True)


class Limited:
    """A bus with the reactor under test, and a reachable agent."""

    def __init__(self, bus: Bus, nova: Caller, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self.nova = nova
        self.rings: list[Ring] = []
        self.failures: list[DiskFull] = []
        self.offered: list[Offer] = []
        self.has_timer = asyncio.Event()
        self.has_asked = asyncio.Event()
        self.is_deaf = False
        """Set if the broker writes nothing, because another change of the same message came first."""
        self._tasks = tasks
        self.has_offer = asyncio.Event()
        bus.delivery.open_lane("nova", NATIVE, self._carry)
        self.start()

    def start(self) -> None:
        self.allowances = UsageLimits(
            self.bus.log,
            self._submit,
            self._lift,
            clock=self.bus.clock,
            call_later=self._call_later,
            tasks=self._tasks,
        )

    def _carry(self, offer: Offer) -> None:
        self.offered.append(offer)
        self.has_offer.set()

    def restart(self) -> None:
        """Start the reactor of another daemon."""
        self.allowances.close()
        self.start()

    async def _submit(self, request: Request) -> object:
        self.has_asked.set()
        if self.failures:
            raise self.failures.pop()
        if self.is_deaf:
            return None
        return await self.bus.broker.submit(SYSTEM_CALLER, request)

    async def _lift(self, agent: Agent) -> object:
        self.has_asked.set()
        if self.failures:
            raise self.failures.pop()
        return await self.bus.broker.submit_status(
            caller(agent), SetStatus(state="idle"), only_if=lambda now: is_same_limit(now, agent)
        )

    def _call_later(self, wait_s: float, ring: Callable[[], None]) -> Ring:
        self.rings.append(Ring(self.bus.clock.monotonic_s() + wait_s, ring))
        self.has_timer.set()
        return self.rings[-1]

    def passes(self, seconds: float) -> None:
        """Let time pass, and fire the due timers."""
        self.bus.clock.advance(seconds)
        for ring in list(self.rings):
            if not ring.is_over and ring.moment_s <= self.bus.clock.monotonic_s():
                ring.is_over = True
                ring.ring()

    async def until_planned(self) -> None:
        """Wait until a timer rings later than now."""
        async with asyncio.timeout(LIMIT_S):
            while not any(ring.moment_s > self.bus.clock.monotonic_s() for ring in self.rings):
                self.has_timer.clear()
                await self.has_timer.wait()

    async def limit(self, *, in_s: float | None = HOUR_S) -> None:
        """Let the agent report that its usage limit is reached."""
        until = "" if in_s is None else f" until {int(self.bus.clock.now_ms() / 1000 + in_s)}"
        await self.bus.submit(self.nova, SetStatus(state="blocked", detail=f"usage_limit{until}"))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a condition on the log holds."""
        news = asyncio.Event()
        stop = self.bus.log.subscribe(lambda _: news.set())
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                news.clear()
                await news.wait()
        stop()

    async def until_state(self, event: Event, state: str) -> None:
        await self.until(lambda: self.bus.state(event, "nova") == state)

    async def told(self, count: int) -> list[str]:
        """Wait for `count` notices of the bus and return their texts."""
        news = asyncio.Event()
        stop = self.bus.log.subscribe(lambda _: news.set())
        async with asyncio.timeout(LIMIT_S):
            while True:
                news.clear()
                events = await self.bus.log.read(Query(types=("message",)))
                notices = [event.payload for event in events if event.payload.get("sender_kind") == "system"]
                if len(notices) >= count:
                    stop()
                    return [str(payload["text"]) for payload in notices]
                await news.wait()


@pytest.fixture
async def limited(bus: Bus) -> AsyncIterator[Limited]:
    nova = await bus.join("nova")
    async with asyncio.TaskGroup() as tasks:
        made = Limited(bus, nova, tasks)
        yield made
        made.allowances.close()


async def test_mail_is_held_with_the_reset_time_and_its_sender_is_notified(limited: Limited) -> None:
    luna = await limited.bus.join("luna")
    await limited.limit()

    one = await limited.bus.send(luna, "one", "@nova", priority="interrupt")
    await limited.until_state(one, "held")
    two = await limited.bus.send(luna, "two", "@nova")
    await limited.until_state(two, "held")

    entry = limited.bus.entry(one, "nova")
    assert entry is not None
    assert entry.reason.startswith("usage limit until 2")
    assert entry.reason.endswith(" UTC")
    assert limited.offered == []
    notices = await limited.told(2)
    assert "is held for nova: its usage limit is reached until 2" in notices[0]


async def test_mail_that_was_already_waiting_is_held_too(limited: Limited) -> None:
    await limited.bus.submit(limited.nova, SetStatus(state="active"))
    one = await limited.bus.send(HUMAN, "one", "@nova", priority="idle")

    await limited.limit(in_s=None)

    await limited.until_state(one, "held")
    entry = limited.bus.entry(one, "nova")
    assert entry is not None
    assert entry.reason == "usage limit"
    assert limited.rings == []


async def test_held_mail_is_offered_at_the_reset_time(limited: Limited) -> None:
    await limited.limit()
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    limited.passes(HOUR_S + 1)

    await limited.has_offer.wait()
    assert limited.bus.agent("nova").state == "idle"
    assert [offer.seqs for offer in limited.offered] == [(one.seq,)]


async def test_next_daemon_continues_to_wait_for_the_reset_time(limited: Limited) -> None:
    await limited.limit()
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    limited.has_timer.clear()
    limited.restart()
    await limited.has_timer.wait()
    assert limited.bus.state(one, "nova") == "held"
    limited.passes(HOUR_S + 1)

    await limited.until_state(one, "submitted")


async def test_mail_held_by_an_earlier_daemon_is_queued_by_the_next(limited: Limited) -> None:
    await limited.limit()
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")
    limited.allowances.close()
    await limited.bus.submit(limited.nova, SetStatus(state="idle"))

    limited.start()

    await limited.until_state(one, "submitted")


async def test_agent_that_works_again_before_the_reset_gets_its_mail(limited: Limited) -> None:
    await limited.limit()
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    await limited.bus.submit(limited.nova, SetStatus(state="active", detail="thinking"))

    await limited.until_state(one, "submitted")
    assert all(ring.is_over for ring in limited.rings)


async def test_new_limit_report_replaces_the_reset_time(limited: Limited) -> None:
    await limited.limit()
    await limited.has_timer.wait()
    await limited.limit(in_s=2 * HOUR_S)
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    limited.passes(HOUR_S + 1)
    limited.rings[0].ring()  # a timer that could not be cancelled any more
    later = await limited.bus.send(HUMAN, "later", "@nova")
    await limited.until_state(later, "held")

    assert limited.bus.state(one, "nova") == "held"
    limited.passes(HOUR_S)
    await limited.until_state(one, "submitted")


async def test_limit_that_is_reached_again_with_the_same_text_is_kept(limited: Limited) -> None:
    again = SetStatus(state="blocked", detail="usage_limit until in 90s")
    await limited.bus.submit(limited.nova, again)
    await limited.has_timer.wait()
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    limited.passes(90)  # The end of the first limit is decided while the second one is being stored.
    await limited.bus.submit(limited.nova, again)
    later = await limited.bus.send(HUMAN, "later", "@nova")
    await limited.until_state(later, "held")

    assert limited.bus.state(one, "nova") == "held"
    await limited.until_planned()
    limited.passes(90)
    await limited.until_state(one, "submitted")


async def test_mail_is_queued_when_its_agent_ends(limited: Limited) -> None:
    await limited.limit()
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    await limited.bus.submit(limited.nova, Leave(reason="done"))

    await limited.until(lambda: limited.bus.state(one, "nova") != "held")
    reports = await limited.bus.log.read(Query(types=("delivery",)))
    assert [report.payload["state"] for report in reports][:2] == ["held", "queued"]


async def test_failed_hold_is_retried(limited: Limited) -> None:
    await limited.limit(in_s=None)
    limited.failures.append(DiskFull("no room"))
    one = await limited.bus.send(HUMAN, "one", "@nova")
    async with asyncio.timeout(LIMIT_S):
        await limited.has_timer.wait()

    limited.passes(6)

    await limited.until_state(one, "held")


async def test_mail_of_other_agents_is_not_affected(limited: Limited) -> None:
    await limited.bus.join("luna")
    await limited.limit()

    other = await limited.bus.send(HUMAN, "for luna", "@luna")
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.until_state(one, "held")

    assert limited.bus.state(other, "luna") == "queued"


async def test_hold_that_comes_too_late_is_ignored(limited: Limited) -> None:
    limited.is_deaf = True
    await limited.limit()

    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.has_asked.wait()

    assert limited.bus.state(one, "nova") == "queued"


async def test_nothing_is_retried_after_close(limited: Limited) -> None:
    await limited.limit(in_s=None)
    limited.failures.append(DiskFull("no room"))
    one = await limited.bus.send(HUMAN, "one", "@nova")
    await limited.has_timer.wait()

    limited.allowances.close()
    limited.passes(6)

    assert limited.bus.state(one, "nova") == "queued"


async def test_failed_lift_of_a_limit_is_retried(limited: Limited) -> None:
    luna = await limited.bus.join("luna")
    await limited.limit()
    one = await limited.bus.send(luna, "one", "@nova")
    await limited.until_state(one, "held")
    await limited.told(1)
    limited.failures.append(DiskFull("no room"))

    limited.has_timer.clear()
    limited.passes(HOUR_S)
    async with asyncio.timeout(LIMIT_S):
        await limited.has_timer.wait()
    assert limited.bus.state(one, "nova") == "held"
    limited.has_timer.clear()
    limited.passes(10)
    async with asyncio.timeout(LIMIT_S):
        await limited.has_timer.wait()
    limited.passes(0)

    await limited.until_state(one, "submitted")


async def test_reset_follows_wall_clock_time_and_not_elapsed_time(limited: Limited) -> None:
    luna = await limited.bus.join("luna")
    await limited.limit()
    one = await limited.bus.send(luna, "one", "@nova")
    await limited.until_state(one, "held")

    limited.passes(60)
    waits = [ring for ring in limited.rings if not ring.is_over]
    assert [ring.moment_s - limited.bus.clock.monotonic_s() for ring in waits] == [60.0]
    limited.bus.clock.suspend(HOUR_S)
    limited.passes(60)

    await limited.until_state(one, "submitted")
