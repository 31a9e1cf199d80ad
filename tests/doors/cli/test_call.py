"""What every command writes through its `Call`: long output is made in a thread."""

import shlex
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from tests.fakes import SCRIPT, FakeClock, nowhere

from palaver.doors.cli import agents, events, messages
from palaver.doors.cli.call import Call
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse
from palaver.doors.thin import ArgvConnection
from palaver.protocol.display import Column
from palaver.protocol.envelope import Event
from palaver.protocol.thin import ThinRequest
from palaver.services.results import AgentDetails
from palaver.services.services import Services

LOOP = threading.main_thread()


class Output:
    """Keeps what a command has written."""

    def __init__(self) -> None:
        self.written = b""

    async def write(self, data: bytes, token: bytes, *, flushed: object = None) -> None:
        self.written += data


def call(output: Output, *words: str, event: Event | None = None) -> Call:
    async def fetch_event(reference: str) -> Event | None:
        return event

    services = SimpleNamespace(clock=FakeClock(0), queries=SimpleNamespace(fetch_event=fetch_event))
    asked = SimpleNamespace(stdout_is_terminal=False, environment={"TZ": "UTC"}, width=0)
    return Call(
        services=cast(Services, services),
        connection=cast(ArgvConnection, SimpleNamespace(output=output)),
        asked=cast(ThinRequest, asked),
        parsed=parse(TABLE, words),
        anchor_of=nowhere,
        caller=SCRIPT,
        table=TABLE,
    )


@pytest.mark.parametrize(("length", "is_on_loop"), [(10, True), (100_000, False)])
async def test_table_with_long_cells_does_not_block_the_loop(length: int, is_on_loop: bool) -> None:
    threads = []

    def paint(text: str) -> str:
        threads.append(threading.current_thread())
        return text

    lines = await call(Output(), "list").lay_out(
        [Column(title="A", paint=paint), Column()], [["x", "y" * length]]
    )

    assert lines[-1] == "x  " + "y" * length
    assert {thread is LOOP for thread in threads} == {is_on_loop}


@pytest.mark.parametrize(("length", "is_on_loop"), [(10, True), (100_000, False)])
async def test_text_of_a_large_event_is_made_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, length: int, is_on_loop: bool
) -> None:
    threads = []

    async def no_files(services: Services, event: Event) -> Mapping[str, str]:
        return {}

    def text(event: Event, *, is_whole: bool) -> str:
        threads.append(threading.current_thread())
        return "the text"

    monkeypatch.setattr(messages, "files_view", no_files)
    monkeypatch.setattr(messages, "readable_text", text)
    output = Output()
    event = Event(seq=1, id="x" * 26, type="build.log", sender="ci", ts=0, payload={"log": "x" * length})

    await messages.show(call(output, "show", "1", event=event))

    assert output.written.endswith(b"\n\nthe text\n")
    assert [thread is LOOP for thread in threads] == [is_on_loop]


@pytest.mark.parametrize(("length", "is_on_loop"), [(10, True), (100_000, False)])
async def test_line_of_a_large_event_is_made_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, length: int, is_on_loop: bool
) -> None:
    threads = []

    def summary(event: Event) -> str:
        threads.append(threading.current_thread())
        return "the text"

    monkeypatch.setattr(events, "summary", summary)
    event = Event(seq=1, id="x" * 26, type="build.log", sender="ci", ts=0, payload={"log": "x" * length})

    line = await events.make_event_line(call(Output(), "events"), event)

    assert line.endswith(b": the text\n")
    assert [thread is LOOP for thread in threads] == [is_on_loop]


@pytest.mark.parametrize(("count", "is_on_loop"), [(2, True), (100, False)])
async def test_detailed_list_of_many_agents_is_made_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, count: int, is_on_loop: bool
) -> None:
    threads = []

    async def views(services: Services, caller: str) -> list[AgentDetails]:
        return [cast(AgentDetails, SimpleNamespace(name=SCRIPT.name))] * count

    def long_table(*args: object, **options: object) -> list[str]:
        threads.append(threading.current_thread())
        return ["the table"]

    monkeypatch.setattr(agents, "agents_with_messages", views)
    monkeypatch.setattr(agents, "long_table", long_table)
    output = Output()

    await agents.list_agents(call(output, "list", "-v"))

    assert output.written == b"the table\n"
    assert [thread is LOOP for thread in threads] == [is_on_loop]


def test_command_for_skipped_events_parses_to_the_same_filters() -> None:
    words = ("events", "--thread=-x", "--agent=--", "--from", "nova", "--follow")
    skipped = events.SkippedEvents(count=2, after=0, before=9)

    line = events.skipped_line(call(Output(), *words, "--text"), skipped).decode()

    _, _, proposed = line.rstrip().partition("to see them: pal ")
    given = parse(TABLE, shlex.split(proposed)).options
    assert given["--thread"] == ["-x"]
    assert given["--agent"] == ["--"]
    assert "--from nova" in proposed
