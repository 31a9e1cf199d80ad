"""Views of the state for doors: computed on read, without marking anything as read."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.fakes import HUMAN, LIMIT_A_MINUTE, Bus, FakeClock, FakeLane, open_memory, opened_bus, seat

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER, Sent
from palaver.config import LiveSettings, LoadedSettings, Settings
from palaver.delivery.reactor import DeliveryReactor
from palaver.errors import RateLimited
from palaver.protocol.agents import BeginSubagent
from palaver.protocol.envelope import Event
from palaver.protocol.events import Grade
from palaver.protocol.lanes import Ability, LaneKind
from palaver.protocol.requests import Acknowledge, Gone, Leave, Release, Send, SetStatus
from palaver.protocol.views import WaitReason
from palaver.services.queries import Queries
from palaver.services.results import RecentMessage, WaitingCopy
from palaver.services.services import Services
from palaver.services.view_pages import ViewPages
from palaver.services.view_reader import LogReader, ViewFacts
from palaver.services.views import (
    agent_view,
    agents_view,
    inbox_view,
    mail_view,
    message_view,
    open_mail,
    receipts_view,
    recently_sent,
    sent_lines,
    sent_view,
)
from palaver.state.reasons import LaneFact

DAY_S = 24 * 3600
NOT_FETCHED = WaitReason(
    code="not_fetched",
    text="nova has not called 'pal recv', and nothing can wake it",
    moves="nova calls 'pal recv'",
)


@dataclass(frozen=True, slots=True)
class Present:
    """Presence as the bus of the test sets it."""

    bus: Bus

    def is_present(self, name: str) -> bool:
        return name in self.bus.present


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a bus without lanes."""

    bus: Bus

    @property
    def now_ms(self) -> int:
        return self.bus.clock.now_ms()

    def is_present(self, name: str) -> bool:
        return name in self.bus.present

    def lanes(self, name: str) -> Sequence[LaneFact]:
        return ()


@dataclass(frozen=True, slots=True)
class Parts:
    """The services that the views need."""

    queries: Queries
    broker: Broker
    clock: FakeClock
    callers: SimpleNamespace
    daemon: SimpleNamespace
    live: SimpleNamespace
    delivery: DeliveryReactor


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with opened_bus(open_memory, tmp_path) as made:
        yield made


def _pages(bus: Bus) -> ViewPages:
    return ViewPages(bus.log.rows, LogReader(Queries(bus.log)), cast(ViewFacts, Facts(bus)))


def services(bus: Bus, **settings: int) -> Services:
    made = Settings(**settings)  # type: ignore[arg-type]  # numbers only
    return cast(
        Services,
        Parts(
            Queries(bus.log),
            bus.broker,
            bus.clock,
            SimpleNamespace(presence=Present(bus)),
            SimpleNamespace(settings=LiveSettings(LoadedSettings(settings=made, origins={}))),
            SimpleNamespace(facts=Facts(bus), pages=lambda: _pages(bus)),
            bus.delivery,
        ),
    )


@pytest.mark.parametrize(
    ("state", "silent_s", "limit_s", "is_stale"),
    [
        ("active", 1801, 1800, True),
        ("active", 1800, 1800, False),
        ("active", 11, 10, True),
        ("active", 10**6, 0, False),
        ("idle", 10**6, 1800, False),
        ("blocked", 10**6, 1800, False),
    ],
)
async def test_active_agent_is_stale_after_long_silence(
    bus: Bus, state: str, silent_s: int, limit_s: int, is_stale: bool
) -> None:
    luna = await bus.join("luna")
    await bus.submit(luna, SetStatus(state=state))
    bus.clock.advance(silent_s)

    view = agent_view(services(bus, stale_after_s=limit_s), bus.agent("luna"))

    assert view.stale is is_stale


async def test_status_ends_staleness_and_offline_agents_are_not_stale(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    for asking in (luna, nova):
        await bus.submit(asking, SetStatus(state="active"))
    bus.clock.advance(DAY_S)

    await bus.submit(luna, SetStatus(state="active"))
    bus.present.discard("nova")

    views = [agent_view(services(bus), bus.agent(name)) for name in ("luna", "nova")]
    assert [view.stale for view in views] == [False, False]


async def test_recent_messages_of_a_day_are_shown_with_their_readers(bus: Bus) -> None:
    luna, nova, kira = await bus.join("luna"), await bus.join("nova"), await bus.join("kira")
    await bus.send(luna, "yesterday", "@nova")
    bus.clock.advance(DAY_S + 1)
    first, second = await bus.send(luna, "one", "@nova", "@kira"), await bus.send(luna, "two", "@nova")
    await bus.send(nova, "not hers", "@kira")
    await bus.ack(nova, first.seq)
    await bus.send(kira, "so", reply_to=str(first.seq))

    before = bus.log.last()
    recent = await recently_sent(services(bus), "luna")

    assert recent == [
        RecentMessage(
            seq=second.seq,
            ts=second.ts,
            text="two",
            read_by=(),
            total=1,
            waiting=(WaitingCopy(agent="nova", state="queued", wait=NOT_FETCHED),),
        ),
        RecentMessage(seq=first.seq, ts=first.ts, text="one", read_by=("nova", "kira"), total=2),
    ]
    assert bus.log.last() == before


async def test_only_receipts_that_are_not_final_say_why_they_wait(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    read, unread = await bus.send(luna, "one", "@nova"), await bus.send(luna, "two", "@nova")
    await bus.ack(nova, read.seq)

    views = [await receipts_view(services(bus), one) for one in (read, unread)]

    assert [[(one.state, one.wait) for one in view.receipts] for view in views] == [
        [("seen", None)],
        [("queued", NOT_FETCHED)],
    ]
    written = msgspec.json.decode(msgspec.json.encode(views[1]))["receipts"][0]
    assert written["wait"] == msgspec.to_builtins(NOT_FETCHED)


async def test_only_the_newest_three_messages_are_shown(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    for word in ("one", "two", "three", "four"):
        await bus.send(luna, word, "@nova")

    recent = await recently_sent(services(bus), "luna")

    assert [one.text for one in recent] == ["four", "three", "two"]


async def test_held_message_is_not_part_of_open_mail(bus: Bus) -> None:
    luna, _ = replace(await bus.join("luna"), harness="claude"), await bus.join("nova")
    for number in range(LIMIT_A_MINUTE):
        await bus.send(luna, str(number), "@nova")
    with pytest.raises(RateLimited):
        await bus.send(luna, "held", "@nova")

    waiting = await open_mail(services(bus), "nova", 50, None)

    assert [event.payload["text"] for event in waiting] == [str(number) for number in range(LIMIT_A_MINUTE)]


async def test_inbox_shows_archived_open_mail_before_mail_in_the_log(bus: Bus) -> None:
    luna, nova = await bus.join("luna"), await bus.join("nova")
    sent = [await bus.send(luna, str(number), "@nova") for number in range(6)]
    await bus.submit(nova, Acknowledge(messages=(sent[1].seq,), lane="recv", grade=Grade.FLUSHED))
    await bus.log.archive(sent[4].seq)

    everything = await inbox_view(services(bus), "nova", 20)
    some = await inbox_view(services(bus), "nova", 3)
    few = await inbox_view(services(bus), "nova", 2)
    await bus.log.archive(bus.log.last() + 1)
    archived = await inbox_view(services(bus), "nova", 2)

    assert [event.payload["text"] for event, _ in everything] == ["0", "2", "3", "4", "5"]
    assert [event.payload["text"] for event, _ in some] == ["3", "4", "5"]
    assert [event.payload["text"] for event, _ in few] == ["4", "5"]
    assert archived == few


async def test_inbox_hides_the_text_of_a_held_message_until_its_release(bus: Bus) -> None:
    luna, _ = replace(await bus.join("luna"), harness="claude"), await bus.join("nova")
    for number in range(LIMIT_A_MINUTE):
        await bus.send(luna, str(number), "@nova")
    with pytest.raises(RateLimited) as held:
        await bus.send(luna, "too much", "@nova")

    (before,) = await inbox_view(services(bus), "nova", 1)
    await bus.submit(HUMAN, Release(message=str(held.value.message)))
    (after,) = await inbox_view(services(bus), "nova", 1)

    reason = held.value.reason
    assert (before[0].payload["text"], before[1]) == (f"(held: a brake holds it: {reason})", "held")
    assert (after[0].payload["text"], after[1]) == ("too much", "queued")


async def test_sub_agents_are_listed_after_parents_and_one_hour_after_end(bus: Bus) -> None:
    await bus.join("zoe", seat=seat(1))
    await bus.join("luna", seat=seat(2), is_here=False)
    for parent, key in (("zoe", "a1"), ("zoe", "a2"), ("luna", "a1"), ("zoe_sub_1", "b1")):
        await bus.broker.submit(SYSTEM_CALLER, BeginSubagent(parent=parent, key=key))
    await bus.broker.submit(SYSTEM_CALLER, Gone(name="zoe_sub_2", reason="done", seat=seat(1, "a2")))

    async def names() -> list[str]:
        return [view.name for view in await agents_view(services(bus))]

    family = ["zoe", "zoe_sub_1", "zoe_sub_1_sub_1", "zoe_sub_2", "luna", "luna_sub_1"]
    assert await names() == family
    assert agent_view(services(bus), bus.agent("zoe_sub_1")).parent == "zoe"

    bus.clock.advance(3601)

    assert await names() == [name for name in family if name != "zoe_sub_2"]


async def test_agent_with_undeliverable_mail_is_asleep(bus: Bus) -> None:
    luna = await bus.join("luna")
    nova = await bus.join("nova")
    await bus.broker.submit(nova, SetStatus(state="idle"))
    FakeLane(bus, "nova", Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True))
    before = agent_view(services(bus), bus.agent("nova"))

    await bus.send(luna, "hello", "@nova")
    bus.clock.advance(30)
    await bus.delivery.catch_up()

    assert not before.asleep
    assert agent_view(services(bus), bus.agent("nova")).asleep
    await bus.broker.submit(nova, SetStatus(state="active"))
    assert not agent_view(services(bus), bus.agent("nova")).asleep


async def test_idle_agent_without_a_lane_is_not_asleep(bus: Bus) -> None:
    luna = await bus.join("luna")
    nova = await bus.join("nova")
    await bus.broker.submit(nova, SetStatus(state="idle"))

    await bus.send(luna, "hello", "@nova")
    bus.clock.advance(30)
    await bus.delivery.catch_up()

    view = agent_view(services(bus), bus.agent("nova"))
    assert (view.unread, view.asleep) == (1, False)


async def test_json_of_an_agent_leaves_out_only_what_does_not_apply(bus: Bus) -> None:
    luna = await bus.join("luna")
    always = "name base tag role harness state detail since joined present unread device"

    usual = msgspec.to_builtins(agent_view(services(bus), bus.agent("luna")))
    await bus.submit(luna, Leave())
    left = msgspec.to_builtins(agent_view(services(bus), bus.agent("luna")))

    assert [name for name in usual if name != "pid"] == always.split()
    assert usual["tag"] is None
    assert list(left)[-1] == "left"


async def test_json_of_a_message_in_an_inbox_ends_with_its_state(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    sent = await bus.send(luna, "hello", "@nova")

    (message,) = await mail_view(services(bus), "nova", 5)

    assert list(msgspec.to_builtins(message))[-2:] == ["room", "state"]
    assert (message.seq, message.sender, message.text, message.state) == (sent.seq, "luna", "hello", "queued")


def test_json_of_a_foreign_envelope_has_its_type_and_payload_last() -> None:
    event = Event(
        seq=1,
        id="i",
        type="org.x",
        sender="luna",
        to=(),
        ts=0,
        device="D",
        payload={},
        delivered_to=("nova",),
    )

    shown = msgspec.json.decode(msgspec.json.encode(message_view(event)))

    assert list(shown)[-3:] == ["room", "type", "payload"]
    assert (shown["text"], shown["delivered_to"], shown["payload"]) == ("org.x {}", ["nova"], {})


def test_dry_run_has_neither_seq_nor_id() -> None:
    shown = msgspec.to_builtins(sent_view(Sent(event=None, to=("@nova",), delivered_to=("nova",))))

    assert shown == {"to": ("@nova",), "delivered_to": ("nova",), "dry_run": True}


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("@nova", ["sent #{} to nova"]),
        ("irc/local/#dev", ["sent #{} to irc/local/#dev"]),
        (
            "news/build",
            ["stored as #{}; it has no recipient now", "no agent is subscribed to news/build: dead letter"],
        ),
        (
            "@observers",
            ["stored as #{}; it has no recipient now", "@observers has no members now; the message is kept"],
        ),
    ],
)
async def test_result_of_a_send_names_its_recipients_or_why_it_has_none(
    bus: Bus, to: str, expected: list[str]
) -> None:
    luna = await bus.join("luna")
    await bus.join("nova")

    sent = await bus.broker.submit(luna, Send(text="hello", to=(to,)))

    assert isinstance(sent, Sent)
    assert sent.event is not None
    assert sent_lines(sent, lambda: 0) == [line.format(sent.event.seq) for line in expected]


async def test_result_of_a_send_to_all_says_that_no_other_agent_is_present(bus: Bus) -> None:
    luna = await bus.join("luna")

    sent = await bus.broker.submit(luna, Send(text="hello", to=("@all",)))

    assert isinstance(sent, Sent)
    assert sent.event is not None
    assert sent_lines(sent, lambda: 0) == [
        f"stored as #{sent.event.seq}; no other agent is present to read it"
    ]
