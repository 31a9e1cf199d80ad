"""Starting the daemon for a holder: one at a time, in a separate process, and only if a daemon is wanted."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from palaver.holder.launch import DAEMON_START_MODULE, main, start_daemon


class Runner:
    """Runs nothing, records the command and returns the given status."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.commands: list[list[str]] = []

    async def run(self, command: list[str]) -> int:
        self.commands.append(command)
        await asyncio.sleep(0)
        return self.status


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "agents").mkdir()
    return str(tmp_path)


async def test_daemon_is_started_in_a_separate_process(home: str) -> None:
    runner = Runner()

    assert await start_daemon(home, runner.run)
    ((*_, module, where),) = runner.commands
    assert (module, where) == (DAEMON_START_MODULE, home)


async def test_failed_start_returns_false(home: str) -> None:
    assert not await start_daemon(home, Runner(status=1).run)


async def test_only_one_of_many_holders_starts_the_daemon(home: str) -> None:
    runner = Runner()

    started = await asyncio.gather(*(start_daemon(home, runner.run) for _ in range(5)))

    assert sorted(started) == [False, False, False, False, True]
    assert len(runner.commands) == 1


def test_nothing_is_started_after_pal_down_or_without_a_home(home: str) -> None:
    runner = Runner()
    Path(home, "down").touch()

    assert not asyncio.run(start_daemon(home, runner.run))
    assert not asyncio.run(start_daemon(f"{home}/gone", runner.run))
    assert runner.commands == []
    assert not Path(home, "gone").exists()


async def test_home_without_agents_folder_starts_nothing(tmp_path: Path) -> None:
    assert not await start_daemon(str(tmp_path), Runner().run)


def test_start_module_refuses_a_stopped_bus_and_prints_the_reason(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(home, "down").touch()
    monkeypatch.setattr("sys.argv", ["x", home])

    assert main() == 1
    assert "stopped with 'pal down'" in capsys.readouterr().err


def test_start_lock_is_released_with_its_process(home: str) -> None:
    lock = os.open(f"{home}/agents/start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    runner = Runner()

    assert not asyncio.run(start_daemon(home, runner.run))
    os.close(lock)
    assert asyncio.run(start_daemon(home, runner.run))
