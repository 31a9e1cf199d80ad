"""The agents that a native lane reaches, as the bus sees them: an agent, its sub-agents, their requests."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.holder.nobody import Nobody
from tests.holder.stage import Stage

from palaver.client.wire import ReplyLine
from palaver.harness.base import AgentReport
from palaver.holder.connection import HolderConnection
from palaver.holder.native_lane import NativeLanes
from palaver.protocol.events import AgentState, Outcome
from palaver.protocol.lines import HoldOp

OWN = Outcome(messages=(3,), answer="seen")
BELOW = Outcome(messages=(4,), answer="seen", name="luna_sub_1")


class Reached:
    """An integration with a quiet harness, connected to the bus."""

    def __init__(self, stage: Stage) -> None:
        self.is_held = asyncio.Event()
        self.others: list[ReplyLine] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.bus = HolderConnection(
            str(stage.home), HoldOp(pid=1, ticket="t", secret="s"), self._on_held, self._on_push
        )
        self.harness = Nobody()
        self.lanes = NativeLanes(
            self.bus, lambda bus: self.harness, spawn=self._spawn, on_status=lambda: None
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def _on_held(self, held: object) -> None:
        self.lanes.connected()
        self.is_held.set()

    def _on_push(self, line: ReplyLine) -> None:
        self.lanes.claim(line, self.others.append)


@pytest.fixture
def reached(stage: Stage) -> Reached:
    return Reached(stage)


async def test_outcomes_of_the_agent_and_its_subagents_are_kept_apart(reached: Reached) -> None:
    reached.lanes.remember((BELOW, OWN))

    assert reached.lanes.lane.outcomes == (OWN,)
    assert reached.lanes.subagents.outcomes == (BELOW,)
    assert reached.lanes.outcomes == (OWN, BELOW)


async def test_offer_for_an_unknown_lane_is_passed_on(reached: Reached) -> None:
    line = ReplyLine(push="offer", lane=9)

    reached.lanes.claim(line, reached.others.append)

    assert reached.others == [line]
    assert reached.lanes.is_at_rest


async def test_decision_on_an_unknown_request_does_nothing(reached: Reached) -> None:
    reached.lanes.decide(ReplyLine(push="decision", request="per_1", allowed=True))

    await reached.lanes.settle()
    assert reached.tasks == []


async def test_lane_opens_with_the_first_connection_after_the_harness_is_ready(
    stage: Stage, reached: Reached
) -> None:
    running = asyncio.create_task(reached.bus.run())
    async with asyncio.timeout(5):
        await reached.is_held.wait()

    reached.harness.status = AgentReport(state=AgentState.IDLE)
    reached.bus.drop()
    await stage.daemon.heard("lane", kind="native")
    reached.lanes.close()
    running.cancel()
    await asyncio.wait([running, *reached.tasks])

    assert [request["op"] for request in stage.daemon.said] == ["hold", "hold", "lane"]
