"""Messages to paths, through every door."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.flows.behaviours import behaviour
from tests.flows.door import Refused
from tests.flows.path_door import PathDoor, Routed

import palaver

RESULT = ("delivered", "deliveredTo", "deliveredToSessions", "messageId", "unmatched")


def reached(result: Mapping[str, Any]) -> tuple[bool, list[str], list[tuple[str, str]]]:
    """Return whether a message was delivered, and the agents and sessions that have it."""
    assert set(RESULT) <= result.keys()
    assert result["messageId"]
    assert result["unmatched"] is not result["delivered"]
    sessions = [(one["agentId"], one["sessionId"]) for one in result["deliveredToSessions"]]
    return result["delivered"], result["deliveredTo"], sessions


@behaviour("route")
async def test_routed_message_is_the_same_at_every_door(paths: PathDoor) -> None:
    luna, nova = await paths.join("luna"), await paths.join("nova")

    plain = await luna.route("agent/nova")
    full = await luna.route("//agent/nova/", "analyze", {"topic": ["AI safety"]}, "slack", "ts-1234")
    own = await luna.route("agent/luna", "note", [])

    assert [reached(result) for result in (plain, full, own)] == [
        (True, ["nova"], []),
        (True, ["nova"], []),
        (True, ["luna"], []),
    ]
    assert sorted(await nova.take(), key=lambda one: one.command) == [
        Routed(
            sender="luna",
            path="agent/nova",
            command="analyze",
            payload={"topic": ["AI safety"]},
            source="slack",
            external_id="ts-1234",
        ),
        Routed(sender="luna", path="agent/nova", command="message", payload={}),
    ]
    assert await luna.take() == [Routed(sender="luna", path="agent/luna", command="note", payload=[])]


@behaviour("route-subscribers")
async def test_routed_message_reaches_agents_and_sessions(paths: PathDoor, home: Path) -> None:
    luna = await paths.join("luna")
    async with palaver.connect("nova", home=home) as nova:
        await nova.subscribe("build/*")
        await nova.subscribe("build/failed", session="repairs")

        done = await luna.route("build/done", "report")
        failed = await luna.route("build/failed", "repair", {"commit": "4f2a9c1"})

        assert reached(done) == (True, ["nova"], [])
        assert reached(failed) == (True, ["nova"], [("nova", "repairs")])
        assert [one.payload for one in await nova.receive(session="repairs")] == [{"commit": "4f2a9c1"}]
        assert [(one.command, one.handled) for one in await nova.receive()] == [
            ("report", False),
            ("repair", True),
        ]


@behaviour("route-dead")
async def test_message_without_a_subscriber_is_a_dead_letter_at_every_door(
    paths: PathDoor, home: Path
) -> None:
    luna = await paths.join("luna")

    lost = await luna.route("deploy/done", "report", {"n": 1})
    ghost = await luna.route("agent/ghost")
    with pytest.raises(Refused) as refused:
        await luna.route("//")

    assert reached(lost) == reached(ghost) == (False, [], [])
    assert refused.value.code == "bad_request"
    async with palaver.connect("nova", home=home) as nova:
        letters = await nova.dead_letters()
    assert [(one.path, one.sender, one.reason) for one in letters] == [
        ("agent/ghost", "luna", "no_subscribers"),
        ("deploy/done", "luna", "no_subscribers"),
    ]
    assert letters[1].id == lost["messageId"]
