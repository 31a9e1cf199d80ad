"""Tasks that do not stop each other when one fails."""

import asyncio
import gc
import logging

import pytest

from palaver.daemon.daemon import GuardedTasks, end_all_tasks
from palaver.errors import DiskFull


async def test_failed_task_is_logged_and_does_not_stop_other_tasks(
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


async def test_end_all_tasks_ends_all_except_the_current_one() -> None:
    has_begun = asyncio.Event()

    async def wait() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    async with GuardedTasks() as tasks:
        waiting = tasks.create_task(wait())
        await has_begun.wait()

        end_all_tasks()

    assert waiting.cancelled()


async def test_work_that_ends_before_it_begins_is_dropped_without_a_warning(
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
