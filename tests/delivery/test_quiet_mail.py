"""Quiet mail: it wakes no agent, goes along with mail that does, and never blocks other mail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import HUMAN, Bus, texts_of

from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.lanes import OfferOutcome
from palaver.protocol.message import Priority, build_payload
from palaver.protocol.requests import SetStatus
from palaver.protocol.text import LIMIT_INJECTION
from palaver.state.rows import (
    MailKind,
    deliverable,
    kind_of_key,
    mail_key,
    mail_keys,
    mail_prefix,
    priority_of_key,
)


async def _whisper(bus: Bus, text: str, *to: str, wakes: tuple[str, ...] = (), priority: str = "") -> Event:
    """Write a message that wakes only the agents in `wakes`."""
    payload = build_payload(
        text=text, scope="mentions", sender_kind="instance", delivered_to=to, priority=priority
    )
    draft = Draft(
        type="message",
        sender="luna",
        to=to,
        payload={**payload, "wakes": list(wakes)},
        id=f"ID{text}",
        ts=bus.clock.now_ms(),
    )
    event = (await bus.log.commit(None, lambda rows: draft)).event
    assert event is not None
    return event


@pytest.fixture
async def nova(bus: Bus) -> Caller:
    return await bus.join("nova")


async def test_quiet_mail_goes_along_with_other_mail_and_wakes_no_idle_agent(bus: Bus, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    await _whisper(bus, "one", "nova")
    await _whisper(bus, "two", "nova")

    await bus.send(HUMAN, "look", "@nova")

    assert await lane.next_texts() == ["one", "two", "look"]


async def test_quiet_mail_reaches_an_active_agent(bus: Bus, nova: Caller) -> None:
    lane = bus.open_lane("nova", wakes_idle=False)
    await bus.submit(nova, SetStatus(state="active"))

    await _whisper(bus, "one", "nova")

    assert await lane.next_texts() == ["one"]


async def test_waking_message_is_in_the_offer_however_much_quiet_mail_is_older(
    bus: Bus, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    for number in range(LIMIT_INJECTION + 5):
        await _whisper(bus, f"w{number}", "nova")

    await bus.send(HUMAN, "look", "@nova")
    first = await lane.next()
    await bus.delivery.answer(lane.lane, first.number, OfferOutcome.SEEN)
    await bus.send(HUMAN, "again", "@nova")

    assert len(first.events) == LIMIT_INJECTION
    assert texts_of(first.events)[-1] == "look"
    assert await lane.next_texts() == [
        *(f"w{number}" for number in range(LIMIT_INJECTION - 1, LIMIT_INJECTION + 5)),
        "again",
    ]


async def test_only_the_named_agents_are_woken(bus: Bus, nova: Caller) -> None:
    await bus.join("rosa")
    lanes = {name: bus.open_lane(name) for name in ("nova", "rosa")}

    await _whisper(bus, "now", "nova", "rosa", wakes=("rosa",), priority="interrupt")
    assert await lanes["rosa"].next_texts() == ["now"]
    await bus.send(HUMAN, "look", "@nova")

    assert await lanes["nova"].next_texts() == ["now", "look"]


async def test_reader_gets_all_mail_in_order(bus: Bus, nova: Caller) -> None:
    await bus.send(HUMAN, "one", "@nova")
    await _whisper(bus, "two", "nova")
    await bus.send(HUMAN, "three", "@nova")
    await _whisper(bus, "now", "nova", priority="interrupt")

    assert bus.texts("nova") == ["now", "one", "two", "three"]


async def test_reader_gets_quiet_mail_after_a_message_it_has_seen(bus: Bus, nova: Caller) -> None:
    reader = bus.delivery.take("nova")
    await bus.send(HUMAN, "one", "@nova")
    assert texts_of(await reader.wait(10)) == ["one"]

    await _whisper(bus, "two", "nova")

    assert texts_of(await reader.wait(10)) == ["two"]
    reader.close()


async def test_quiet_mail_is_acknowledged_and_counted_like_other_mail(bus: Bus, nova: Caller) -> None:
    event = await _whisper(bus, "one", "nova")
    assert bus.state(event, "nova") == "queued"

    await bus.ack(nova, event.seq)

    assert bus.state(event, "nova") == "seen"
    assert bus.texts("nova") == []


async def test_paused_agent_gets_only_interrupts_and_no_quiet_mail(bus: Bus, nova: Caller) -> None:
    pause = Draft(type="agent.paused", sender="nova", payload={}, id="PAUSE", ts=bus.clock.now_ms())
    await bus.log.commit(None, lambda rows: pause)
    lane = bus.open_lane("nova")
    await _whisper(bus, "one", "nova")

    await bus.send(HUMAN, "now", "@nova", priority="interrupt")

    assert await lane.next_texts() == ["now"]


@given(
    st.sampled_from(Priority),
    st.sampled_from(MailKind),
    st.integers(1, 10**12),
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
)
def test_key_encodes_its_priority_and_its_kind(
    priority: Priority, kind: MailKind, seq: int, name: str
) -> None:
    key = mail_key(name, priority, seq, kind)

    assert (priority_of_key(key), kind_of_key(key)) == (priority, kind)
    assert key in mail_keys(name, seq)
    assert [one for one in MailKind if key.startswith(mail_prefix(name, priority, one))] == [kind]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("nova/1000000000000042", (Priority.INTERRUPT, MailKind.WAKING)),
        ("nova/4000000000000042", (Priority.IDLE, MailKind.WAKING)),
        ("nova/5000000000000042", (Priority.INTERRUPT, MailKind.QUIET)),
        ("nova/8000000000000042", (Priority.IDLE, MailKind.QUIET)),
        ("nova/9000000000000042", (Priority.INTERRUPT, MailKind.HANDLED)),
        ("nova/c000000000000042", (Priority.IDLE, MailKind.HANDLED)),
    ],
)
def test_stored_keys_keep_their_meaning(key: str, found: tuple[Priority, MailKind]) -> None:
    assert (priority_of_key(key), kind_of_key(key)) == found
    assert mail_key("nova", *found[:1], 42, found[1]) == key


@pytest.mark.parametrize("wakes", ["nova", [1], {"nova": 1}])
def test_wakes_must_be_a_list_of_names(wakes: object) -> None:
    event = Event(
        seq=1, id="A", type="message", sender="luna", to=(), ts=1, device="T", payload={"wakes": wakes}
    )

    with pytest.raises(ValueError, match="wakes"):
        deliverable(event)
