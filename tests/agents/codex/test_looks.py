"""Threads that are new: however much is said of one, it is looked at once at a time."""

import asyncio

from tests.limits import LIMIT_S

from palaver.agents.codex.looks import Looks
from palaver.agents.work import Work
from palaver.errors import Disconnected


class Stage:
    """Looks that end when a test says so."""

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


async def test_all_that_is_said_meanwhile_asks_for_one_more_look() -> None:
    stage = Stage()
    for _ in range(100):
        stage.looks.at("one")
    await stage.is_asked.wait()
    for _ in range(100):
        stage.looks.at("one")

    stage.answers.put_nowait(None)
    stage.answers.put_nowait(None)

    assert await stage.settle() == ["one", "one"]


async def test_with_nothing_said_meanwhile_one_look_is_enough() -> None:
    stage = Stage()
    stage.looks.at("one")
    stage.looks.at("two")

    stage.answers.put_nowait(None)
    stage.answers.put_nowait(None)

    assert await stage.settle() == ["one", "two"]


async def test_a_look_that_nobody_answered_can_be_taken_again() -> None:
    stage = Stage()
    stage.looks.at("one")
    stage.answers.put_nowait(Disconnected("gone"))
    await stage.settle()

    stage.looks.at("one")
    stage.answers.put_nowait(None)

    assert await stage.settle() == ["one", "one"]
