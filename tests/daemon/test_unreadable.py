"""Unreadable events: none can be stored, and a log that already contains one stays usable."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import aclosing, closing
from typing import Any

import pytest
from tests.daemon.stage import Home, check_output, run_as_person
from tests.daemon.wires import LinesWire
from tests.limits import LIMIT_S

import palaver
from palaver.errors import BadRequest


def by_command(bus: Home) -> dict[str, Any]:
    return bus.pal("send", "///", "--json", "--", "x").error


def by_lines(bus: Home) -> dict[str, Any]:
    with LinesWire(bus.path) as wire:
        wire.ask("join", name="luna")
        return wire.ask("send", to=["///"], text="x")


def by_tool(bus: Home) -> dict[str, Any]:
    with LinesWire(bus.path) as wire:
        wire.ask("join", name="luna")
        answer = wire.ask("tool", tool="send", arguments={"to": "///", "text": "x"}, cwd="/")
        refusal: dict[str, Any] = answer.get("ok") or answer
        return refusal


def by_sdk(bus: Home) -> dict[str, Any]:
    async def send() -> dict[str, Any]:
        async with palaver.connect("luna", home=bus.path) as me:
            try:
                await me.send("///", "x")
            except BadRequest as error:
                return {"error": error.code, "message": str(error)}
        return {}

    return asyncio.run(send())


@pytest.mark.parametrize("send", [by_command, by_lines, by_tool, by_sdk])
def test_path_of_slashes_is_refused_at_every_door(bus: Home, send: Callable[[Home], dict[str, Any]]) -> None:
    refusal = send(bus)

    assert (refusal["error"], "not a slash" in refusal["message"]) == ("bad_request", True)
    assert bus.events("--type", "message") == []


def poison(bus: Home) -> None:
    """Write an event with an empty sender into the log, as an older version did."""
    bus.kill()
    with closing(sqlite3.connect(bus.path / "log.sqlite")) as connection, connection:
        connection.execute(
            "INSERT INTO events (type, id, sender, payload, ts, device) VALUES ('x', '01', '', ?, 1, 'X')",
            ('{"messages": [1], "state": "dead", "agent": ""}',),
        )
    bus.ok("up")


def test_log_with_an_unreadable_event_works_normally(bus: Home) -> None:
    bus.ok("send", "@human", "--", "before")
    poison(bus)
    bus.ok("send", "@human", "--", "after")

    async def read() -> list[str]:
        async with palaver.connect("luna", home=bus.path) as me:
            texts = [str(event.payload["text"]) for event in await me.events() if event.type == "message"]
            async with asyncio.timeout(LIMIT_S), aclosing(me.follow(after=0)) as events:
                while len(texts) < 4:
                    event = await anext(events)
                    texts += [str(event.payload["text"])] if event.type == "message" else []
        return texts

    assert bus.texts() == ["before", "after"]
    assert asyncio.run(read()) == ["before", "after"] * 2
    assert [line["from"] for line in bus.ok("export").lines if line["type"] == "message"] == ["script"] * 2
    checks = {check["check"]: check["ok"] for check in bus.pal("doctor", "--json").lines if "check" in check}
    assert checks["events that could not be read: 1 that readers skip"] is False
    moved = check_output(run_as_person(bus, "archive", "--before", "999", "--json")).json
    assert moved["archived"] > 2
    assert bus.texts() == []
    archived = bus.ok("events", "--archived", "--type", "message", "--json").lines
    assert [line["payload"]["text"] for line in archived] == ["before", "after"]


def test_content_of_a_newer_version_is_described_and_not_printed_as_it_is(bus: Home) -> None:
    bus.ok("send", "@human", "--", "before")
    bus.kill()
    newer = [("kick", '{"who": ["nova"]}'), ("status", '{"state": {"word": "idle"}, "tool": "Bash"}')]
    with closing(sqlite3.connect(bus.path / "log.sqlite")) as connection, connection:
        connection.executemany(
            "INSERT INTO events (type, id, sender, payload, ts, device) VALUES (?, ?, 'nova', ?, 1, 'X')",
            [(type_, f"01{number}", payload) for number, (type_, payload) in enumerate(newer)],
        )

    kick, status = (bus.ok("events", "--type", type_).out for type_, _ in newer)
    (seq,) = [event["seq"] for event in bus.events("--type", "kick")]

    expected = "(the content cannot be read: it is damaged, or a newer version of Palaver wrote it; "
    assert f"{expected}'pal show {seq} --json' prints it)" in kick
    assert "? (Bash) (cannot be read: state)" in status
    assert bus.ok("show", str(seq), "--json").json["payload"] == {"who": ["nova"]}


def test_fields_of_a_foreign_envelope_are_shown_above_its_text(bus: Home) -> None:
    payload = {"priority": "idle", "path": "build/linux", "thread": "ci", "reply_to": 5, "intent": "inform"}

    async def put() -> int:
        async with palaver.connect("luna", home=bus.path) as me:
            return (await me.put(palaver.Envelope.new("build.done", "luna", {**payload, "ok": True}))).seq

    seq = asyncio.run(put())

    head, *lines = bus.ok("show", str(seq)).out.splitlines()
    assert head.startswith(f"#{seq} build.done from luna")
    assert lines[:5] == ["intent inform", "thread ci", "reply to 5", "priority idle", "path build/linux"]
