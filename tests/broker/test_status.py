"""Status reports of agents and the daemon, on both engines."""

import asyncio

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import BadRequest, BadText, NotAllowed, WhoAreYou
from palaver.protocol.agents import Agent, Caller, Standing
from palaver.protocol.requests import DaemonStarted, SetStatus

GUEST = Caller(name="ann", standing=Standing.GUEST, kind="external")


async def test_status_is_stored_with_its_details(bus: Bus) -> None:
    luna = await bus.join("luna")
    bus.clock.advance(3)

    event = await bus.submit(luna, SetStatus(state="listening", detail="waits", tool="Bash", file="a.py"))

    assert event is not None
    assert event.payload == {"state": "idle", "detail": "waits", "tool": "Bash", "file": "a.py"}
    agent = bus.agent("luna")
    assert (agent.state, agent.detail, agent.since) == ("idle", "waits", bus.clock.now_ms())


async def test_edited_file_is_stored_with_its_full_path(bus: Bus) -> None:
    luna = await bus.join("luna", cwd="/home/ann/shop")

    for file in ("src/../a.py", "/home/ann/shop/a.py"):
        event = await bus.submit(luna, SetStatus(state="active", file=file))

        assert event is not None
        assert event.payload["file"] == "/home/ann/shop/a.py"


async def test_exited_status_is_a_bye(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")

    first = await bus.submit(luna, SetStatus(state="inactive"))
    second = await bus.submit(nova, SetStatus(state="exited", detail="done"))

    assert first is not None
    assert second is not None
    assert [first.type, first.payload["reason"]] == ["agent.bye", "exited"]
    assert second.payload["reason"] == "done"
    assert bus.agent("luna").left


async def test_conditional_status_depends_on_the_stored_state(bus: Bus) -> None:
    luna = await bus.join("luna")
    seen: list[str] = []

    def is_idle(agent: Agent) -> bool:
        seen.append(agent.state)
        return agent.state == "idle"

    first, second = await asyncio.gather(
        bus.broker.submit_status(luna, SetStatus(state="active", detail="one"), only_if=is_idle),
        bus.broker.submit_status(luna, SetStatus(state="active", detail="two"), only_if=is_idle),
    )

    assert first.event is not None
    assert second.event is None
    assert (seen[-1], bus.agent("luna").detail) == ("active", "one")


async def test_conditional_status_sees_one_that_is_being_stored(bus: Bus) -> None:
    luna = await bus.join("luna")

    _, written = await asyncio.gather(
        bus.broker.submit(luna, SetStatus(state="blocked", detail="permission: Bash")),
        bus.broker.submit_status(
            luna, SetStatus(state="active"), only_if=lambda agent: agent.state != "blocked"
        ),
    )

    assert written.event is None
    assert bus.agent("luna").detail == "permission: Bash"


async def test_first_conditional_idle_status_makes_an_agent_ready(bus: Bus) -> None:
    luna = await bus.join("luna")

    await bus.broker.submit_status(luna, SetStatus(state="idle"), only_if=lambda agent: False)
    was_ready = bus.agent("luna").ready
    await bus.broker.submit_status(luna, SetStatus(state="idle"), only_if=lambda agent: True)

    assert (was_ready, bus.agent("luna").ready) == (False, True)


async def test_exited_status_also_obeys_its_condition(bus: Bus) -> None:
    luna = await bus.join("luna")

    kept = await bus.broker.submit_status(luna, SetStatus(state="exited"), only_if=lambda agent: False)
    has_left = bus.agent("luna").left
    await bus.broker.submit_status(luna, SetStatus(state="exited"), only_if=lambda agent: True)

    assert kept.event is None
    assert (has_left, bus.agent("luna").left) == (False, True)


async def test_agent_that_has_left_gets_no_conditional_status(bus: Bus) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, SetStatus(state="exited"))

    written = await bus.broker.submit_status(luna, SetStatus(state="active"), only_if=lambda agent: True)

    assert written.event is None
    assert bus.agent("luna").state == "exited"


async def test_conditional_status_needs_the_same_rights(bus: Bus) -> None:
    with pytest.raises(WhoAreYou):
        await bus.broker.submit_status(HUMAN, SetStatus(state="idle"), only_if=lambda agent: True)
    with pytest.raises(NotAllowed):
        await bus.broker.submit_status(GUEST, SetStatus(state="idle"), only_if=lambda agent: True)


async def test_only_an_agent_has_a_status(bus: Bus) -> None:
    for asking in (HUMAN, SCRIPT):
        with pytest.raises(WhoAreYou):
            await bus.submit(asking, SetStatus(state="idle"))


async def test_unknown_state_is_refused(bus: Bus) -> None:
    luna = await bus.join("luna")

    with pytest.raises(BadRequest, match="states are"):
        await bus.submit(luna, SetStatus(state="happy"))
    with pytest.raises(BadText):
        await bus.submit(luna, SetStatus(state="idle", detail="\x1b[2J"))


async def test_daemon_reports_that_it_started(bus: Bus) -> None:
    event = await bus.submit(SYSTEM_CALLER, DaemonStarted(pid=7, version="1"))

    assert event is not None
    assert event.payload == {"action": "daemon_started", "pid": 7, "version": "1"}
