"""A program written from the description of the message types alone: plain sockets, and no capabilities.

It knows PASS, NICK, USER, JOIN, PRIVMSG, PING and JSON, and nothing else of IRC or of Palaver.
"""

import json
import socket
from collections.abc import Iterator
from typing import Any, Self

import pytest
from irctokens.line import Line, build
from irctokens.stateful import StatefulDecoder, StatefulEncoder
from tests.daemon.stage import Home
from tests.irc.stage import port_of, register
from tests.limits import LIMIT_S

CHANNEL = "#general"


class Program:
    """An agent of the source system, connected as it would be there."""

    def __init__(self, port: int, nick: str, password: str) -> None:
        self.nick = nick
        self._ts_ms = 1_712_000_000_000
        self._decoder, self._encoder = StatefulDecoder(), StatefulEncoder()
        self._lines: list[Line] = []
        self._wire = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._send(build("PASS", [password]))
        self._send(build("NICK", [nick]))
        self._send(build("USER", [nick, "0", "*", nick]))
        self._until("001")
        self._send(build("JOIN", [CHANNEL]))
        self._until("366")

    def say(
        self, type: str, id: str, payload: dict[str, Any], *, to: list[str] | None = None
    ) -> dict[str, Any]:
        """Send one envelope to the channel, and return it. A value that is empty is left out."""
        envelope: dict[str, Any] = {"v": 1, "type": type, "id": id, "from": self.nick}
        envelope |= {"to": to} if to else {}
        self._ts_ms += 1000
        envelope |= {"ts": self._ts_ms}
        envelope |= {"payload": payload} if payload else {}
        self._send(build("PRIVMSG", [CHANNEL, json.dumps(envelope)]))
        return envelope

    def hear(self, type: str) -> dict[str, Any]:
        """Return the next envelope of a type. Every PRIVMSG must be an envelope, and NOTICE is for people."""
        while True:
            line = self._until("PRIVMSG")
            envelope: dict[str, Any] = json.loads(line.params[-1])
            assert envelope["v"] == 1
            assert {"type", "id", "from", "ts"} <= set(envelope)
            if envelope["type"] == type:
                return envelope

    def quit(self) -> None:
        """Leave the network, and wait until the server has closed the connection."""
        self._send(build("QUIT", ["done"]))
        while self._wire.recv(65536):
            pass

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, line: Line) -> None:
        self._encoder.push(line)
        while self._encoder.pending():
            self._encoder.pop(self._wire.send(self._encoder.pending()))

    def _until(self, command: str) -> Line:
        seen: list[str] = []
        while True:
            while not self._lines:
                data = self._wire.recv(65536)
                assert data, f"closed after {seen[-20:]}"
                self._lines += self._decoder.push(data) or []
            line = self._lines.pop(0)
            seen.append(line.format())
            if line.command == "PING":
                self._send(build("PONG", line.params))
            if line.command == command:
                return line


def ulid(number: int) -> str:
    """Return a rising id in the form of the description."""
    return f"01HX9Z{number:020d}"


@pytest.fixture
def port(bus: Home) -> int:
    return port_of(bus)


@pytest.fixture
def orchestrator(bus: Home, port: int) -> Iterator[Program]:
    token = register(bus, "orchestrator-1", "--role", "orchestrator")
    with Program(port, "orchestrator-1", token) as program:
        yield program


@pytest.fixture
def worker(bus: Home, port: int, orchestrator: Program) -> Iterator[Program]:
    """A second program. The first one is in the channel before it."""
    token = register(bus, "claude-myrepo-a1b2c3d4")
    with Program(port, "claude-myrepo-a1b2c3d4", token) as program:
        yield program


def test_program_creates_updates_and_completes_a_task(
    bus: Home, orchestrator: Program, worker: Program
) -> None:
    created = {"title": "Refactor auth", "description": "…", "assignee": worker.nick}
    sent = orchestrator.say("task.create", ulid(1), created, to=["@workers"])
    task = worker.hear("task.create")
    changed = worker.say("task.update", ulid(2), {"task_id": task["id"], "status": "in_progress"})
    update = orchestrator.hear("task.update")
    ended = worker.say("task.complete", ulid(3), {"task_id": task["id"], "summary": "Tests pass."})
    complete = orchestrator.hear("task.complete")

    assert (task, update, complete) == (sent, changed, ended)
    (shown,) = [line for line in bus.ok("task", "list", "--all", "--json").lines if line.get("id") == ulid(1)]
    assert (shown["title"], shown["status"]) == ("Refactor auth", "completed")


def test_program_sees_hello_and_bye_of_another_one(orchestrator: Program, worker: Program) -> None:
    worker.say("agent.hello", ulid(1), {"runtime": "claude-code", "version": "1.2.3"})
    hello = orchestrator.hear("agent.hello")
    while hello["id"] != ulid(1):  # the bus itself says hello for an agent that connects
        hello = orchestrator.hear("agent.hello")
    worker.say("agent.bye", ulid(2), {})
    bye = orchestrator.hear("agent.bye")
    worker.quit()

    assert (hello["from"], hello["payload"]) == (worker.nick, {"runtime": "claude-code", "version": "1.2.3"})
    assert (bye["from"], bye.get("payload", {})) == (worker.nick, {})


def test_program_connects_again_after_its_bye_with_the_same_token(
    bus: Home, port: int, orchestrator: Program
) -> None:
    token = register(bus, "codex-7")
    with Program(port, "codex-7", token) as first:
        first.say("agent.bye", ulid(1), {})
        orchestrator.hear("agent.bye")
        first.quit()

    with Program(port, "codex-7", token) as again:
        again.say("myorg.deploy.triggered", ulid(2), {"to": "production"})

        assert orchestrator.hear("myorg.deploy.triggered")["payload"] == {"to": "production"}


def test_envelope_is_stored_for_the_agents_that_its_to_matches(
    bus: Home, orchestrator: Program, worker: Program
) -> None:
    register(bus, "codex-7")
    orchestrator.say("myorg.alert.fired", ulid(1), {"n": 1}, to=["codex-7"])
    orchestrator.say("myorg.alert.fired", ulid(2), {"n": 2}, to=["@claude-*", "@observers"])
    orchestrator.say("myorg.alert.fired", ulid(3), {"n": 3})

    while worker.hear("myorg.alert.fired")["id"] != ulid(3):
        pass

    stored = {event["id"]: set(event["delivered_to"]) for event in bus.events("--type", "myorg.alert.fired")}
    assert stored[ulid(1)] == {"codex-7"}
    assert stored[ulid(2)] == {worker.nick}
    assert worker.nick in stored[ulid(3)]


def test_program_without_multiline_gets_a_valid_envelope_for_a_long_one(
    bus: Home, orchestrator: Program, worker: Program
) -> None:
    payload = {"text": "€" * 30_000}
    bus.ok("put", "myorg.long", "--stdin", "--id", ulid(9), content=json.dumps(payload).encode())

    found = worker.hear("myorg.long")

    assert found["id"] == ulid(9)
    assert set(found["payload"]) == {"palaver.too_long"}
    assert found["payload"]["palaver.too_long"] >= 90_000
