"""The index of agents: the seats and the presence of all agents, kept in step with the state."""

import asyncio
import os
from pathlib import Path

from tests.fakes import OpenLog, opened_bus
from tests.log.logs import draft

from palaver.identity.presence import AgentIndex
from palaver.identity.process import boot_id, read_process
from palaver.protocol.agents import Seat
from palaver.protocol.events import BYE
from palaver.protocol.message import HUMAN


def own_seat() -> Seat:
    """Return the seat of the process that runs the tests."""
    process = read_process(os.getpid())
    assert process is not None
    return Seat(pid=process.pid, start=process.start, boot=boot_id())


async def test_index_has_the_agents_of_the_state_and_those_that_join_later(
    open_log: OpenLog, tmp_path: Path
) -> None:
    async with opened_bus(open_log, tmp_path) as bus:
        seat = own_seat()
        await bus.join("luna", seat=seat)
        agent_index = AgentIndex(bus.log, lambda *_: None, asyncio.get_running_loop().call_later, b"secret")

        agent_index.start()
        await bus.join("nova")

        assert [agent.name for agent in agent_index.seats.at(seat)] == ["luna"]
        assert agent_index.is_in_reach("luna")
        assert not agent_index.is_in_reach("nova")
        assert agent_index.is_in_reach(HUMAN)
        agent_index.close()


async def test_closed_index_does_not_follow_the_log(open_log: OpenLog, tmp_path: Path) -> None:
    async with opened_bus(open_log, tmp_path) as bus:
        agent_index = AgentIndex(bus.log, lambda *_: None, asyncio.get_running_loop().call_later, b"secret")
        agent_index.start()
        agent_index.close()

        await bus.join("luna", seat=own_seat())

        assert not agent_index.is_in_reach("luna")


async def test_news_of_an_unknown_agent_changes_nothing(open_log: OpenLog, tmp_path: Path) -> None:
    async with opened_bus(open_log, tmp_path) as bus:
        agent_index = AgentIndex(bus.log, lambda *_: None, asyncio.get_running_loop().call_later, b"secret")
        agent_index.start()
        written = draft(type=BYE, sender="ghost", to=())

        await bus.log.commit(None, lambda rows: written)

        assert not agent_index.is_in_reach("ghost")
        agent_index.close()
