"""`pal archive`, `pal export` and the archive hints of `pal events`, with the log in a file."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace
from tests.fakes import FakeClock, nowhere

from palaver.broker.broker import Broker
from palaver.clock import Clock
from palaver.doors.cli.archive import ARCHIVE_COMMANDS, archive, export
from palaver.doors.cli.call import Call
from palaver.doors.cli.events import LOG_COMMANDS, events
from palaver.doors.cli.spec import Command, build_table, parse
from palaver.doors.thin import ArgvConnection, Run
from palaver.errors import NotAllowed, UsageError
from palaver.identity.process import Peer
from palaver.ids import UlidSource
from palaver.log.sqlite import SqliteLog
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.envelope import Draft, Event, decode_event
from palaver.protocol.thin import FrameReader, ThinRequest, frame
from palaver.services.queries import Queries
from palaver.services.services import Services
from palaver.state.fold import apply

HUMAN = Caller(name="human", standing=Standing.HUMAN, kind="human")
OPERATOR = Caller(name="kira", standing=Standing.OPERATOR, kind="instance")
WORKER = Caller(name="luna", standing=Standing.WORKER, kind="instance")
DAY_MS = 24 * 60 * 60 * 1000
SECRET = "ghp_" + "aB3dE5gH7jK9" * 3

TABLE = build_table(Command(path=(), summary="x", is_group=True), (*LOG_COMMANDS, *ARCHIVE_COMMANDS))
HANDLERS = {"archive": archive, "export": export, "events": events}


class Client(asyncio.Transport):
    """The other end of the wire: it confirms every output."""

    def __init__(self, connection: ArgvConnection) -> None:
        super().__init__()
        self._connection = connection
        self._reader = FrameReader()
        self.out = b""
        self.err = ""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for kind, payload in self._reader.feed(bytes(data)):
            if kind == b"E":
                self.err += payload.decode()
                continue
            if kind == b"Q":
                continue
            number, size = struct.unpack_from(">IH", payload)
            self.out += payload[6 + size :]
            self._connection.data_received(frame(b"A", struct.pack(">I", number)))


@dataclass(frozen=True, slots=True)
class Parts:
    """The services that the commands need."""

    daemon: SimpleNamespace
    queries: Queries
    clock: Clock
    broker: Broker


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of a command."""

    out: str
    err: str

    @property
    def places(self) -> list[int]:
        return [json.loads(line)["seq"] for line in self.out.splitlines()]


@dataclass(slots=True)
class Stage:
    """A log in a home, its clock, and the caller of the commands."""

    home: Path
    log: SqliteLog
    clock: FakeClock
    broker: Broker
    caller: Caller = HUMAN
    is_terminal: bool = False
    stored: list[Event] = field(default_factory=list)

    async def put(self, text: str = "hello", *, ts: int | None = None, **payload: object) -> Event:
        draft = Draft(
            type="message",
            sender="luna",
            to=("@nova",),
            payload={"text": text, "delivered_to": ["nova"], **payload},
            id=f"M{len(self.stored)}",
            ts=self.clock.now_ms() if ts is None else ts,
        )
        commit = await self.log.commit(None, lambda rows: draft)
        assert commit.event is not None
        self.stored.append(commit.event)
        return commit.event

    async def run(self, *words: str) -> Answer:
        # Nothing runs on the connection, so its peer is never looked up.
        connection = ArgvConnection(cast(Peer, None), cast(Run, None), asyncio.TaskGroup(), lambda one: None)
        client = Client(connection)
        connection.attach(client, b"")
        asked = ThinRequest(
            key=bytes(16),
            version="0",
            argv=words,
            cwd="/",
            environment={"TZ": "UTC", "NO_COLOR": "1"},
            stdin_is_terminal=False,
            stdout_is_terminal=self.is_terminal,
            stderr_is_terminal=False,
            width=80,
        )
        call = Call(
            services=cast(
                Services, Parts(SimpleNamespace(home=self.home), Queries(self.log), self.clock, self.broker)
            ),
            connection=connection,
            asked=asked,
            parsed=parse(TABLE, words),
            anchor_of=nowhere,
            caller=self.caller,
            table=TABLE,
        )
        assert await HANDLERS[words[0]](call) == 0
        connection.exit(0)
        return Answer(client.out.decode(), client.err)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A log with one event per day for six days; the clock is one day after the last of them."""
    clock = FakeClock()
    log = await SqliteLog.open(tmp_path, apply=apply, clock=clock)
    ids = UlidSource(clock, bytes)
    broker = Broker(log, clock=clock, ids=ids, is_present=lambda name: False, draw=lambda: 0)
    made = Stage(tmp_path, log, clock, broker)
    for day in range(6):
        await made.put(f"day {day}")
        clock.advance(DAY_MS / 1000)
    yield made
    await log.close()


async def test_events_older_than_an_age_are_archived(stage: Stage) -> None:
    answer = await stage.run("archive", "--before", "60h")

    file = stage.home / "archive" / "000000000000001-000000000000004.jsonl"
    assert answer == Answer(f"archived 4 events, up to #4, in {file}\n", "")
    assert (await stage.run("events", "--json")).places == [5, 6]


async def test_events_before_a_seq_are_archived(stage: Stage) -> None:
    answer = await stage.run("archive", "--before", "#3", "--json")

    assert json.loads(answer.out) == {
        "archived": 2,
        "last": 2,
        "file": str(stage.home / "archive" / "000000000000001-000000000000002.jsonl"),
        "unredacted": [],
    }


async def test_events_before_a_date_are_archived(stage: Stage) -> None:
    # The log starts at 2023-11-14 22:13:20.
    await stage.run("archive", "--before", "2023-11-17T12:00")

    assert stage.log.archived() == 3


async def test_archive_reports_that_no_events_are_left(stage: Stage) -> None:
    await stage.run("archive", "--before", "3")

    answer = await stage.run("archive", "--before", "3", "--json")
    result = await stage.run("archive", "--before", "3")

    assert json.loads(answer.out) == {"archived": 0, "last": 2, "file": None, "unredacted": []}
    assert result.out == "archived 0 events: the log has none before #3\n"


async def test_recent_events_before_a_seq_are_archived_too(stage: Stage) -> None:
    young = await stage.put("young")

    answer = await stage.run("archive", "--before", "1000")

    file = stage.home / "archive" / "000000000000001-000000000000007.jsonl"
    assert answer == Answer(f"archived 7 events, up to #{young.seq}, in {file}\n", "")
    assert (await stage.run("archive", "--before", "1000")).out == (
        "archived 0 events: the log has none before #8\n"
    )


async def test_recent_events_before_a_time_are_archived_too(stage: Stage) -> None:
    await stage.run("archive", "--before", "7")
    young = await stage.put("young")
    stage.clock.advance(1)

    answer = await stage.run("archive", "--before", "1s")
    more = await stage.run("archive", "--before", "0s")

    assert answer.out == f"archived 0 events: the log has none before #{young.seq}\n"
    assert more.out.startswith("archived 1 event, up to #7, in ")


async def test_interrupted_archiving_is_finished(stage: Stage, tmp_path: Path) -> None:
    await asyncio.to_thread(stage.log._copier.copy, 4)

    answer = await stage.run("archive", "--before", "2")

    assert answer.out == "finished archiving: 3 events, up to #3\n"


async def test_archiving_needs_a_bound_and_an_operator(stage: Stage) -> None:
    with pytest.raises(UsageError, match="--before 90d"):
        await stage.run("archive")
    with pytest.raises(UsageError, match="requires a time"):
        await stage.run("archive", "--before", "yesterday")
    stage.caller = WORKER
    with pytest.raises(NotAllowed):
        await stage.run("archive", "--before", "3")
    stage.caller = OPERATOR
    await stage.run("archive", "--before", "3")

    assert stage.log.archived() == 2


async def test_events_mention_the_archive_and_show_it_on_request(stage: Stage) -> None:
    await stage.run("archive", "--before", "4")

    everything = await stage.run("events", "--all", "--json")
    behind = await stage.run("events", "--after", "3", "--json")
    archived = await stage.run("events", "--archived", "--json")

    assert everything.places == [4, 5, 6]
    assert everything.err == (
        f"pal: events up to #3 are archived in {stage.home / 'archive'}; --archived shows them too\n"
    )
    assert (behind.places, behind.err) == ([4, 5, 6], "")
    assert (archived.places, archived.err) == ([1, 2, 3, 4, 5, 6], "")
    assert (await stage.run("events", "--archived", "--json", "--search", '"day 1"')).places == [2]
    with pytest.raises(UsageError, match="--sql"):
        await stage.run("events", "--archived", "--sql", "1")


@pytest.mark.parametrize("words", [("--thread", "t"), ("--search", '"day 1"'), ("--type", "message")])
async def test_filtered_events_mention_the_archive(stage: Stage, words: tuple[str, ...]) -> None:
    await stage.run("archive", "--before", "4")
    hint = f"pal: events up to #3 are archived in {stage.home / 'archive'}; --archived shows them too\n"

    few = await stage.run("events", *words, "--json")
    enough = await stage.run("events", "--type", "message", "--last", "1", "--json")
    behind = await stage.run("events", *words, "--after", "3", "--json")
    newest = await stage.run("events", "--json")

    assert few.err == hint
    assert (len(enough.places), enough.err) == (1, "")
    assert (behind.err, newest.err) == ("", "")


async def test_sql_does_not_search_archives(stage: Stage) -> None:
    await stage.run("archive", "--before", "4")

    assert (await stage.run("events", "--type", "none", "--sql", "1")).err == ""


async def test_export_includes_archived_events(stage: Stage) -> None:
    await stage.run("archive", "--before", "4")

    answer = await stage.run("export")
    some = await stage.run("export", "--after", "2", "--before", "5")

    assert [decode_event(line) for line in answer.out.splitlines()] == stage.stored
    assert some.places == [3, 4]


async def test_export_with_sql_leaves_out_the_archive_and_reports_it(stage: Stage) -> None:
    await stage.run("archive", "--before", "4")

    answer = await stage.run("export", "--sql", "seq <> 5")

    assert answer.places == [4, 6]
    assert answer.err == "pal: --sql reads only the log; the archive is left out\n"


async def test_export_redacts_secrets_and_only_a_person_may_disable_it(stage: Stage) -> None:
    event = await stage.put(f"use {SECRET}", payload={"password": "hunter2"})

    redacted = await stage.run("export", "--after", "6")
    whole = await stage.run("export", "--after", "6", "--no-redact")
    stage.caller = OPERATOR
    with pytest.raises(NotAllowed):
        await stage.run("export", "--no-redact")

    payload = {**event.payload, "text": "use [redacted]", "payload": {"password": "[redacted]"}}
    assert decode_event(redacted.out) == replace(event, payload=payload)
    assert decode_event(whole.out) == event


async def test_markdown_export_is_grouped_by_thread(stage: Stage) -> None:
    await stage.put(f"use {SECRET}", thread="pr-1")

    answer = await stage.run("export", "--after", "5", "--format", "markdown")

    assert answer.out == (
        f"# Palaver log of {stage.log.device}\n\nSecrets are redacted.\n\n"
        "### #6 luna → @nova, 2023-11-19 22:13:20 +0000\n\n```text\nday 5\n```\n\n"
        "## Thread pr-1\n\n"
        "### #7 luna → @nova, 2023-11-20 22:13:20 +0000\n\n```text\nuse [redacted]\n```\n"
    )


async def test_events_of_impossible_years_are_listed_and_exported(stage: Stage) -> None:
    await stage.put("future", ts=2**63 - 1)
    await stage.put("past", ts=-(2**63))

    listed = await stage.run("events", "--last", "2")
    exported = await stage.run("export", "--after", "6", "--format", "markdown")

    assert [line.split()[:2] for line in listed.out.splitlines()] == [["#7", "?"], ["#8", "?"]]
    assert "### #7 luna → @nova, ?\n" in exported.out
    assert "### #8 luna → @nova, ?\n" in exported.out


async def test_markdown_export_cannot_control_a_terminal(stage: Stage) -> None:
    await stage.put("\x1b[2J")
    stage.is_terminal = True

    answer = await stage.run("export", "--after", "6", "--format", "markdown", "--no-redact")

    assert "\x1b" not in answer.out
    assert "Secrets are not redacted." in answer.out
