"""Live sub-agents, on a bus without doors."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import Bus, open_memory, open_sqlite, opened_bus, seat
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import DiskFull
from palaver.protocol.agents import Agent, BeginSubagent, Caller, Standing, caller_for
from palaver.protocol.query import Query
from palaver.protocol.requests import Gone, Leave, Request
from palaver.services import agents as module
from palaver.services.agents import Subagents


class Nest:
    """A bus and the book of its sub-agents."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup) -> None:
        self.bus = bus
        self._tasks = tasks
        self.subagents = Subagents(bus.log, bus.broker, tasks)

    def anew(self) -> Subagents:
        """Return a new book of sub-agents, as after a restart of the daemon."""
        self.subagents.close()
        self.subagents = Subagents(self.bus.log, self.bus.broker, self._tasks)
        return self.subagents

    async def begun(self, parent: str, key: str, type: str = "x") -> Agent:
        agent = await self.subagents.begun(parent, key, type)
        assert agent is not None
        return agent

    async def reason(self, name: str) -> str:
        """Wait until the end of an agent is stored, and return its reason."""
        changed = asyncio.Event()
        unsubscribe = self.bus.log.subscribe(lambda events: changed.set())
        async with asyncio.timeout(LIMIT_S):
            while not (agent := self.bus.agent(name)).left:
                changed.clear()
                await changed.wait()
        unsubscribe()
        return agent.detail


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
async def nest(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Nest]:
    async with opened_bus(request.param, tmp_path) as bus, asyncio.TaskGroup() as tasks:
        yield Nest(bus, tasks)


async def test_live_sub_agent_is_found_without_writing(nest: Nest) -> None:
    await nest.bus.join("luna", harness="claude", seat=seat(7))
    begun = await nest.begun("luna", "a1")
    before = nest.bus.log.last()

    again = await nest.subagents.begun("luna", "a1")

    assert again is not None
    assert again.name == begun.name == "luna_x_1"
    assert nest.subagents.find("luna", "a1") == again
    assert nest.subagents.of("luna") == [again]
    assert nest.bus.log.last() == before


async def test_ended_sub_agent_is_not_found_and_ends_once(nest: Nest) -> None:
    await nest.bus.join("luna", seat=seat(7))
    await nest.begun("luna", "a1")

    await nest.subagents.ended("luna", "a1", "done")
    await nest.subagents.ended("luna", "a1", "again")
    await nest.subagents.ended("luna", "never", "done")
    await nest.subagents.left("luna_x_1", "again")
    await nest.subagents.left("luna", "it is nobody's sub-agent")
    await nest.subagents.left("nobody", "-")

    assert await nest.reason("luna_x_1") == "done"
    assert (nest.subagents.find("luna", "a1"), nest.subagents.of("luna")) == (None, [])
    assert nest.subagents.was_here("luna", "a1")
    assert not nest.subagents.was_here("luna", "never")
    assert len(await nest.bus.log.read(Query(types=("agent.bye",)))) == 1


async def test_offline_or_unknown_parent_gets_no_sub_agent(nest: Nest) -> None:
    luna = await nest.bus.join("luna", seat=seat(7))
    await nest.bus.broker.submit(luna, Leave())

    assert await nest.subagents.begun("luna", "a1") is None
    assert await nest.subagents.begun("nobody", "a1") is None


async def test_sub_agents_end_with_their_parent_at_every_depth(nest: Nest) -> None:
    await nest.bus.join("luna", seat=seat(7))
    await nest.bus.join("nova", seat=seat(8))
    await nest.begun("luna", "a1")
    await nest.begun("luna_x_1", "b1", "y")
    await nest.begun("nova", "a1")

    await nest.bus.broker.submit(SYSTEM_CALLER, Gone(name="luna", reason="killed", seat=seat(7)))

    assert await nest.reason("luna_x_1") == "luna has ended: killed"
    assert await nest.reason("luna_x_1_y_1") == "luna_x_1 has ended: luna has ended: killed"
    assert not nest.bus.agent("nova_x_1").left


async def test_sub_agent_ends_when_its_parent_moves_to_another_process(nest: Nest) -> None:
    await nest.bus.join("luna", seat=seat(7), session="s", harness="claude")
    await nest.begun("luna", "a1")
    nest.bus.present.clear()

    await nest.bus.join("luna", seat=seat(9), session="s", harness="claude")

    assert await nest.reason("luna_x_1") == "luna is now another process"


async def test_sub_agent_ends_with_its_parent_although_the_disk_was_full(
    nest: Nest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nest.bus.join("luna", seat=seat(7))
    await nest.begun("luna", "a1")
    failures, submit = [DiskFull("no room")] * 2, nest.bus.broker.submit

    async def fail_at_first(caller: Caller, request: Request) -> object:
        if failures and isinstance(request, Gone) and request.name == "luna_x_1":
            raise failures.pop()
        return await submit(caller, request)

    monkeypatch.setattr(module, "TRY_AGAIN_S", 0)
    monkeypatch.setattr(nest.bus.broker, "submit", fail_at_first)

    await nest.bus.broker.submit(SYSTEM_CALLER, Gone(name="luna", reason="killed", seat=seat(7)))

    assert await nest.reason("luna_x_1") == "luna has ended: killed"
    assert failures == []


async def test_restart_keeps_live_sub_agents_and_ends_orphans(nest: Nest) -> None:
    await nest.bus.join("luna", seat=seat(7))
    nova = await nest.bus.join("nova", seat=seat(8))
    await nest.begun("luna", "a1")
    await nest.begun("nova", "a1")
    await nest.begun("nova", "a2")
    await nest.subagents.ended("nova", "a2")
    nest.subagents.close()
    await nest.bus.broker.submit(nova, Leave(reason=""))

    subagents = nest.anew()
    subagents.start()

    assert [agent.name for agent in subagents.of("luna")] == ["luna_x_1"]
    assert await nest.reason("nova_x_1") == "nova has ended"
    assert subagents.of("nova") == []


async def test_two_hooks_of_a_new_sub_agent_begin_it_once(nest: Nest) -> None:
    await nest.bus.join("luna", seat=seat(7))

    both = await asyncio.gather(nest.begun("luna", "a1", "x"), nest.begun("luna", "a1", ""))

    assert both[0].name == both[1].name


async def test_recent_tool_calls_are_known_by_their_id(nest: Nest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIMIT_CALLS", 2)

    for call, key in (("c1", "a1"), ("c2", "a2"), ("c1", "a1"), ("c3", "a1")):
        nest.subagents.calls(call, key)

    assert [nest.subagents.caller_of(call) for call in ("c1", "c2", "c3", "")] == ["a1", "", "a1", ""]


async def test_sub_agent_has_the_rights_of_its_role(nest: Nest) -> None:
    await nest.bus.join("luna", role="operator", harness="claude", seat=seat(7))

    caller = caller_for(await nest.begun("luna", "a1"))

    assert (caller.name, caller.standing, caller.kind) == ("luna_x_1", Standing.WORKER, "instance")
    assert (caller.harness, caller.seat, caller.by) == ("claude", seat(7, "a1"), None)


async def test_sub_agent_begun_through_the_broker_is_found(nest: Nest) -> None:
    await nest.bus.join("luna", seat=seat(7))

    await nest.bus.broker.submit(SYSTEM_CALLER, BeginSubagent(parent="luna", key="a1", type="x"))

    found = nest.subagents.find("luna", "a1")
    assert found is not None
    assert found.name == "luna_x_1"
