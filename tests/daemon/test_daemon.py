"""The parts of the daemon that need no process of their own."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from palaver.daemon import GuardedTasks
from palaver.errors import DiskFull
from palaver.home import Ready, file_system_of


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


def test_whoever_started_the_daemon_hears_one_word_and_then_the_end() -> None:
    reader, writer = os.pipe()
    ready = Ready(writer, is_foreground=False)

    ready.say("ok")
    ready.say("too late")

    with open(reader, "rb") as pipe:
        assert pipe.read() == b"ok\n"


def test_a_client_that_did_not_wait_is_no_trouble() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    Ready(writer, is_foreground=False).say("ok")


def test_a_person_in_front_of_it_sees_only_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    ready = Ready(None, is_foreground=True)

    ready.say("ok")
    ready.say("no room")

    assert capsys.readouterr().err == "pal: no room\n"


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the system does not tell")
def test_the_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    assert file_system_of(Path("/proc/self/fd")) == "proc"
    assert file_system_of(Path("/")) != ""
