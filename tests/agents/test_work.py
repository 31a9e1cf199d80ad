"""Work in tasks of its own: owned, waited for, and not ended by what goes wrong beside it."""

import asyncio

import pytest
from tests.limits import LIMIT_S

from palaver.agents.work import Work


async def test_what_begins_meanwhile_is_waited_for_too() -> None:
    work, done = Work(), list[str]()

    async def second() -> None:
        done.append("second")

    async def first() -> None:
        done.append("first")
        work.spawn(second())

    work.spawn(first())
    async with asyncio.timeout(LIMIT_S):
        await work.settle()

    assert done == ["first", "second"]


async def test_what_goes_wrong_is_written_down_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    work, done = Work(), asyncio.Event()

    async def fail() -> None:
        raise ValueError("a mistake")

    async def succeed() -> None:
        done.set()

    work.spawn(fail())
    work.spawn(succeed())
    async with asyncio.timeout(LIMIT_S):
        await work.settle()

    assert done.is_set()
    assert "a mistake" in caplog.text


async def test_what_is_cancelled_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.spawn(asyncio.Event().wait())  # type: ignore[arg-type]  # what it gives matters to nobody

    work.cancel()
    async with asyncio.timeout(LIMIT_S):
        await work.settle()

    assert caplog.text == ""
