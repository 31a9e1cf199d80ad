"""Consumers: their owner at a time, and the cursor that the next owner finds."""

import asyncio
import os
from pathlib import Path

import pytest

from palaver.errors import BadName, DuplicateListener
from palaver.services.agents import Consumers


@pytest.fixture
def consumers(tmp_path: Path) -> Consumers:
    return Consumers(tmp_path / "consumers", grace_s=0)


async def test_next_owner_continues_where_the_last_one_stopped(consumers: Consumers) -> None:
    first = await consumers.take("luna", "ci", pid=1)
    before = first.seq()
    await first.begin(4)
    first.keep(6)
    first.release()

    second = await consumers.take("luna", "ci", pid=2)

    assert before is None
    assert second.seq() == 6


async def test_second_owner_is_refused_with_the_process_that_has_the_consumer(
    consumers: Consumers,
) -> None:
    await consumers.take("luna", "ci", pid=17)

    with pytest.raises(DuplicateListener) as refused:
        await consumers.take("luna", "ci", pid=18)

    assert refused.value.details == {"consumer": "ci", "listener": "luna", "pid": 17}
    assert "'ci' of luna is already in use by process 17" in str(refused.value)


async def test_same_name_of_another_owner_is_another_consumer(consumers: Consumers) -> None:
    luna = await consumers.take("luna", "ci", pid=1)
    nova = await consumers.take("nova", "ci", pid=2)
    await luna.begin(5)

    assert nova.seq() is None


async def test_ending_owner_is_waited_for(tmp_path: Path) -> None:
    consumers = Consumers(tmp_path, grace_s=5)
    first = await consumers.take("luna", "ci", pid=1)
    waiting = asyncio.ensure_future(consumers.take("luna", "ci", pid=2))
    await asyncio.sleep(0)
    assert not waiting.done()

    first.release()

    assert (await waiting).pid == 2


async def test_one_of_two_waiting_owners_gets_the_consumer(tmp_path: Path) -> None:
    consumers = Consumers(tmp_path, grace_s=5)
    first = await consumers.take("luna", "ci", pid=1)
    waiting = [asyncio.ensure_future(consumers.take("luna", "ci", pid=pid)) for pid in (2, 3)]
    await asyncio.sleep(0)

    first.release()
    second = await waiting[0]

    assert not waiting[1].done()
    second.release()
    assert (await waiting[1]).pid == 3


async def test_cancelled_begin_releases_the_consumer(consumers: Consumers) -> None:
    consumer = await consumers.take("luna", "ci", pid=1)
    beginning = asyncio.ensure_future(consumer.begin(3))
    await asyncio.sleep(0)

    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    consumer.release()

    assert (await consumers.take("luna", "ci", pid=2)).seq() == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "ä", "x" * 65, "a\n"])
async def test_name_that_could_lead_to_another_path_is_refused(consumers: Consumers, name: str) -> None:
    with pytest.raises(BadName):
        await consumers.take("luna", name, pid=1)


async def test_owner_with_a_device_stays_inside_the_folder(tmp_path: Path) -> None:
    consumer = await Consumers(tmp_path / "consumers").take("../luna:BOXE", "ci", pid=1)

    await consumer.begin(1)

    assert os.listdir(tmp_path) == ["consumers"]
    consumer.release()
