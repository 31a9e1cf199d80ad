"""The native lane of a terminal agent: while it is available nothing is typed; without it the terminal is
used.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FakeClock
from tests.holder.nobody import Nobody
from tests.holder.stage import Stage

from palaver.client.wire import ReplyLine
from palaver.clock import SystemClock
from palaver.harness.base import OPEN, AgentReport, Gate
from palaver.holder.agent import AgentContext, HeldAgent
from palaver.holder.agent_socket import listen
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.integration import INTEGRATIONS, AgentIntegration
from palaver.protocol.events import AgentState, Outcome
from palaver.protocol.lines import HoldOp
from palaver.terminal.pty import Exit, Pty, Running
from palaver.terminal.screen import ScreenState

IDLE = ScreenState(state=AgentState.IDLE)


def make(bus: HolderConnection, address: str, harness: str = "fake") -> AgentIntegration:
    return AgentIntegration(
        harness,
        address,
        bus,
        clock=FakeClock(),
        spawn=lambda work: work.close(),
        on_status=lambda: None,
        on_change=lambda: None,
    )


@pytest.fixture
def bus(stage: Stage) -> HolderConnection:
    async def on_held(held: object) -> None:
        return

    return HolderConnection(str(stage.home), HoldOp(pid=1), on_held, lambda line: None)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Nobody:
    found = Nobody()
    monkeypatch.setitem(INTEGRATIONS, "fake", lambda *arguments: lambda bus: found)
    return found


async def test_without_a_native_lane_only_the_terminal_is_used(bus: HolderConnection) -> None:
    for native in (make(bus, ""), make(bus, "/somewhere/s.sock", "generic")):
        others: list[ReplyLine] = []

        native.connected()
        native.take(ReplyLine(push="offer", lane=1), others.append)
        native.remember(())
        native.ended()
        await native.settle()
        native.clear()

        assert native.see(IDLE, OPEN) == (AgentReport(state=AgentState.IDLE), OPEN)
        assert len(others) == 1
        assert native.is_at_rest
        assert native.outcomes == ()


async def test_nothing_is_typed_while_the_native_lane_reports_a_status(
    bus: HolderConnection, way: Nobody
) -> None:
    native = make(bus, "/s.sock")
    way.status = AgentReport(state=AgentState.ACTIVE, tool="Bash")

    report, gate = native.see(IDLE, OPEN)

    assert report == way.status
    assert (gate.is_open, gate.reason) == (False, "native")
    assert way.calls == ["start"]


async def test_native_lane_starts_only_after_the_screen_is_ready(bus: HolderConnection, way: Nobody) -> None:
    native = make(bus, "/s.sock")

    report, gate = native.see(ScreenState(state=AgentState.STARTING), OPEN)

    assert (report.state, gate.is_open) == (AgentState.STARTING, False)
    assert way.calls == []


@pytest.mark.parametrize("word", [None, AgentReport(state=AgentState.STARTING)])
async def test_startup_dialog_closes_the_gate_like_any_dialog(
    bus: HolderConnection, way: Nobody, word: AgentReport | None
) -> None:
    native = make(bus, "/s.sock")
    way.status = word
    behind = Gate(is_open=False, reason="dialog")

    seen = native.see(ScreenState(state=AgentState.BLOCKED, reason="hooks need review"), behind)

    assert seen == (AgentReport(state=AgentState.BLOCKED, detail="hooks need review"), behind)


async def test_startup_dialog_is_reported_as_blocked(bus: HolderConnection, way: Nobody) -> None:
    native = make(bus, "/s.sock")

    report, gate = native.see(ScreenState(state=AgentState.BLOCKED, reason="permission"), OPEN)

    assert (report.state, report.detail, gate.is_open) == (AgentState.BLOCKED, "permission", False)


@pytest.mark.parametrize("state", [AgentState.IDLE, AgentState.EXITED])
async def test_terminal_is_used_when_the_native_lane_has_ended(
    bus: HolderConnection, way: Nobody, state: AgentState
) -> None:
    native = make(bus, "/s.sock")
    way.is_over = state is AgentState.IDLE

    assert native.see(ScreenState(state=state), OPEN) == (AgentReport(state=state), OPEN)


@asynccontextmanager
async def held_agent(stage: Stage) -> AsyncIterator[HeldAgent]:
    """Yield an agent of this process whose native lane is open, with the number 2."""
    pty, program = Pty.open(80, 24)
    running = Running(
        home=str(stage.home),
        pty=pty,
        child=os.getpid(),
        command=("fake",),
        native=f"{stage.home}/fake/s.sock",
    )
    tasks: list[asyncio.Task[None]] = []
    agents: list[HeldAgent] = []
    stage.daemon.harness = "fake"

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(work))

    async def on_held(held: Held) -> None:
        if not agents:
            around = AgentContext(
                bus=connection,
                clock=SystemClock(),
                spawn=spawn,
                on_hangup=lambda: None,
                on_rest=lambda: None,
                renew=lambda: None,
            )
            agents.append(HeldAgent(running, around, held, listen(stage.home / "agents" / "luna.sock")))
        await agents[0].connected()

    def hear(line: ReplyLine) -> None:
        agents[0].hear(line)

    connection = HolderConnection(str(stage.home), HoldOp(pid=1, ticket="t", secret="s"), on_held, hear)
    spawn(connection.run())
    try:
        await stage.daemon.heard("lane", kind="native")
        yield agents[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        agents[0].close()
        os.close(program)
        pty.close()


async def test_outcome_of_the_native_lane_is_reported_before_the_exit(stage: Stage, way: Nobody) -> None:
    way.status = AgentReport(state=AgentState.IDLE)
    stage.daemon.silent.add("answer")
    async with held_agent(stage) as agent:
        stage.daemon.offer(7, "hello", lane=2)
        await stage.daemon.heard("answer", lane=2)

        await stage.daemon.close()
        agent.ended(Exit(0))
        await stage.daemon.open()

        await stage.daemon.heard("leave")
        assert stage.daemon.last("lane")["outcomes"] == [{"messages": [7], "answer": "deferred"}]


async def test_agent_is_not_at_rest_before_the_enter_of_a_line(stage: Stage, way: Nobody) -> None:
    way.status = AgentReport(state=AgentState.IDLE)
    ours, theirs = socket.socketpair()
    async with held_agent(stage) as agent:
        viewer = agent.host.viewers.adopt(ours)
        before = agent.is_at_rest

        agent.host.on_control(viewer, {"type": "input", "text": "hello", "priority": "normal"})

        assert (before, agent.is_at_rest) == (True, False)
        viewer.close()
        theirs.close()


async def test_outcomes_are_kept_and_the_socket_folder_is_removed(
    bus: HolderConnection, way: Nobody, tmp_path: Path
) -> None:
    (tmp_path / "codex-1").mkdir()
    native = make(bus, str(tmp_path / "codex-1" / "server.sock"))

    native.remember(
        (Outcome(messages=(3,), answer="seen"), Outcome(messages=(4,), answer="seen", name="luna_sub_1"))
    )
    native.ended()
    native.clear()

    assert [(one.name, one.messages) for one in native.outcomes] == [("", (3,)), ("luna_sub_1", (4,))]
    assert way.calls == ["close"]
    assert not (tmp_path / "codex-1").exists()
