"""A view of a real daemon: it outlives it, and loses and repeats nothing."""

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.bus import Bus
from tests.limits import LIMIT_S

from palaver.client.view_link import BusAway, Record, ViewLink
from palaver.errors import BadQuery, BadRequest, Disconnected, NotFound, RoomNotFound
from palaver.protocol.views import (
    AgentPage,
    AgentsPage,
    AskAgent,
    AskAgents,
    AskLedger,
    AskLog,
    AskMessages,
    AskPermission,
    AskRoom,
    Changes,
    LedgerPage,
    LogPage,
    MessagesPage,
    PermissionPage,
    RoomPage,
    Snapshot,
)

KILLS = 20


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[tuple[ViewLink, AsyncIterator[Record]]]:
    """Yield a view and its records."""
    link = ViewLink(str(home))
    records = link.records()
    try:
        yield link, records
    finally:
        await records.aclose()
        await link.close()


async def take(records: AsyncIterator[Record]) -> Record:
    async with asyncio.timeout(LIMIT_S):
        return await anext(records)


async def take_snapshot(records: AsyncIterator[Record]) -> Snapshot:
    while not isinstance(record := await take(records), Snapshot):
        pass
    return record


async def take_event(records: AsyncIterator[Record], text: str) -> None:
    """Take records until one has an event with this text."""
    while True:
        record = await take(records)
        if not isinstance(record, BusAway) and any(event.text == text for event in record.events):
            return


async def test_view_has_no_gap_and_no_repeat_while_the_daemon_is_killed(bus: Bus) -> None:
    seqs: list[int] = []
    restarts = 0
    sent = 0
    is_over = False

    async def send() -> None:
        nonlocal sent
        async with bus.connect("luna") as luna:
            while not is_over:
                await asyncio.gather(*(luna.send("@luna", f"text {sent + step}") for step in range(10)))
                sent += 10
            await luna.send("@luna", "the end")

    async with opened(bus.home) as (_, records):
        first = await take_snapshot(records)
        sending = asyncio.create_task(send())
        for number in range(KILLS):
            goal = sent + 20
            while sent < goal:
                await note(records, seqs)
            await asyncio.to_thread(bus.kill)
            while True:
                record = await note(records, seqs)
                if isinstance(record, Snapshot):
                    assert record.is_continued, number
                    restarts += 1
                    break
        is_over = True
        while not (isinstance(record, Snapshot | Changes) and _has(record, "the end")):
            record = await note(records, seqs)
        await sending

    assert restarts >= KILLS
    assert seqs == list(range(first.seq + 1, seqs[-1] + 1))


async def note(records: AsyncIterator[Record], seqs: list[int]) -> Record:
    """Take a record, and add the seqs of its events."""
    record = await take(records)
    if not isinstance(record, BusAway):
        seqs += [event.seq for event in record.events]
    return record


def _has(record: Snapshot | Changes, text: str) -> bool:
    return any(event.text == text for event in record.events)


async def test_view_continues_after_down_and_up(bus: Bus) -> None:
    async with opened(bus.home) as (link, records):
        first = await take_snapshot(records)

        bus.pal("down")
        away = await take(records)
        with pytest.raises(Disconnected):
            await link.ask(AskAgents(), AgentsPage)
        waiting = asyncio.create_task(take_snapshot(records))
        await asyncio.to_thread(bus.pal, "up")
        async with asyncio.timeout(LIMIT_S):
            again = await waiting

        assert isinstance(away, BusAway)
        assert again.is_continued
        assert again.epoch != first.epoch
        assert [event.seq for event in again.events] == list(range(first.seq + 1, again.seq + 1))
        assert (await link.ask(AskAgents(), AgentsPage)).total == 0


async def test_view_reports_an_upgrade_of_the_log_and_continues(bus: Bus) -> None:
    async with opened(bus.home) as (_, records):
        first = await take_snapshot(records)
        bus.pal("down")
        with (bus.home / "daemon.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(f"{os.getpid()}\n")
            lock.truncate()
            lock.flush()
            (bus.home / "upgrading").write_text(f"{os.getpid()} 40 300\n")
            away = await take(records)
            while isinstance(away, BusAway) and away.upgraded is None:
                away = await take(records)
            (bus.home / "upgrading").unlink()

        waiting = asyncio.create_task(take_snapshot(records))
        await asyncio.to_thread(bus.pal, "up")
        async with asyncio.timeout(LIMIT_S):
            again = await waiting

        assert away == BusAway(why="the bus is upgrading its log (13 %)", upgraded=13)
        assert again.is_continued
        assert [event.seq for event in again.events] == list(range(first.seq + 1, again.seq + 1))


async def test_view_does_not_start_a_bus_that_was_stopped(bus: Bus) -> None:
    bus.pal("down")

    async with opened(bus.home) as (_, records):
        with pytest.raises(Disconnected, match="pal up"):
            await take(records)


async def test_questions_get_clear_refusals_and_the_view_stays(bus: Bus) -> None:
    async with opened(bus.home) as (link, records), bus.connect("luna") as luna:
        await take_snapshot(records)

        with pytest.raises(NotFound, match="no agent zoe"):
            await link.ask(AskAgent(name="zoe"), AgentPage)
        with pytest.raises(RoomNotFound):
            await link.ask(AskRoom(id="nowhere"), RoomPage)
        with pytest.raises(NotFound, match="request xyz"):
            await link.ask(AskPermission(id="xyz"), PermissionPage)
        with pytest.raises(NotFound):
            await link.ask(AskLedger(message="99999"), LedgerPage)
        with pytest.raises(BadQuery):
            await link.ask(AskLog(search="***"), LogPage)
        with pytest.raises(BadRequest, match="no event #99999 yet"):
            await link.ask(AskAgents(at=99999), AgentsPage)
        with pytest.raises(BadRequest, match="limit"):
            await link.ask(AskAgents(limit=0), AgentsPage)
        nothing = await link.ask(AskMessages(conversation="#no/such\0thing"), MessagesPage)
        await luna.send("@luna", "still here")

        assert nothing.rows == ()
        await take_event(records, "still here")


async def test_closed_view_ends_its_records_and_questions(bus: Bus) -> None:
    link = ViewLink(str(bus.home))
    records = link.records()
    await take_snapshot(records)
    waiting = asyncio.ensure_future(anext(records))

    await link.close()
    await link.close()

    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(Disconnected):
        await link.ask(AskAgents(), AgentsPage)


async def test_view_can_be_closed_while_the_bus_is_away(bus: Bus) -> None:
    link = ViewLink(str(bus.home))
    records = link.records()
    await take_snapshot(records)
    bus.pal("down")
    await take(records)
    waiting = asyncio.ensure_future(anext(records))

    await link.close()

    with pytest.raises(StopAsyncIteration):
        await waiting


# The lines themselves


class Lines:
    """A connection of lines of JSON, without a client."""

    def __init__(self, home: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(LIMIT_S)
        self._socket.connect(str(home / "daemon.sock"))
        self._read = self._socket.makefile("rb")

    def write(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._read.readline())
        return found

    def ask(self, line: str) -> dict[str, Any]:
        """Return the reply to a line, without the pushes before it."""
        self.write(line)
        while "push" in (found := self.read()):
            pass
        return found

    def close(self) -> None:
        self._read.close()
        self._socket.close()


def test_bad_lines_get_errors_and_the_connection_stays(bus: Bus) -> None:
    lines = Lines(bus.home)
    bad = [
        '{"req":1,"op":"view","after":-1}',
        '{"req":2,"op":"view","after":"x"}',
        '{"req":3,"op":"view","epoch":"' + "x" * 300 + '"}',
        '{"req":4,"op":"ask"}',
        '{"req":5,"op":"ask","ask":{}}',
        '{"req":6,"op":"ask","ask":{"what":"everything"}}',
        '{"req":7,"op":"ask","ask":{"what":"agents","limit":501}}',
        '{"req":8,"op":"ask","ask":{"what":"log","more":1}}',
        '{"req":9,"op":"ask","ask":{"what":"log","at":-4}}',
        '{"req":10,"op":"ask","ask":{"what":"agent"}}',
        '{"req":11,"op":"view","name":"luna"}',
    ]

    errors = [lines.ask(line) for line in bad]
    first = lines.ask('{"req":20,"op":"view"}')
    second = lines.ask('{"req":21,"op":"view"}')
    page = lines.ask('{"req":22,"op":"ask","ask":{"what":"agents"}}')
    lines.close()

    assert [error["req"] for error in errors] == list(range(1, 12))
    assert all(error["error"] in ("bad_request", "who_are_you") and error["message"] for error in errors)
    assert first["ok"]["seq"] >= 1
    assert "view already" in second["message"]
    assert page["ok"]["total"] == 0


async def test_view_that_does_not_read_delays_no_other_caller(bus: Bus) -> None:
    lines = Lines(bus.home)
    first = lines.ask('{"req":1,"op":"view"}')["ok"]

    async with bus.connect("luna") as luna:
        text = "x" * 290
        for _ in range(60):
            await asyncio.gather(*(luna.send("@luna", text) for _ in range(100)))
        last = await luna.send("@luna", "the end")
    records: list[dict[str, Any]] = []
    while not records or records[-1]["seq"] < last.seq:
        push = await asyncio.to_thread(lines.read)
        records.append(push.get("changes") or push["snapshot"])
    lines.close()

    jumps = [record for record in records if "epoch" in record]
    assert len(jumps) == 1
    assert sum(len(json.dumps(record)) for record in records if "epoch" not in record) < 4 * 1024 * 1024
    seq = first["seq"]
    for record in records:
        assert record.get("after", seq) == seq
        seq = record["seq"]
