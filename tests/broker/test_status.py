"""Status reports of agents and the daemon, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import BadRequest, BadText, WhoAreYou
from palaver.protocol.requests import DaemonStarted, SetStatus


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
