"""Long answers are built in steps: other callers run after a limited number of rows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.doors.test_wait_reasons import services_of
from tests.doors.view_stage import ViewParts, opened_views, take
from tests.fakes import HUMAN, open_memory

from palaver.errors import NotFound
from palaver.protocol.envelope import Event
from palaver.protocol.events import State
from palaver.protocol.views import (
    AskAttention,
    AskConversations,
    AskLedger,
    AskMessages,
    AskPast,
    LedgerPage,
    Snapshot,
)
from palaver.services.queries import Queries
from palaver.services.view_pages import encode_receipts
from palaver.services.view_reader import STEP
from palaver.services.views import (
    agents_with_messages,
    attention_view,
    open_mail,
    receipts_of,
    receipts_view,
    terminal_view,
)
from palaver.state.rows import Rows

MANY = 300
LIMIT_READS = 250
"""Reads between two turns of other callers: 20 rows with up to 12 reads each, about 2 ms."""
AN_EVENT = 5
"""Reads of a row that take as long as reading one event."""
SCANNED_AT_ONCE = 10
"""Rows that a scan returns as fast as one row is read by its key."""


class CountedRows:
    """Rows that count how often they are read. A long scan counts as several reads."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.reads = 0

    def get(self, table: str, key: str) -> bytes | None:
        self.reads += 1
        return self._rows.get(table, key)

    def scan(
        self, table: str, prefix: str, *, after: str = "", limit: int = 1000, reverse: bool = False
    ) -> list[tuple[str, bytes]]:
        found = self._rows.scan(table, prefix, after=after, limit=limit, reverse=reverse)
        self.reads += 1 + len(found) // SCANNED_AT_ONCE
        return found


async def most_reads(rows: CountedRows, answer: Awaitable[object]) -> tuple[int, int]:
    """Wait for an answer. Return the most reads between two turns of another task, and all of them."""
    task = asyncio.ensure_future(answer)
    before = rows.reads = 0
    most = 0
    while not task.done():
        await asyncio.sleep(0)
        most, before = max(most, rows.reads - before), rows.reads
    await task
    return most, rows.reads


@asynccontextmanager
async def crowd(home: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ViewParts, CountedRows]]:
    """Open a bus with many agents, whose rows are counted."""
    async with opened_views(open_memory, home, stale_after_s=60) as parts:
        for number in range(MANY):
            await parts.bus.join(f"agent{number:03}")
        counted = CountedRows(parts.log.rows)
        read_event = Queries.event

        def counted_event(queries: Queries, seq: int) -> Event | None:
            counted.reads += AN_EVENT
            return read_event(queries, seq)

        monkeypatch.setattr(Queries, "rows", property(lambda queries: counted))
        monkeypatch.setattr(Queries, "event", counted_event)
        yield parts, counted


async def test_attention_is_built_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowd(tmp_path, monkeypatch) as (parts, rows):
        luna = await parts.bus.join("luna")
        for number in range(MANY):
            await parts.bus.send(luna, f"question {number}?", "@human", intent="request", is_confirmed=True)
            await parts.bus.send(HUMAN, "hello", f"nobody/{number}")
        services = services_of(parts)

        for answer in (
            attention_view(services),
            parts.views.answer(AskAttention()),
        ):
            most, total = await most_reads(rows, answer)
            assert most <= LIMIT_READS
            assert total > 2 * most
        assert len(await attention_view(services)) == 2 * MANY


async def test_snapshot_and_conversations_are_built_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crowd(tmp_path, monkeypatch) as (parts, rows):
        for number in range(120):
            await parts.bus.send(HUMAN, "hello", f"@agent{number:03}", is_confirmed=True)

        for question in (AskPast(), AskConversations(limit=500)):
            most, total = await most_reads(rows, parts.views.answer(question))
            assert most <= LIMIT_READS
            assert total > 2 * most


@pytest.mark.parametrize(
    "build",
    [
        lambda parts, sent: receipts_view(services_of(parts), sent),
        lambda parts, sent: receipts_of(services_of(parts), sent, with_reasons=True),
        lambda parts, sent: agents_with_messages(services_of(parts), "human"),
        lambda parts, sent: parts.views.answer(AskLedger(message=str(sent.seq))),
        lambda parts, sent: parts.views.answer(AskMessages(conversation="#general")),
    ],
    ids=["receipts as JSON", "receipts as text", "list -v", "ledger", "conversation"],
)
async def test_message_to_many_is_read_in_steps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[ViewParts, Event], Awaitable[object]],
) -> None:
    async with crowd(tmp_path, monkeypatch) as (parts, rows):
        sent = await parts.bus.send(HUMAN, "hello all", "@all", is_confirmed=True)

        most, total = await most_reads(rows, build(parts, sent))

        assert most <= LIMIT_READS
        assert total > 2 * most


async def test_queue_of_an_agent_is_counted_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowd(tmp_path, monkeypatch) as (parts, rows):
        for number in range(MANY):
            await parts.bus.send(HUMAN, str(number), "@agent000", is_confirmed=True)
        agent = parts.bus.agent("agent000")

        most, total = await most_reads(rows, terminal_view(services_of(parts), agent))

        assert most <= LIMIT_READS
        assert total > 2 * most


async def test_encoding_of_many_receipts_lets_others_run(tmp_path: Path) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        for number in range(MANY):
            await parts.bus.join(f"agent{number:03}")
        sent = await parts.bus.send(HUMAN, "hello all", "@all", is_confirmed=True)
        receipts = await receipts_view(services_of(parts), sent)
        turns = 0

        encoding = asyncio.ensure_future(encode_receipts(receipts))
        while not encoding.done():
            turns += 1
            await asyncio.sleep(0)

        assert turns >= MANY // STEP
        assert len(msgspec.json.decode(encoding.result())["receipts"]) == MANY


async def test_search_in_much_open_mail_lets_others_run(tmp_path: Path) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        await parts.bus.join("luna")
        for number in range(MANY):
            await parts.bus.send(HUMAN, str(number), "@luna", is_confirmed=True)
        turns = 0

        searching = asyncio.ensure_future(open_mail(services_of(parts), "luna", 1, lambda event: False))
        while not searching.done():
            turns += 1
            await asyncio.sleep(0)

        assert turns >= MANY // STEP
        assert searching.result() == []


async def test_agents_may_join_while_a_view_begins(tmp_path: Path) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        for number in range(MANY):
            await parts.bus.join(f"agent{number:03}")
        view = parts.views.open()
        taking = asyncio.ensure_future(take(view))
        await asyncio.sleep(0)

        await parts.bus.join("luna")

        assert isinstance(await taking, Snapshot)


# The recipients after the first fifty


async def ledger(parts: ViewParts, seq: int, **fields: object) -> LedgerPage:
    question = AskLedger(message=str(seq), **fields)  # type: ignore[arg-type]  # fields of the question
    return cast(LedgerPage, await parts.views.answer(question))


async def test_steps_of_all_recipients_come_in_pages(tmp_path: Path) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        names = [f"agent{number:03}" for number in range(120)]
        for name in names:
            await parts.bus.join(name)
        sent = await parts.bus.send(HUMAN, "hello all", "@all", is_confirmed=True)
        for name in names:
            await parts.bus.report(name, State.SEEN, sent.seq, lane="hook")

        pages = [await ledger(parts, sent.seq, first=first) for first in (0, 50, 100, 150)]

        assert [page.recipients for page in pages] == [120] * 4
        assert [step.name for page in pages for step in page.steps if step.name] == names
        receipts = [msgspec.json.decode(page.receipts)["receipts"] for page in pages]
        assert [len(found) for found in receipts] == [120, 50, 20, 0]


async def test_steps_of_one_recipient_can_be_asked_for(tmp_path: Path) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        names = [f"agent{number:03}" for number in range(70)]
        for name in names:
            await parts.bus.join(name)
        sent = await parts.bus.send(HUMAN, "hello all", "@all", is_confirmed=True)
        await parts.bus.report("agent069", State.SUBMITTED, sent.seq, lane="hook")
        await parts.bus.report("agent069", State.SEEN, sent.seq, lane="hook")

        page = await ledger(parts, sent.seq, recipient="agent069")

        assert [(step.name, step.state) for step in page.steps] == [
            ("", "queued"),
            ("agent069", "submitted"),
            ("agent069", "seen"),
        ]
        assert [one["name"] for one in msgspec.json.decode(page.receipts)["receipts"]] == ["agent069"]
        with pytest.raises(NotFound, match="recipient luna"):
            await ledger(parts, sent.seq, recipient="luna")


async def test_steps_are_found_after_thousands_of_other_reports(tmp_path: Path) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        await parts.bus.join("nova")
        first = await parts.bus.send(HUMAN, "the one", "@nova", is_confirmed=True)
        other = await parts.bus.send(HUMAN, "another", "@nova", is_confirmed=True)
        for _ in range(1100):
            await parts.bus.report("nova", State.HELD, other.seq, lane="terminal", reason="dialog")
            await parts.bus.report("nova", State.QUEUED, other.seq, lane="terminal")
        await parts.bus.report("nova", State.SEEN, first.seq, lane="hook")

        page = await ledger(parts, first.seq)

        assert [step.state for step in page.steps] == ["queued", "seen"]
