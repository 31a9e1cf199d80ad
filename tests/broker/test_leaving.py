"""Leaving, on both engines: one bye event, and none for an agent that has returned."""

import asyncio

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, seat

from palaver.broker.context import SYSTEM_CALLER, Written
from palaver.errors import NotAllowed, WhoAreYou
from palaver.protocol.requests import Gone, Join, Leave


async def test_leaving_writes_one_bye(bus: Bus) -> None:
    luna = await bus.join("luna")

    first, second = await bus.submit(luna, Leave(reason="done")), await bus.submit(luna, Leave())

    assert first is not None
    assert second is None
    agent = bus.agent("luna")
    assert (agent.left, agent.state, agent.detail) == (True, "exited", "done")


async def test_only_an_agent_leaves(bus: Bus) -> None:
    with pytest.raises(WhoAreYou):
        await bus.submit(SCRIPT, Leave())


async def test_bye_of_an_agent_that_has_returned_is_not_written(bus: Bus) -> None:
    await bus.join("luna", seat=seat(1), session="s", is_here=False)
    old = Gone(name="luna", reason="its process ended", seat=seat(1))

    await asyncio.gather(
        bus.broker.submit(SCRIPT, Join(name="luna", seat=seat(2), session="s")),
        bus.submit(SYSTEM_CALLER, old),
    )
    late = await bus.broker.submit(SYSTEM_CALLER, old)
    nobody = await bus.broker.submit(SYSTEM_CALLER, Gone(name="nova", reason="-"))

    assert late == nobody == Written(event=None)
    assert not bus.agent("luna").left


async def test_only_the_bus_reports_that_an_agent_ended(bus: Bus) -> None:
    await bus.join("luna")

    with pytest.raises(NotAllowed, match="the bus itself"):
        await bus.submit(HUMAN, Gone(name="luna", reason="-"))
