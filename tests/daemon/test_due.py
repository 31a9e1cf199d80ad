"""The timer that wakes delivery."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from tests.limits import LIMIT_S

from palaver.daemon.daemon import DeliveryTimer
from palaver.delivery.reactor import DeliveryReactor
from palaver.errors import DiskFull


class FakeDelivery:
    """A delivery that says when it wants to be woken, and counts its wake-ups."""

    def __init__(self, *waits_s: float | None) -> None:
        self.waits_s = list(waits_s)
        self.deadline_changed: Callable[[], None] = lambda: None
        self.looks = asyncio.Semaphore(0)
        self.woken = asyncio.Semaphore(0)
        self.failure: Exception | None = None

    def next_wait_s(self) -> float | None:
        self.looks.release()
        return self.waits_s.pop(0) if self.waits_s else None

    async def catch_up(self) -> None:
        self.woken.release()
        if self.failure is not None:
            raise self.failure


async def taken(count: asyncio.Semaphore) -> None:
    async with asyncio.timeout(LIMIT_S):
        await count.acquire()


async def test_delivery_is_woken_when_a_deadline_passes() -> None:
    delivery = FakeDelivery(0, None)
    running = asyncio.create_task(DeliveryTimer(cast(DeliveryReactor, delivery)).run())

    await taken(delivery.woken)
    await taken(delivery.looks)
    await taken(delivery.looks)

    assert delivery.woken.locked()
    running.cancel()


async def test_changed_deadline_is_read_again() -> None:
    delivery = FakeDelivery(None, 0)
    running = asyncio.create_task(DeliveryTimer(cast(DeliveryReactor, delivery)).run())
    await taken(delivery.looks)

    delivery.deadline_changed()

    await taken(delivery.woken)
    running.cancel()


@pytest.mark.parametrize("failure", [DiskFull("no room"), RuntimeError("a bug")])
async def test_failure_does_not_end_the_timer(failure: Exception) -> None:
    delivery = FakeDelivery(0, 0)
    delivery.failure = failure
    running = asyncio.create_task(DeliveryTimer(cast(DeliveryReactor, delivery)).run())

    await taken(delivery.woken)

    assert not running.done()
    running.cancel()
