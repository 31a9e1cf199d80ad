"""Background tasks: owned, waited for, and independent of each other's failures."""

import asyncio

import pytest
from tests.limits import LIMIT_S

from palaver.holder.tasks import Work


async def test_task_started_meanwhile_is_waited_for() -> None:
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


async def test_failed_task_is_logged_and_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
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


async def test_cancelled_task_ends_silently(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.spawn(asyncio.Event().wait())  # type: ignore[arg-type]  # the result is not used

    work.cancel()
    async with asyncio.timeout(LIMIT_S):
        await work.settle()

    assert caplog.text == ""
