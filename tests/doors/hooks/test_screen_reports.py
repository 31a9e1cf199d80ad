"""Statuses of hooks and of the screen that are stored at the same time: the better one stays."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.doors.hooks.conftest import Hooks
from tests.fakes import Bus, OpenLog, SlowLog, opened_bus
from tests.limits import LIMIT_S

from palaver.doors.lines_holders import ScreenReports
from palaver.log.api import Log
from palaver.protocol.agents import Caller
from palaver.protocol.lanes import LaneKind, LaneLevel
from palaver.protocol.query import Query
from palaver.protocol.requests import DIALOG, SetStatus
from palaver.services.services import Services

LIMIT = "usage limit: resets at 5pm"


class Screen(Hooks):
    """An agent with hooks, in a terminal whose holder reports the screen."""

    def __init__(self, bus: Bus, log: SlowLog, nova: Caller, tasks: asyncio.TaskGroup, home: Path) -> None:
        super().__init__(bus, tasks, home)
        self.log = log
        self.nova = nova
        self._tasks = tasks
        services = SimpleNamespace(
            broker=self.bus.broker,
            delivery=self.bus.delivery,
            clock=self.bus.clock,
            agents=SimpleNamespace(conversations=self.conversations),
        )
        self.kept: list[asyncio.Task[None]] = []
        self.reports = ScreenReports(cast("Services", services), self._keep)
        self._running: list[asyncio.Task[None]] = []

    async def start_hook(self, event: str, **fields: object) -> None:
        """Call a hook; its status is being stored when this returns."""
        answer = await self.answer(self.nova, event, **fields)
        self._running.append(self.handler.settle(answer, has_left=True))
        await self.log.next_held()

    async def start_screen(self, state: str, detail: str = "") -> None:
        """Report the screen; its status is being stored when this returns."""
        self._start(self.reports.report(self.nova, SetStatus(state=state, detail=detail)))
        await self.log.next_held()

    async def start(self, status: SetStatus) -> None:
        """Report a status as `pal status set` does; it is being stored when this returns."""
        self._start(self._submit(status))
        await self.log.next_held()

    async def _submit(self, status: SetStatus) -> None:
        await self.bus.submit(self.nova, status)

    def _keep(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        self.kept.append(self._tasks.create_task(work))
        return self.kept[-1]

    def _start(self, work: Coroutine[object, object, None]) -> None:
        self._running.append(self._tasks.create_task(work))

    async def finish(self) -> tuple[str, str]:
        """Let all commits through, and return the state of the agent."""
        self.log.release()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*self._running, *self.kept)
        agent = self.bus.agent("nova")
        return agent.state, agent.detail

    def show_dialog(self) -> None:
        lane = self.bus.open_lane("nova", LaneKind.TERMINAL)
        self.bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, reason=DIALOG))

    async def states(self) -> list[str]:
        """Return the stored states, oldest first."""
        events = await self.bus.log.read(Query(types=("status",)))
        return [str(event.payload["state"]) for event in events]


@pytest.fixture
async def screen(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Screen]:
    logs: list[SlowLog] = []

    async def open_slow(directory: Path) -> Log:
        logs.append(SlowLog(await open_log(directory)))
        return cast("Log", logs[-1])

    async with opened_bus(open_slow, tmp_path) as bus, asyncio.TaskGroup() as tasks:
        nova = await bus.join("nova", harness="claude", session="s1", holder="h")
        stage = Screen(bus, logs[0], nova, tasks, tmp_path)
        try:
            await stage.reports.report(nova, SetStatus(state="idle"))
            await stage.hook(nova, "SessionStart", source="startup")
            yield stage
        finally:
            logs[0].release()
            stage.reports.close()


async def test_screen_without_details_does_not_replace_a_hook_being_stored(screen: Screen) -> None:
    screen.log.hold()
    await screen.start_hook("PreCompact", trigger="manual")
    await screen.start_screen("active")

    assert await screen.finish() == ("active", "compacting")


async def test_request_being_stored_keeps_its_text(screen: Screen) -> None:
    screen.log.hold()
    asks = {"tool_name": "Write", "tool_input": {"file_path": "/a.txt"}}
    await screen.start_hook("PermissionRequest", **asks)
    await screen.start_screen("blocked", "permission")

    assert await screen.finish() == ("blocked", "permission: Write: /a.txt")


async def test_hook_replaces_the_screen_that_was_reported_first(screen: Screen) -> None:
    screen.bus.clock.advance(2.0)  # The start is some time ago, so a busy screen is news.
    screen.log.hold()
    await screen.start_screen("active")
    await screen.start_hook("PreCompact", trigger="manual")

    assert await screen.finish() == ("active", "compacting")
    assert await screen.states() == ["idle", "active", "active"]


async def test_repeated_hook_is_stored_after_another_screen(screen: Screen) -> None:
    await screen.hook(screen.nova, "UserPromptSubmit", prompt="go")
    screen.log.hold()
    await screen.start_screen("idle")
    await screen.start_hook("PostToolUse", tool_name="Bash", tool_input={})

    assert await screen.finish() == ("active", "thinking")


async def test_late_hook_does_not_replace_a_dialog_being_stored(screen: Screen) -> None:
    await screen.hook(screen.nova, "UserPromptSubmit", prompt="go")
    screen.show_dialog()
    screen.log.hold()
    await screen.start_screen("blocked", "dialog: Trust this folder?")
    await screen.start_hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})

    assert await screen.finish() == ("blocked", "dialog: Trust this folder?")
    screen.log.hold()
    await screen.start_screen("active")
    assert await screen.finish() == ("active", "")


async def test_end_of_a_turn_does_not_end_a_limit_being_stored(screen: Screen) -> None:
    await screen.hook(screen.nova, "UserPromptSubmit", prompt="go")
    screen.log.hold()
    await screen.start_screen("blocked", LIMIT)
    await screen.start_hook("Stop")

    assert await screen.finish() == ("blocked", LIMIT)


async def test_idle_screen_after_a_request_being_stored_is_early(screen: Screen) -> None:
    await screen.hook(screen.nova, "UserPromptSubmit", prompt="go")
    screen.log.hold()
    await screen.start_hook("PermissionRequest", tool_name="Bash", tool_input={"command": "make"})
    await screen.start_screen("idle")

    assert await screen.finish() == ("blocked", "permission: Bash: make")
    assert await screen.states() == ["idle", "active", "blocked"]


async def test_early_screen_is_dropped_if_a_newer_one_was_decided_with_it(screen: Screen) -> None:
    asks = {"tool_name": "Bash", "tool_input": {"command": "make"}}
    await screen.hook(screen.nova, "PermissionRequest", **asks)
    screen.log.hold()
    await screen.start_screen("idle")
    await screen.start_screen("blocked", "permission")

    assert await screen.finish() == ("blocked", "permission: Bash: make")
    assert screen.kept == []


async def test_screen_that_is_still_busy_after_the_end_of_the_work_is_not_news(screen: Screen) -> None:
    await screen.hook(screen.nova, "PreCompact", trigger="manual")
    screen.log.hold()
    await screen.start_hook("PostCompact", trigger="manual")
    await screen.start_screen("active")
    screen.log.release()
    await screen.reports.report(screen.nova, SetStatus(state="idle"))

    assert await screen.states() == ["idle", "active", "idle"]


async def test_screen_that_stays_busy_after_the_end_of_the_work_is_stored(screen: Screen) -> None:
    await screen.hook(screen.nova, "UserPromptSubmit", prompt="go")
    await screen.hook(screen.nova, "Stop")
    await screen.reports.report(screen.nova, SetStatus(state="active"))
    before = screen.bus.agent("nova").state
    screen.bus.clock.advance(2.0)  # The delay is over as soon as the kept report waits.

    assert (before, await screen.finish()) == ("idle", ("active", ""))


async def test_busy_screen_well_after_the_end_of_the_work_is_stored_at_once(screen: Screen) -> None:
    await screen.hook(screen.nova, "UserPromptSubmit", prompt="go")
    await screen.hook(screen.nova, "Stop")
    screen.bus.clock.advance(2.0)
    await screen.reports.report(screen.nova, SetStatus(state="active"))

    assert screen.bus.agent("nova").state == "active"


async def test_early_screen_does_not_replace_a_status_being_stored(screen: Screen) -> None:
    asks = {"tool_name": "Bash", "tool_input": {"command": "make"}}
    await screen.hook(screen.nova, "PermissionRequest", **asks)
    await screen.reports.report(screen.nova, SetStatus(state="idle"))
    screen.bus.clock.advance(2.0)  # The delay is over as soon as the kept report waits.
    screen.log.hold()
    await screen.start(SetStatus(state="active", detail="make"))
    await screen.log.next_held()

    assert await screen.finish() == ("active", "make")


async def test_agent_that_is_leaving_has_no_new_status(screen: Screen) -> None:
    screen.log.hold()
    await screen.start(SetStatus(state="exited"))
    await screen.start_screen("active")

    assert (await screen.finish())[0] == "exited"
