"""The room notifier: it wakes only waiters of the room in question."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import Bus, open_memory, opened_bus
from tests.limits import LIMIT_S

from palaver.protocol.envelope import Draft
from palaver.protocol.requests import SetStatus
from palaver.services.rooms import Listener, RoomNotifier


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


@pytest.fixture
def notifier(bus: Bus) -> RoomNotifier:
    return RoomNotifier(bus.log, lambda name: ["work"] if name == "luna" else [])


async def write(bus: Bus, room: object) -> None:
    draft = Draft(
        type="claim", sender="luna", payload={"room": room}, id=f"ID{bus.log.last()}", ts=bus.clock.now_ms()
    )
    await bus.log.commit(None, lambda rows: draft)


async def rings(listener: Listener) -> None:
    async with asyncio.timeout(LIMIT_S):
        await listener.wait(None)


async def test_room_event_wakes_all_waiters_of_that_room(bus: Bus, notifier: RoomNotifier) -> None:
    with notifier.listening("work") as here, notifier.listening("work") as too:
        await write(bus, "work")

        await rings(here)
        await rings(too)


async def test_listener_ignores_events_before_its_look_and_keeps_later_ones(
    bus: Bus, notifier: RoomNotifier
) -> None:
    with notifier.listening("work") as here:
        await write(bus, "work")
        here.look()
        waiting = asyncio.ensure_future(here.wait(None))
        await asyncio.sleep(0)
        assert not waiting.done()

        await write(bus, "work")

        async with asyncio.timeout(LIMIT_S):
            await waiting


async def test_agent_event_wakes_only_the_rooms_of_that_agent(bus: Bus, notifier: RoomNotifier) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    with notifier.listening("work") as here, notifier.listening("other") as there:
        silent = asyncio.ensure_future(there.wait(None))
        await bus.submit(nova, SetStatus(state="active"))
        await bus.submit(luna, SetStatus(state="active"))

        await rings(here)

        assert not silent.done()
        silent.cancel()


async def test_wait_ends_at_its_limit_and_cancels_its_timer(bus: Bus) -> None:
    asked: list[float] = []

    class Timer:
        is_off = False

        def cancel(self) -> None:
            self.is_off = True

    timer = Timer()

    def call_later(delay_s: float, call: object) -> Timer:
        asked.append(delay_s)
        asyncio.get_running_loop().call_soon(call)  # type: ignore[arg-type]  # the callback of a listener
        return timer

    notifier = RoomNotifier(bus.log, lambda name: [], call_later)
    with notifier.listening("work") as here:
        async with asyncio.timeout(LIMIT_S):
            await here.wait(2500)

    assert asked == [2.5]
    assert timer.is_off


async def test_finished_waiters_are_not_kept(bus: Bus, notifier: RoomNotifier) -> None:
    with notifier.listening("work"):
        pass
    with notifier.listening("work") as here:
        notifier.ring("work")
        await rings(here)
    await write(bus, 7)
    notifier.close()
    await write(bus, "work")

    assert notifier._waiting == {}
