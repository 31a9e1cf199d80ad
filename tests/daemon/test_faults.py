"""Unusual byte orders and repeats: each gets an error sentence, and none causes a traceback.

The end of each test checks the daemon's log.
"""

import asyncio
import json
import os
import threading
from typing import Any

import pytest
from tests.daemon.stage import Home
from tests.daemon.wires import LinesWire, frame, request
from tests.daemon.wires import connect as connect_to

import palaver
from palaver.errors import IdTaken


def test_many_joins_and_a_hang_up_leave_no_traceback(bus: Home) -> None:
    for _ in range(20):
        with connect_to(bus.path) as wire:
            joins = [{"req": n, "op": "join", "name": f"agent{n}"} for n in range(1, 30)]
            wire.sendall(b"".join(json.dumps(join).encode() + b"\n" for join in joins))

    bus.ok("list")


@pytest.mark.parametrize("words", [("list",), ("send", "luna", "--", "hi"), ("mcp", "--help"), ()])
def test_pump_with_another_command_is_refused(bus: Home, words: tuple[str, ...]) -> None:
    with connect_to(bus.path) as wire:
        wire.sendall(b"PALM" + request(*words))
        answer = b""
        while piece := wire.recv(65536):
            answer += piece

    assert answer.endswith(frame(b"Q", b"\1"))
    assert b"only 'pal mcp'" in answer


def test_same_id_with_different_content_is_refused_at_every_door(bus: Home) -> None:
    id = "01J0000000000000000000000A"
    first = bus.ok("send", "@human", "--id", id, "--json", "--", "one").json

    again = bus.ok("send", "@human", "--id", id, "--json", "--", "one").json
    other = bus.pal("send", "@human", "--id", id, "--json", "--", "two")

    assert (again["seq"], other.status) == (first["seq"], 1)
    assert (other.error["error"], other.error["details"]["seq"]) == ("id_taken", first["seq"])

    async def by_sdk() -> None:
        async with palaver.connect("luna", home=bus.path) as me:
            sent = await me.send("@human", "one", id=id, intent="inform")
            assert (await me.send("@human", "one", id=id, intent="inform")).seq == sent.seq
            for text, fields in (("two", {"intent": "inform"}), ("one", {"intent": "request"})):
                with pytest.raises(IdTaken):
                    await me.send("@human", text, id=id, **fields)  # type: ignore[arg-type]  # fields of a send
            with pytest.raises(IdTaken):
                await me.send(["@human", "@luna"], "one", id=id, intent="inform")
            envelope = palaver.Envelope.new("build.done", "luna", {"ok": True})
            stored = await me.put(envelope)
            assert (await me.put(envelope)).seq == stored.seq
            for changed in (
                palaver.Envelope(type="build.done", id=envelope.id, sender="luna", payload={"ok": False}),
                palaver.Envelope(type="build.failed", id=envelope.id, sender="luna", payload={"ok": True}),
                palaver.Envelope(type="message", id=envelope.id, sender="luna", payload={"text": "x"}),
            ):
                with pytest.raises(IdTaken):
                    await me.put(changed)

    asyncio.run(by_sdk())


def test_id_of_a_task_cannot_be_used_for_another(bus: Home) -> None:
    def put(wire: LinesWire, **payload: object) -> dict[str, object]:
        envelope = {"v": 1, "type": "task.create", "id": "T1", "from": "luna", "payload": payload}
        return wire.ask("put", envelope=envelope)

    with LinesWire(bus.path) as wire:
        wire.ask("join", name="luna")

        assert "ok" in put(wire, title="build it")
        assert "ok" in put(wire, title="build it")
        assert put(wire, title="test it")["error"] == "id_taken"


def test_repeated_wait_after_a_crash_does_not_return_a_turn_that_moved_on(bus: Home) -> None:
    folder = bus.spare_path()
    folder.mkdir()
    handoff = {"status": "s", "next_action": "n", "artifacts": [], "open_questions": [], "do_not": []}

    def call(wire: LinesWire, tool: str, key: str = "", **arguments: object) -> dict[str, Any]:
        fields = {
            "tool": tool,
            "arguments": arguments,
            "cwd": str(folder),
            "key": key or os.urandom(16).hex(),
        }
        answer = wire.ask("tool", **fields)
        found: dict[str, Any] = answer["ok"]
        return found

    key = "ab" * 16
    with LinesWire(bus.path) as luna, LinesWire(bus.path) as nova:
        secret = luna.ask("join", name="luna")["ok"]["secret"]
        nova_secret = nova.ask("join", name="nova")["ok"]["secret"]
        room = call(luna, "join_path", context_path=str(folder))["room_id"]
        call(nova, "join_path", context_path=str(folder))
        first = call(luna, "wait_for_turn", key, room_id=room, max_wait_ms=0)
        passed = {"room_id": room, "lease_id": first["lease_id"], "expected_turn_id": first["turn_id"]}
        call(luna, "pass_stick", **passed, to_agent_id="nova", handoff=handoff)
        assert call(nova, "wait_for_turn", room_id=room, max_wait_ms=0)["status"] == "your_turn"
        bus.kill()
    bus.ok("up")

    with LinesWire(bus.path) as luna, LinesWire(bus.path) as nova:
        nova.ask("join", name="nova", secret=nova_secret)
        luna.ask("join", name="luna", secret=secret)
        repeated = call(luna, "wait_for_turn", key, room_id=room, max_wait_ms=0)

    assert first["status"] == "your_turn"
    assert repeated["status"] == "not_yet"


def test_named_pipe_is_refused_as_a_file(bus: Home) -> None:
    folder = bus.spare_path()
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("pipe")

    refusals = [
        bus.pal("bundle", "create", "x", "--files", "pipe", cwd=folder),
        bus.pal("bundle", "create", "x", "--files", "link", cwd=folder),
        bus.pal("send", "@human", "--file", "pipe", cwd=folder),
    ]

    assert [refused.status for refused in refusals] == [1, 1, 1]
    assert all("named pipe" in refused.err for refused in refusals)


def test_ids_of_new_envelopes_increase_in_every_thread() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def make(into: list[str]) -> None:
        into += [palaver.Envelope.new("x", "luna").id for _ in range(3000)]

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(ids == sorted(ids) for ids in made)
    assert len({id for ids in made for id in ids}) == 12_000
