"""Quiet mail: it wakes nobody, goes along with what does, and is never in the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import HUMAN, Bus, texts_of

from palaver.delivery.lane import Answer
from palaver.model.agent import Caller
from palaver.model.envelope import Draft, Event
from palaver.model.mail import deliverable, mail_key, mail_keys, mail_prefix, priority_of_key
from palaver.model.message import build_payload
from palaver.model.priority import Priority
from palaver.model.request import SetStatus
from palaver.model.text import LIMIT_INJECTION


async def _whisper(bus: Bus, text: str, *to: str, wakes: tuple[str, ...] = (), priority: str = "") -> Event:
    """Write a message that wakes only those in `wakes`."""
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


async def test_quiet_mail_does_not_wake_an_idle_agent_and_goes_along_with_what_does(
    bus: Bus, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    await _whisper(bus, "one", "nova")
    await _whisper(bus, "two", "nova")

    await bus.send(HUMAN, "look", "@nova")

    assert await lane.next_texts() == ["one", "two", "look"]


async def test_quiet_mail_reaches_an_agent_that_is_at_work(bus: Bus, nova: Caller) -> None:
    lane = bus.open_lane("nova", wakes_idle=False)
    await bus.submit(nova, SetStatus(state="active"))

    await _whisper(bus, "one", "nova")

    assert await lane.next_texts() == ["one"]


async def test_what_wakes_is_in_the_offer_however_much_quiet_mail_is_older(bus: Bus, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    for number in range(LIMIT_INJECTION + 5):
        await _whisper(bus, f"w{number}", "nova")

    await bus.send(HUMAN, "look", "@nova")
    first = await lane.next()
    await bus.delivery.answer(lane.lane, first.number, Answer.SEEN)
    await bus.send(HUMAN, "again", "@nova")

    assert len(first.events) == LIMIT_INJECTION
    assert texts_of(first.events)[-1] == "look"
    assert await lane.next_texts() == [
        *(f"w{number}" for number in range(LIMIT_INJECTION - 1, LIMIT_INJECTION + 5)),
        "again",
    ]


async def test_those_who_are_named_are_woken_and_the_others_are_not(bus: Bus, nova: Caller) -> None:
    await bus.join("rosa")
    lanes = {name: bus.open_lane(name) for name in ("nova", "rosa")}

    await _whisper(bus, "now", "nova", "rosa", wakes=("rosa",), priority="interrupt")
    assert await lanes["rosa"].next_texts() == ["now"]
    await bus.send(HUMAN, "look", "@nova")

    assert await lanes["nova"].next_texts() == ["now", "look"]


async def test_whoever_takes_mail_gets_all_of_it_in_order(bus: Bus, nova: Caller) -> None:
    await bus.send(HUMAN, "one", "@nova")
    await _whisper(bus, "two", "nova")
    await bus.send(HUMAN, "three", "@nova")
    await _whisper(bus, "now", "nova", priority="interrupt")

    assert bus.texts("nova") == ["now", "one", "two", "three"]


async def test_a_taker_hears_of_quiet_mail_behind_what_it_has_seen(bus: Bus, nova: Caller) -> None:
    taker = bus.delivery.take("nova")
    await bus.send(HUMAN, "one", "@nova")
    assert texts_of(await taker.wait(10)) == ["one"]

    await _whisper(bus, "two", "nova")

    assert texts_of(await taker.wait(10)) == ["two"]
    taker.close()


async def test_quiet_mail_is_acknowledged_and_counted_like_any_other(bus: Bus, nova: Caller) -> None:
    event = await _whisper(bus, "one", "nova")
    assert bus.state(event, "nova") == "queued"

    await bus.ack(nova, event.seq)

    assert bus.state(event, "nova") == "seen"
    assert bus.texts("nova") == []


async def test_a_paused_agent_is_woken_by_interrupts_only_and_takes_no_quiet_mail_along(
    bus: Bus, nova: Caller
) -> None:
    pause = Draft(type="agent.paused", sender="nova", payload={}, id="PAUSE", ts=bus.clock.now_ms())
    await bus.log.commit(None, lambda rows: pause)
    lane = bus.open_lane("nova")
    await _whisper(bus, "one", "nova")

    await bus.send(HUMAN, "now", "@nova", priority="interrupt")

    assert await lane.next_texts() == ["now"]


@given(
    st.sampled_from(Priority),
    st.booleans(),
    st.integers(1, 10**12),
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
)
def test_a_key_tells_its_priority_quiet_or_not(priority: Priority, quiet: bool, seq: int, name: str) -> None:
    key = mail_key(name, priority, seq, is_quiet=quiet)

    assert priority_of_key(key) is priority
    assert key in mail_keys(name, seq)
    assert key.startswith(mail_prefix(name, priority, is_quiet=quiet))
    assert not key.startswith(mail_prefix(name, priority, is_quiet=not quiet))


@pytest.mark.parametrize("wakes", ["nova", [1], {"nova": 1}])
def test_who_is_woken_is_a_list_of_names(wakes: object) -> None:
    event = Event(
        seq=1, id="A", type="message", sender="luna", to=(), ts=1, device="T", payload={"wakes": wakes}
    )

    with pytest.raises(TypeError, match="wakes"):
        deliverable(event)
