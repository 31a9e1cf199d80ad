"""CHATHISTORY returns the stored messages of a channel or conversation, archived ones too, at a flat cost."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doors.irc.stage import ALL_CAPS, Recorded, Stage, opened_stage
from tests.fakes import HUMAN, OpenLog, open_memory, open_sqlite

from palaver.doors.irc.irc_wire import format_time, join_exactly
from palaver.doors.irc.showing import CONCAT, MULTILINE, chathistory
from palaver.log.records import Blobs, EventRow, readable_events
from palaver.log.sqlite import SqliteLog
from palaver.protocol.envelope import Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Send

MESSAGES = 20


@pytest.fixture(params=[open_memory, open_sqlite], ids=["memory", "sqlite"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    open_log: OpenLog = request.param
    async with opened_stage(tmp_path, open_log) as made:
        yield made


async def fill(stage: Stage, count: int = MESSAGES) -> list[Event]:
    """Store messages in `#dev`, one a second, and others between them."""
    await stage.bus.join("luna")
    found = []
    for number in range(count):
        stage.clock.advance(1)
        found.append(await stage.send(HUMAN, f"line {number}", "irc/local/#dev"))
        await stage.send(HUMAN, f"noise {number}", "@luna")
    return found


async def ask(stage: Stage, client: Recorded, *params: str) -> list[str]:
    """Return the texts of the reply to a CHATHISTORY."""
    client.lines.clear()
    await chathistory(stage.hub, client, params)
    return [text for _, text in client.said]


def named(*numbers: int) -> list[str]:
    return [f"line {number}" for number in numbers]


@pytest.mark.parametrize("archived", [0, 8, MESSAGES])
async def test_each_subcommand_selects_its_messages(stage: Stage, archived: int) -> None:
    events = await fill(stage)
    client = stage.person("#dev")
    if archived:
        await stage.log.archive(events[archived - 1].seq + 1)
    ids = [f"msgid={event.id}" for event in events]
    times = [f"timestamp={format_time(event.ts)}" for event in events]

    assert await ask(stage, client, "LATEST", "#dev", "*", "3") == named(17, 18, 19)
    assert await ask(stage, client, "LATEST", "#dev", ids[17], "5") == named(18, 19)
    for ref in (ids, times):
        assert await ask(stage, client, "BEFORE", "#dev", ref[9], "3") == named(6, 7, 8)
        assert await ask(stage, client, "AFTER", "#dev", ref[9], "3") == named(10, 11, 12)
        assert await ask(stage, client, "AROUND", "#dev", ref[9], "5") == named(7, 8, 9, 10, 11)
        assert await ask(stage, client, "BETWEEN", "#dev", ref[2], ref[9], "3") == named(3, 4, 5)
        assert await ask(stage, client, "BETWEEN", "#dev", ref[9], ref[2], "3") == named(6, 7, 8)
        assert await ask(stage, client, "BEFORE", "#dev", ref[0], "3") == []
    begin, *_, end = client.of("BATCH")
    assert begin.params[1:] == ("chathistory", "#dev")
    assert end.params[0] == f"-{begin.params[0][1:]}"


async def test_lines_have_the_id_and_time_of_their_message(stage: Stage) -> None:
    events = await fill(stage, 2)
    client = stage.person("#dev")

    await ask(stage, client, "LATEST", "#dev", "*", "2")

    lines = client.of("PRIVMSG")
    assert [line.tags["msgid"] for line in lines] == [event.id for event in events]
    assert [line.tags["time"] for line in lines] == [format_time(event.ts) for event in events]
    assert {line.tags["batch"] for line in lines} == {client.of("BATCH")[0].params[0][1:]}


async def test_conversation_of_two_is_a_history(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    await stage.bus.join("nova")
    client = stage.person("#general")
    guest = stage.guest("bob")
    await stage.speak(client, "luna", "question")
    await stage.send(luna, "reply", "@human")
    await stage.send(luna, "other", "@nova")
    await stage.speak(client, "bob", "hi bob")
    await stage.speak(guest, "human", "hi human")

    assert await ask(stage, client, "LATEST", "luna", "*", "10") == ["question", "reply"]
    assert [line.params[0] for line in client.of("PRIVMSG")] == ["luna", "human"]
    assert await ask(stage, client, "LATEST", "BOB", "*", "10") == ["hi bob", "hi human"]
    assert await ask(stage, guest, "LATEST", "human", "*", "10") == ["hi bob", "hi human"]


async def test_channels_of_agents_threads_and_broadcasts(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general", "#agent-luna", "#thread-pr-1")
    await stage.send(luna, "to all", "@all")
    await stage.send(luna, "private", "@human", thread="pr-1")
    await stage.speak(client, "#general", "kept here")

    assert await ask(stage, client, "LATEST", "#general", "*", "9") == ["to all", "kept here"]
    assert await ask(stage, client, "LATEST", "#agent-luna", "*", "9") == ["to all", "private"]
    assert await ask(stage, client, "LATEST", "#thread-pr-1", "*", "9") == ["private"]


async def test_targets_are_channels_and_conversations(stage: Stage) -> None:
    luna = await stage.bus.join("luna")
    client = stage.person("#general", "#empty")
    start = format_time(stage.clock.now_ms())
    stage.clock.advance(1)
    await stage.send(luna, "to all", "@all")
    stage.clock.advance(1)
    await stage.send(luna, "for you", "@human")
    stage.clock.advance(1)
    end = format_time(stage.clock.now_ms())

    await ask(stage, client, "TARGETS", f"timestamp={end}", f"timestamp={start}", "10")

    assert [line.params[1] for line in client.of("CHATHISTORY")] == ["#general", "luna"]
    assert client.of("BATCH")[0].params[1:] == ("draft/chathistory-targets",)

    # From the first time on, and only with the newest message of each target.
    await ask(stage, client, "TARGETS", f"timestamp={start}", f"timestamp={end}", "1")
    assert [line.params[1] for line in client.of("CHATHISTORY")] == ["#general"]
    await stage.send(luna, "later", "@all")
    await ask(stage, client, "TARGETS", f"timestamp={start}", f"timestamp={end}", "10")
    assert [line.params[1] for line in client.of("CHATHISTORY")] == ["luna"]


async def test_long_message_is_a_batch_inside_the_batch(stage: Stage) -> None:
    client = stage.person("#dev")
    text = "x" * 3000
    await stage.send(HUMAN, text, "irc/local/#dev")

    await ask(stage, client, "LATEST", "#dev", "*", "10")

    outer, inner, *_ = client.of("BATCH")
    assert inner.params[1:] == (MULTILINE, "#dev")
    assert inner.tags["batch"] == outer.params[0][1:]
    lines = client.of("PRIVMSG")
    assert {line.tags["batch"] for line in lines} == {inner.params[0][1:]}
    assert join_exactly([(line.params[1], CONCAT in line.tags) for line in lines]) == text


async def test_program_reads_history_as_envelopes(stage: Stage) -> None:
    nova = await stage.bus.join("nova")
    client = stage.program(nova, "#dev", caps=ALL_CAPS)
    await stage.send(HUMAN, "hello", "irc/local/#dev")

    (text,) = await ask(stage, client, "LATEST", "#dev", "*", "10")

    assert text.startswith('{"v":1,"type":"message"')


@pytest.mark.parametrize(
    ("params", "failure"),
    [
        ((), ("UNKNOWN_COMMAND", "*")),
        (("MAYBE", "#dev", "*", "1"), ("UNKNOWN_COMMAND", "MAYBE")),
        (("LATEST", "#dev"), ("INVALID_PARAMS", "LATEST")),
        (("LATEST", "#dev", "*", "many"), ("INVALID_PARAMS", "LATEST", "many")),
        (("LATEST", "#other", "*", "1"), ("INVALID_TARGET", "LATEST", "#other")),
        (("LATEST", "a/b", "*", "1"), ("INVALID_TARGET", "LATEST", "a/b")),
        (("BEFORE", "#dev", "*", "1"), ("INVALID_MSGREFTYPE", "BEFORE", "*")),
        (("BEFORE", "#dev", "timestamp=now", "1"), ("INVALID_PARAMS", "BEFORE", "timestamp=now")),
        (("BEFORE", "#dev", "msgid=none", "1"), ("MESSAGE_ERROR", "BEFORE", "msgid=none")),
        (("TARGETS", "msgid=x", "msgid=y", "1"), ("INVALID_PARAMS", "TARGETS", "msgid=x")),
    ],
)
async def test_wrong_request_is_refused(
    stage: Stage, params: tuple[str, ...], failure: tuple[str, ...]
) -> None:
    client = stage.person("#dev")

    await ask(stage, client, *params)

    assert client.failed == [("CHATHISTORY", *failure)]


async def test_reply_of_large_messages_is_limited(stage: Stage) -> None:
    client = stage.person("#dev")
    for number in range(30):
        await stage.send(HUMAN, f"{number} " + "x" * 90_000, "irc/local/#dev")

    newest = await ask(stage, client, "LATEST", "#dev", "*", "30")
    kept = len([line for line in client.of("BATCH") if MULTILINE in line.params])

    assert 1 < kept < 30
    assert sum(map(len, newest)) > 90_000
    assert client.of("PRIVMSG")[0].params[1].startswith(f"{30 - kept} ")


async def test_five_thousand_lines_are_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_stage(tmp_path, open_sqlite) as stage:
        assert isinstance(stage.log, SqliteLog)
        client = stage.person("#dev", "#quiet", caps=frozenset({"batch", "message-tags"}))
        await stage.send(HUMAN, "early", "irc/local/#quiet")
        lines = [Send(text=f"line {number}", to=("irc/local/#dev",)) for number in range(5000)]
        for start in range(0, len(lines), 500):
            await stage.broker.submit_sends([(HUMAN, one) for one in lines[start : start + 500]])
        await stage.log.read(Query(search="line", limit=1))  # brings the index up to date
        read: list[int] = []

        def counted(rows: Sequence[EventRow], blobs: Blobs) -> Iterator[Event]:
            read.append(len(rows))
            return readable_events(rows, blobs)

        monkeypatch.setattr("palaver.log.sqlite.readable_events", counted)
        seqs = await stage.log.read_shown(Query(shown=("#dev",), last=1))
        middle = stage.queries.event(seqs[0].seq - 2500)
        assert middle is not None
        read.clear()

        assert len(await ask(stage, client, "LATEST", "#dev", "*", "50")) == 50
        assert len(await ask(stage, client, "BEFORE", "#dev", f"msgid={middle.id}", "50")) == 50
        assert len(await ask(stage, client, "AFTER", "#dev", f"msgid={middle.id}", "50")) == 50
        assert await ask(stage, client, "LATEST", "#quiet", "*", "50") == ["early"]

        assert sum(read) < 1000


@given(count=st.integers(0, 12), archived=st.integers(0, 12), limit=st.integers(1, 5))
def test_pages_backwards_are_the_whole_history(count: int, archived: int, limit: int) -> None:
    async def read_all() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with opened_stage(Path(directory), open_memory) as stage:
                events = await fill(stage, count)
                client = stage.person("#dev")
                if events and archived:
                    await stage.log.archive(events[min(archived, count) - 1].seq + 1)
                found: list[str] = []
                page = await ask(stage, client, "LATEST", "#dev", "*", str(limit))
                while page:
                    found = page + found
                    first = client.of("PRIVMSG")[0].tags["msgid"]
                    page = await ask(stage, client, "BEFORE", "#dev", f"msgid={first}", str(limit))
                assert found == named(*range(count))

    asyncio.run(read_all())
