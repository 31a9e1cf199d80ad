"""Tool calls as JSON lines at the Unix door, while real daemons end."""

import asyncio
import signal
import socket
from typing import Any

import pytest
from tests.daemon.crew import HANDOFF, Agent, Crew
from tests.daemon.mcp_stage import RawPump
from tests.daemon.stage import Home, wait_until
from tests.daemon.wires import LinesWire
from tests.limits import LIMIT_S

import palaver


@pytest.fixture
def crew(bus: Home) -> Crew:
    return Crew(bus)


@pytest.fixture
def luna(crew: Crew) -> Agent:
    """A member that has the stick."""
    agent = crew.member("luna", "codex")
    agent.claim()
    return agent


def joined(home: Home, crew: Crew, name: str) -> LinesWire:
    """Connect a program that has a name and is a member of the room."""
    wire = LinesWire(home.path)
    wire.ask("join", name=name, secret="00" * 16)
    wire.ask("tool", tool="join_path", arguments={"context_path": str(crew.folder)})
    return wire


def is_waiting(luna: Agent, name: str) -> bool:
    return any(one["agent_id"] == name and one["waiting"] for one in luna.state()["members"])


def test_disconnected_program_stops_waiting(bus: Home, crew: Crew, luna: Agent) -> None:
    wire = joined(bus, crew, "nova")
    wire.tell("tool", tool="wait_for_turn", arguments={"room_id": "shop"})
    wait_until(lambda: is_waiting(luna, "nova"))

    wire.close()

    wait_until(lambda: not is_waiting(luna, "nova"))


def test_program_that_stops_sending_still_gets_its_response(bus: Home, crew: Crew, luna: Agent) -> None:
    with joined(bus, crew, "nova") as wire:
        number = wire.tell("tool", tool="wait_for_turn", arguments={"room_id": "shop"})
        wire.wire.shutdown(socket.SHUT_WR)
        wait_until(lambda: is_waiting(luna, "nova"))

        luna.ok("stick", "release", *HANDOFF)

        line = wire.next_line()
        assert (line["req"], line["ok"]["status"]) == (number, "your_turn")


def test_killed_client_stops_waiting(bus: Home, crew: Crew, luna: Agent) -> None:
    crew.member("nova", "claude")
    client = bus.start("stick", "wait", "--room", "shop", "--as", "nova")
    wait_until(lambda: is_waiting(luna, "nova"))

    client.kill()

    wait_until(lambda: not is_waiting(luna, "nova"))


def test_killed_pump_stops_waiting(bus: Home, crew: Crew, luna: Agent) -> None:
    crew.member("nova", "claude")
    pump = RawPump(bus, "--as", "nova")
    pump.begin()
    pump.call(1, "wait_for_turn", room_id="shop")
    wait_until(lambda: is_waiting(luna, "nova"))

    pump.process.kill()

    wait_until(lambda: not is_waiting(luna, "nova"))


def test_stopping_daemon_answers_waiting_programs(bus: Home, crew: Crew, luna: Agent) -> None:
    with joined(bus, crew, "nova") as wire:
        number = wire.tell("tool", tool="wait_for_turn", arguments={"room_id": "shop"})
        wait_until(lambda: is_waiting(luna, "nova"))

        bus.ok("down")

        line = wire.next_line()
        assert (line["req"], line["error"]) == (number, "shutting_down")
        assert wire.next_line() == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_wait_of_the_sdk_continues_with_the_next_daemon(
    bus: Home, crew: Crew, luna: Agent, number: int
) -> None:
    async with palaver.connect("nova", home=bus.path) as nova:
        room = (await nova.call("join_path", context_path=str(crew.folder)))["room_id"]
        waiting = asyncio.ensure_future(nova.call("wait_for_turn", room_id=room))
        await asyncio.to_thread(wait_until, lambda: is_waiting(luna, "nova"))

        bus.kill(number)
        await asyncio.to_thread(wait_until, lambda: is_waiting(luna, "nova"))
        await asyncio.to_thread(luna.ok, "stick", "release", *HANDOFF)

        async with asyncio.timeout(LIMIT_S):
            turn: dict[str, Any] = await waiting
        assert (turn["status"], turn["turn_id"]) == ("your_turn", 2)


async def test_repeated_tool_call_runs_once(bus: Home, crew: Crew, luna: Agent) -> None:
    async with palaver.connect("nova", home=bus.path) as nova:
        room = (await nova.call("join_path", context_path=str(crew.folder)))["room_id"]
        for number in range(10):
            saying = asyncio.ensure_future(nova.call("send_message", room_id=room, body=f"{number}"))
            if number % 3 == 0:
                await asyncio.to_thread(bus.kill)
            async with asyncio.timeout(LIMIT_S):
                await saying

    assert [event["payload"]["text"] for event in crew.events("message")] == [str(one) for one in range(10)]
