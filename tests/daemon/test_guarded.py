"""Tasks of which one that fails stops nobody else."""

import asyncio
import gc
import logging

import pytest

from palaver.daemon.guarded import GuardedTasks, end_all_tasks
from palaver.errors import DiskFull


async def test_a_task_that_fails_is_written_down_and_stops_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "palaver")

    async def fail(error: Exception) -> None:
        raise error

    async with GuardedTasks() as tasks:
        tasks.create_task(fail(ValueError("a mistake")))
        tasks.create_task(fail(DiskFull("no room")))
        other = tasks.create_task(asyncio.sleep(0, "done"))

    assert other.result() == "done"
    assert "a mistake" in caplog.text
    assert "disk_full: no room" in caplog.text


async def test_all_tasks_but_ones_own_are_ended() -> None:
    has_begun = asyncio.Event()

    async def wait() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    async with GuardedTasks() as tasks:
        waiting = tasks.create_task(wait())
        await has_begun.wait()

        end_all_tasks()

    assert waiting.cancelled()


async def test_work_that_is_ended_before_it_begins_is_let_go_without_a_word(
    recwarn: pytest.WarningsRecorder,
) -> None:
    async def work() -> None:
        raise AssertionError("it was to be ended first")

    async with GuardedTasks() as tasks:
        ended = tasks.create_task(work())
        end_all_tasks()
    with pytest.raises(RuntimeError, match="finished"):
        tasks.create_task(work())
    gc.collect()

    assert ended.cancelled()
    assert not recwarn.list
