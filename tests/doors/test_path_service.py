"""Taking messages by path: repeated requests, large messages, and other callers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import Bus, open_memory, opened_bus

from palaver.errors import BadRequest, NotYou, WhoAreYou
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.message import EXTERNAL
from palaver.protocol.paths import Content, RoutedMessage
from palaver.services.paths import PathService, Range
from palaver.services.queries import Queries

KEY = b"k" * 16
SCRIPT = Caller(name="script", standing=Standing.WORKER, kind=EXTERNAL)


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


@pytest.fixture
def paths(bus: Bus) -> PathService:
    return PathService(bus.broker, Queries(bus.log), bus.delivery)


async def route(paths: PathService, *commands: str, payload: object = None) -> None:
    for command in commands:
        await paths.route(SCRIPT, "agent/luna", Content(command=command, payload=payload))


def commands(messages: list[RoutedMessage]) -> list[str]:
    return [message.command for message in messages]


async def test_same_key_returns_the_messages_that_it_took(bus: Bus, paths: PathService) -> None:
    luna = await bus.join("luna")
    await route(paths, "1", "2")
    first = await paths.receive(luna, "luna", key=KEY)

    again = await paths.receive(luna, "luna", key=KEY)
    await route(paths, "3")
    after_news = await paths.receive(luna, "luna", key=KEY)

    assert commands(first) == ["1", "2"]
    assert first == again == after_news
    assert commands(await paths.receive(luna, "luna", key=b"o" * 16)) == ["3"]
    assert await paths.receive(luna, "luna", key=b"p" * 16) == []


async def test_key_of_another_mailbox_returns_nothing(bus: Bus, paths: PathService) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await route(paths, "1")
    await paths.receive(luna, "luna", key=KEY)

    assert await paths.receive(nova, "nova", key=KEY) == []
    assert await paths.receive(luna, "luna", session="main", key=KEY) == []


async def test_messages_that_do_not_fit_into_one_frame_are_taken_later(bus: Bus, paths: PathService) -> None:
    luna = await bus.join("luna")
    names = [str(number) for number in range(60)]
    await route(paths, *names, payload="x" * 95_000)

    first = await paths.receive(luna, "luna")
    rest = await paths.receive(luna, "luna")

    assert 50 <= len(first) < 60
    assert commands([*first, *rest]) == names
    assert commands(await paths.history("luna")) == names[:-56:-1]


async def test_range_limits_the_taken_messages(bus: Bus, paths: PathService) -> None:
    luna = await bus.join("luna")
    await route(paths, "1")
    bus.clock.advance(10)
    await route(paths, "2", "3")
    now = bus.clock.now_ms()

    assert await paths.receive(luna, "luna", wanted=Range(limit=0)) == []
    assert commands(await paths.receive(luna, "luna", wanted=Range(since=now, limit=1))) == ["2"]
    assert commands(await paths.receive(luna, "luna", wanted=Range(until=now - 1))) == ["1"]
    assert commands(await paths.receive(luna, "luna")) == ["3"]
    with pytest.raises(BadRequest, match="between 0 and 1000"):
        Range(limit=1001)


async def test_only_the_owner_takes_messages(bus: Bus, paths: PathService) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    await route(paths, "1")

    with pytest.raises(NotYou):
        await paths.receive(nova, "luna")
    with pytest.raises(WhoAreYou):
        await paths.receive(SCRIPT, "luna")
    assert commands(await paths.receive(luna, "luna")) == ["1"]
