"""Reads of new threads: however many notifications arrive, one read runs at a time."""

import asyncio

from tests.limits import LIMIT_S

from palaver.errors import Disconnected
from palaver.harness.codex.integration import Looks
from palaver.holder.tasks import Work


class Stage:
    """Reads that end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.work = Work()
        self.looks = Looks(self._look, self.work.spawn)
        self.answers: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.is_asked = asyncio.Event()

    async def _look(self, thread: str) -> None:
        self.asked.append(thread)
        self.is_asked.set()
        if (error := await self.answers.get()) is not None:
            raise error

    async def settle(self) -> list[str]:
        async with asyncio.timeout(LIMIT_S):
            await self.work.settle()
        return self.asked


async def test_notifications_during_a_read_cause_one_more_read() -> None:
    stage = Stage()
    for _ in range(100):
        stage.looks.at("one")
    await stage.is_asked.wait()
    for _ in range(100):
        stage.looks.at("one")

    stage.answers.put_nowait(None)
    stage.answers.put_nowait(None)

    assert await stage.settle() == ["one", "one"]


async def test_without_new_notifications_one_read_is_enough() -> None:
    stage = Stage()
    stage.looks.at("one")
    stage.looks.at("two")

    stage.answers.put_nowait(None)
    stage.answers.put_nowait(None)

    assert await stage.settle() == ["one", "two"]


async def test_failed_read_can_be_repeated() -> None:
    stage = Stage()
    stage.looks.at("one")
    stage.answers.put_nowait(Disconnected("gone"))
    await stage.settle()

    stage.looks.at("one")
    stage.answers.put_nowait(None)

    assert await stage.settle() == ["one", "one"]
