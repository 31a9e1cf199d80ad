"""Cleanup of the folders of killed holders."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.fakes import open_memory, opened_bus, seat
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.harness.base import EndpointOwner, format_holder
from palaver.identity.process import Process, read_process
from palaver.protocol.agents import BeginSubagent
from palaver.protocol.requests import Gone, Leave
from palaver.reactors.files import WorkspaceCleanup, remove_dead

DEAD = 2**22 + 1
"""A number that no process has."""


def prepare(home: Path, name: str, holder: str | None) -> Path:
    folder = home / "agents" / "native" / name
    folder.mkdir(parents=True)
    (folder / "server.json").write_text("{}")
    if holder is not None:
        (folder / "holder").write_text(holder)
    return folder


def own_start() -> int:
    process = read_process(os.getpid())
    assert process is not None
    return process.start


class Kept(asyncio.TaskGroup):
    """A task group that lets a test wait for all started tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[asyncio.Task[Any]] = []

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]  # the same call
        self.begun.append(super().create_task(coro, **options))
        return self.begun[-1]

    async def settle(self) -> int:
        """Wait for all tasks and return their number."""
        await asyncio.gather(*self.begun)
        return len(self.begun)


def test_only_folders_of_dead_holders_are_removed(tmp_path: Path) -> None:
    pid, start = os.getpid(), own_start()
    gone = [
        prepare(tmp_path, "opencode-1", str(DEAD)),
        prepare(tmp_path, "opencode-2", format_holder(EndpointOwner(pid=DEAD, start=start))),
        prepare(tmp_path, "opencode-3", format_holder(EndpointOwner(pid=pid, start=start + 1))),
    ]
    kept = [
        prepare(tmp_path, "opencode-4", str(pid)),
        prepare(tmp_path, "opencode-5", format_holder(EndpointOwner(pid=pid, start=start))),
        prepare(tmp_path, "opencode-6", None),
        prepare(tmp_path, "opencode-7", "no number"),
        prepare(tmp_path, "opencode-8", "\N{GREEK SMALL LETTER ALPHA}"),
    ]

    remove_dead(tmp_path / "agents" / "native", read_process)

    assert not any(folder.exists() for folder in gone)
    assert all(folder.exists() for folder in kept)


def test_zombie_holder_counts_as_dead(tmp_path: Path) -> None:
    folder = prepare(tmp_path, "opencode-1", "7 70")
    zombie = Process(7, 1, 7, 7, 0, -1, 70, "pal", state="Z")

    remove_dead(tmp_path / "agents" / "native", lambda pid: zombie)

    assert not folder.exists()


async def test_old_folders_are_removed_at_start(tmp_path: Path) -> None:
    dead = prepare(tmp_path, "opencode-1", str(DEAD))

    async with opened_bus(open_memory, tmp_path) as bus, asyncio.TaskGroup() as tasks:
        WorkspaceCleanup(tmp_path, bus.log, tasks, read_process)

    assert not dead.exists()


async def test_cleanup_runs_again_only_when_a_held_agent_leaves(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus, Kept() as tasks:
        luna, nova = await bus.join("luna"), await bus.join("nova", holder="h", seat=seat(7))
        await bus.broker.submit(SYSTEM_CALLER, BeginSubagent(parent="nova", key="a1", type="x"))
        cleanup = WorkspaceCleanup(tmp_path, bus.log, tasks, read_process)
        assert await tasks.settle() == 1
        dead = prepare(tmp_path, "opencode-1", str(DEAD))

        await bus.broker.submit(luna, Leave())
        await bus.broker.submit(SYSTEM_CALLER, Gone(name="nova_x_1", reason="ended"))
        assert (await tasks.settle(), dead.exists()) == (1, True)
        await bus.broker.submit(nova, Leave())
        await tasks.settle()

        assert not dead.exists()
        cleanup.close()


async def test_agents_that_leave_during_a_cleanup_cause_one_more(tmp_path: Path) -> None:
    seen: list[int] = []
    is_in, may_go = threading.Event(), threading.Event()

    def read(pid: int) -> Process | None:
        seen.append(threading.get_ident())
        is_in.set()
        assert may_go.wait(LIMIT_S)
        return Process(pid, 1, pid, pid, 0, -1, 70, "pal")

    prepare(tmp_path, "opencode-1", "7 70")
    async with opened_bus(open_memory, tmp_path) as bus, Kept() as tasks:
        agents = [await bus.join(name, holder=name) for name in ("luna", "nova")]
        cleanup = WorkspaceCleanup(tmp_path, bus.log, tasks, read)
        assert await asyncio.to_thread(is_in.wait, LIMIT_S)

        for agent in agents:
            await bus.broker.submit(agent, Leave())
        may_go.set()
        assert await tasks.settle() == 1

        cleanup.close()
    assert len(seen) == 2
    assert threading.get_ident() not in seen


async def test_no_cleanup_runs_after_close(tmp_path: Path) -> None:
    async with opened_bus(open_memory, tmp_path) as bus, Kept() as tasks:
        nova = await bus.join("nova", holder="h")
        WorkspaceCleanup(tmp_path, bus.log, tasks, read_process).close()

        await bus.broker.submit(nova, Leave())

        assert await tasks.settle() == 1
