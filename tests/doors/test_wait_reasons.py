"""Every receipt that is not final says why it waits, in every view, at any time, now and in the past."""

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.daemon.past_log import NAMES, RandomBus
from tests.doors.view_stage import ViewParts, opened_views
from tests.fakes import HUMAN, LIMIT_A_MINUTE, open_memory, open_sqlite

from palaver.broker.messages import recipients_of
from palaver.errors import RateLimited
from palaver.protocol.envelope import Event
from palaver.protocol.events import MessageSent, State
from palaver.protocol.lanes import LaneKind
from palaver.protocol.query import Query
from palaver.protocol.views import AgentPage, AskAgent, AskLedger, AskMessages, LedgerPage, WaitReason
from palaver.services.services import Services
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader, ViewFacts
from palaver.services.views import agents_with_messages, receipts_view, terminal_view
from palaver.state.agents import read_entry, read_mail, read_unsure
from palaver.state.fold import PastState, apply
from palaver.state.reasons import WAIT_CODES, LaneFact, read_wait
from palaver.state.rows import Rows

FINAL = frozenset({State.SEEN, State.ANSWERED, State.REFUSED, State.EXPIRED, State.DEAD})
REASONS = ("", "dialog", "draft", "compacting", "usage limit", "unheard of")


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[ViewParts]:
    async with opened_views(open_memory, tmp_path) as opened:
        yield opened


def services_of(parts: ViewParts) -> Services:
    found = SimpleNamespace(
        queries=parts.queries,
        broker=parts.broker,
        clock=parts.clock,
        callers=SimpleNamespace(presence=parts.presence),
        daemon=SimpleNamespace(settings=parts.settings),
        delivery=parts.delivery,
        agents=SimpleNamespace(holds={}),
        live=parts.views,
    )
    return cast(Services, found)


@dataclass
class RandomFacts:
    """Presence and lanes that differ each time; the lanes of the past are unknown."""

    draw: random.Random
    now_ms: int

    def is_present(self, name: str) -> bool:
        return self.draw.random() < 0.7

    def lanes(self, name: str) -> Sequence[LaneFact] | None:
        if self.draw.random() < 0.2:
            return None
        kinds = [kind.name.lower() for kind in LaneKind]
        return [
            LaneFact(
                self.draw.choice(kinds),
                is_open=self.draw.random() < 0.5,
                is_paused=self.draw.random() < 0.3,
                reason=self.draw.choice(REASONS),
                wakes_idle=self.draw.random() < 0.5,
                reaches_busy=self.draw.random() < 0.5,
            )
            for _ in range(self.draw.randrange(3))
        ]


def copies_of(event: Event) -> Iterator[tuple[str, bool]]:
    """Yield each recipient of an event, and whether it is a path without a subscription."""
    yield from ((name, False) for name in recipients_of(event))
    if isinstance(event.body, MessageSent):
        yield from ((path, True) for path in event.body.dead)


def check_reason(rows: Rows, event: Event, mailbox: str, wait: WaitReason | None) -> None:
    entry = read_entry(rows, event.seq, mailbox)
    is_final = entry is not None and entry.state in FINAL
    assert is_final == (wait is None), (event.seq, mailbox, entry, wait)
    if wait is not None:
        assert wait.code in WAIT_CODES
        assert wait.text
        assert wait.moves


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_open_receipts_have_a_reason_after_every_event(tmp_path: Path, seed: int) -> None:
    async with opened_views(open_sqlite, tmp_path) as parts:
        await RandomBus(parts.bus, seed).run(200)
        events = await parts.queries.read(Query(limit=1000, with_imported=True))
    past, sent, draw = PastState(), list[Event](), random.Random(seed)

    for event in events:
        past.forward(event)
        sent.append(event)
        for one in sent[-60:]:
            for mailbox, is_path in copies_of(one):
                facts = RandomFacts(draw, event.ts)
                wait = read_wait(past.rows, one.seq, mailbox, facts, is_path=is_path)
                check_reason(past.rows, one, mailbox, wait)


@pytest.mark.parametrize("seed", [4, 5])
async def test_every_command_says_why_a_message_waits(tmp_path: Path, seed: int) -> None:
    async with opened_views(open_memory, tmp_path) as parts:
        await RandomBus(parts.bus, seed).run(150)
        services, rows = services_of(parts), parts.queries.rows
        messages = await parts.queries.read(Query(types=("message",), limit=500))

        for event in messages:
            view = await receipts_view(services, event)
            page = cast(LedgerPage, await parts.views.answer(AskLedger(message=str(event.seq))))
            shown = msgspec.json.decode(page.receipts)["receipts"]
            for (mailbox, _), one, raw in zip(copies_of(event), view.receipts, shown, strict=True):
                check_reason(rows, event, mailbox, one.wait)
                assert raw.get("wait") == (None if one.wait is None else msgspec.to_builtins(one.wait))
            for mark in page.message.marks:
                assert (mark.state in FINAL) == (mark.reason is None)

        listed = {one.name: one for one in await agents_with_messages(services, "human")}
        for name in NAMES:
            agent = parts.broker.directory.get(name)
            if agent is None:
                continue
            open_mail = [mail for mail in read_mail(rows, name) if mail.state != State.ANSWERED]
            waiting = (await terminal_view(services, agent)).waiting
            queue = cast(AgentPage, await parts.views.answer(AskAgent(name=name, limit=500))).queue
            seqs = [mail.seq for mail in open_mail] + read_unsure(rows, name)
            assert [one.seq for one in waiting] == seqs[:50]
            assert [one.seq for one in queue] == [mail.seq for mail in open_mail]
            assert (listed[name].wait is not None) == bool(seqs)


async def test_message_to_a_path_says_why_before_it_is_recorded_as_dead(parts: ViewParts) -> None:
    sent = await parts.bus.send(HUMAN, "hello", "nobody/here")

    (receipt,) = (await receipts_view(services_of(parts), sent)).receipts

    assert (receipt.name, receipt.state) == ("nobody/here", "queued")
    assert receipt.wait == WaitReason(
        code="no_subscription",
        text="no agent is subscribed to nobody/here",
        moves="the bus records it as dead next, and 'pal dead' lists it",
    )


async def test_dead_path_has_its_steps_in_the_ledger(parts: ViewParts) -> None:
    sent = await parts.bus.send(HUMAN, "hello", "nobody/here")
    await parts.bus.report("nobody/here", State.DEAD, sent.seq, reason="no agent")

    page = cast(LedgerPage, await parts.views.answer(AskLedger(message=str(sent.seq))))

    assert [(step.name, step.state) for step in page.steps] == [("", "queued"), ("nobody/here", "dead")]
    assert page.recipients == 1


async def test_listed_agent_with_only_held_messages_says_why(parts: ViewParts) -> None:
    luna, _ = replace(await parts.bus.join("luna"), harness="claude"), await parts.bus.join("nova")
    sent = [await parts.bus.send(luna, str(number), "@nova") for number in range(LIMIT_A_MINUTE)]
    with pytest.raises(RateLimited):
        await parts.bus.send(luna, "too fast", "@nova")
    for event in sent:
        await parts.bus.report("nova", State.SEEN, event.seq)

    listed = {one.name: one for one in await agents_with_messages(services_of(parts), "human")}

    assert listed["nova"].wait is not None
    assert (listed["nova"].unread, listed["nova"].wait.code) == (0, "brake")


def test_message_that_the_fold_could_not_read_says_so() -> None:
    rows = PastState().rows
    payload = {"text": "hi", "delivered_to": ["nova"], "thread": "t", "expires": -1}
    event = Event(
        seq=1, id="1", type="message", sender="luna", to=("nova",), ts=1, device="X", payload=payload
    )
    rows.change(apply(rows, event))

    wait = read_wait(rows, 1, "nova", RandomFacts(random.Random(1), 5))

    assert wait is not None
    assert (wait.code, "nova" in wait.text) == ("not_stored", True)


async def test_marks_in_a_conversation_have_reasons(parts: ViewParts) -> None:
    luna = await parts.bus.join("luna")
    await parts.bus.join("nova")
    await parts.bus.send(luna, "hello", "@nova")
    facts = cast(ViewFacts, parts.views.facts)

    pages = ViewPages(parts.queries.rows, LogReader(parts.queries), facts)
    page = await pages.messages(AskMessages(conversation="@luna@nova"))

    assert [mark.reason is not None for row in page.rows for mark in row.marks] == [True]
