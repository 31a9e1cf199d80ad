"""Paths of an earlier system, case by case, on a real broker; except where the design differs."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes import Bus, open_memory, opened_bus

from palaver.errors import PalaverError
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.events import MessageSent
from palaver.protocol.message import EXTERNAL
from palaver.protocol.paths import BROADCAST_PATH, Content, Delivered, SubscriptionResult, split_mailbox
from palaver.services.paths import PathService, Range
from palaver.services.queries import Queries

FOLDER = Path(__file__).parents[1] / "vectors"
ROUTING: list[dict[str, Any]] = json.loads((FOLDER / "routing.json").read_text())
MATCHES: list[dict[str, Any]] = json.loads((FOLDER / "path_match.json").read_text())
SCRIPT = Caller(name="script", standing=Standing.WORKER, kind=EXTERNAL)

SKIPPED = {
    ("rt-19", 4): "a missing agentId is an error of the WebSocket door: here the caller is the agent",
}
DIFFERENT: Mapping[tuple[str, int], tuple[object, str]] = {
    ("rt-11", 0): ({"to": ["impl_acme"]}, "a name has no slash: impl/acme is the sub-agent impl_acme"),
    ("rt-19", 6): ({"error": "pattern is required"}, "a pattern is not empty after slashes are removed"),
    ("rt-19", 7): ({"error": "you are script"}, "a caller subscribes only its own agent, and ghost has none"),
    ("rt-19", 8): ({"delivered": False, "unmatched": True, "to": []}, "ghost could not subscribe"),
    ("rt-19", 11): (["a/b"], "the empty pattern was refused"),
}
"""Steps that the design decides otherwise: the fields that differ, and the reason."""

EMPTY = {("**", ""), ("", ""), ("x", ""), ("**/*", "")}
"""The source routes to the empty path, which matches `**`. Here a path and a pattern are never empty."""


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


class Player:
    """Plays the steps of a case, and returns results in the form of the vectors."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._callers: dict[str, Caller] = {}
        self.paths = PathService(bus.broker, Queries(bus.log), bus.delivery)

    async def set_up(self, agents: list[dict[str, Any]]) -> None:
        """Join the agents, as operators: some patterns reach the paths of other agents."""
        for agent in agents:
            name = _here(agent["id"])
            caller = self._callers[name] = await self._bus.join(name, role="operator")
            for pattern in agent.get("subs", ()):
                await self.paths.subscribe(caller, name, pattern)
            for session, patterns in agent.get("sessions", {}).items():
                for pattern in patterns:
                    await self.paths.subscribe(caller, name, pattern, session=session)

    def caller(self, name: str) -> Caller:
        """Return an agent of the case; any other sender is a script."""
        return self._callers.get(_here(name), SCRIPT)

    async def play(self, verb: str, *given: Any) -> object:
        match verb, given:
            case "send", (sender, to, message):
                return await self.route(sender, f"agent/{to}", message)
            case "broadcast", (sender, message):
                return await self.route(sender, BROADCAST_PATH, message)
            case "route", (sender, path, message):
                return await self.route(sender, path, message)
            case "receive", (agent,):
                return _read(await self.paths.receive(self.caller(agent), agent))
            case "receiveSession", (agent, session):
                return _read(await self.paths.receive(self.caller(agent), agent, session=session))
            case "sub", (agent, pattern):
                return _subscribed(await self.paths.subscribe(self.caller(agent), agent, pattern))
            case "unsub", (agent, pattern):
                return _subscribed(await self.paths.unsubscribe(self.caller(agent), agent, pattern))
            case "subs", (agent,):
                return [one.pattern for one in self.paths.subscriptions(agent)]
            case "unmatched", ():
                return _read(await self.paths.dead_letters())
            case "unmatched", ({"limit": limit},):
                return _read(await self.paths.dead_letters(Range(limit=limit)))
            case "clear", ():
                await self.paths.clear_dead_letters(SCRIPT)
                return {"cleared": True}
            case (("listen" | "listenSession"), _):
                return "ok"  # the mailboxes of the message show who hears it
            case "pushes", ():
                return self.pushes()
        raise AssertionError(verb)

    async def route(self, sender: str, path: str, message: dict[str, Any]) -> dict[str, object]:
        given = {"external_id" if name == "externalId" else name: value for name, value in message.items()}
        return _routed(await self.paths.route(self.caller(sender), path, Content(**given)))

    def pushes(self) -> list[list[str]]:
        """Return the mailboxes of the last message, in the order of delivery."""
        event = self._bus.log.event(self._bus.log.last())
        assert event is not None
        message = event.body
        assert isinstance(message, MessageSent)
        heard = [split_mailbox(mailbox) for mailbox in message.delivered_to]
        command = str(message.command)
        return [
            ["session", agent, session, command] if session else ["agent", agent, command]
            for agent, session in heard
        ]


def _here(name: str) -> str:
    return name.replace("/", "_")


def _routed(delivered: Delivered) -> dict[str, object]:
    message, result = delivered.message, delivered.result
    return {
        "delivered": result.delivered,
        "unmatched": result.unmatched,
        "to": list(result.delivered_to),
        "sessions": [[one.agent_id, one.session_id] for one in result.delivered_to_sessions],
        "path": message.path,
        "command": message.command,
        "payload": message.payload,
        "source": message.source,
        "externalId": message.external_id,
    }


def _subscribed(done: SubscriptionResult) -> dict[str, object]:
    note = {"note": done.note} if done.note else {}
    return {"success": True, "pattern": done.pattern, **note}


def _read(messages: list[Any]) -> list[dict[str, object]]:
    """Return messages as JSON, and whether the fields are there that only some of them have."""
    found = msgspec.json.decode(msgspec.json.encode(messages), type=list[dict[str, object]])
    has = ("status", "handled")
    return [{**one, **{f"has_{name}": name in one for name in has}} for one in found]


def _holds(expected: object, found: object) -> bool:
    """Return whether a result has the expected fields; it may have others."""
    if isinstance(expected, dict) and "error" in expected and isinstance(found, PalaverError):
        return str(found).startswith(expected["error"])
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(name in found and _holds(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_holds, expected, found))
    return expected == found


@pytest.mark.parametrize("case", ROUTING, ids=lambda case: case["id"])
async def test_routing_vector_holds(case: dict[str, Any], bus: Bus) -> None:
    player = Player(bus)
    await player.set_up(case["agents"])

    for number, step in enumerate(case["steps"]):
        if (case["id"], number) in SKIPPED:
            continue
        other, _ = DIFFERENT.get((case["id"], number), (None, ""))
        expected = step["expect"]
        if other is not None:
            is_merged = isinstance(other, dict) and "error" not in other
            expected = {**expected, **other} if is_merged else other  # type: ignore[dict-item]  # merged above

        try:
            found = await player.play(*step["op"])
        except PalaverError as error:
            found = error

        assert _holds(expected, found), (number, step["op"], expected, found)


def test_every_exception_names_a_step() -> None:
    steps = {(case["id"], number) for case in ROUTING for number in range(len(case["steps"]))}

    assert {*SKIPPED, *DIFFERENT} <= steps
    assert {(row["pattern"], row["path"]) for row in MATCHES} >= EMPTY


@pytest.mark.parametrize("row", MATCHES, ids=lambda row: f"{row['pattern']} {row['path']}")
async def test_message_reaches_a_subscription_as_in_the_vectors(row: dict[str, Any], bus: Bus) -> None:
    player = Player(bus)
    await player.set_up([{"id": "reader"}])
    pattern, path = row["pattern"], row["path"]

    if (pattern, path) in EMPTY:
        with pytest.raises(PalaverError, match="path is required"):
            await player.route("script", path, {})
        return
    await player.paths.subscribe(player.caller("reader"), "reader", pattern)
    routed = await player.route("script", path, {})

    assert routed["delivered"] is row["routes"]
