"""Mail for idle agents that no lane can wake: held, reported, and delivered with their next activity."""

import pytest
from tests.delivery.terminals import notices
from tests.fakes import HUMAN, Bus, FakeLane, seat, texts_of

from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import Ability, LaneKind, OfferOutcome
from palaver.protocol.requests import Leave, SetStatus

HOOK = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)
NATIVE = Ability(kind=LaneKind.NATIVE, reaches_busy=True, wakes_idle=True)


async def pair(bus: Bus) -> tuple[Caller, Caller]:
    return await bus.join("luna"), await bus.join("nova", harness="gemini", seat=seat(7))


async def passes(bus: Bus, seconds: float) -> None:
    """Let time pass, as the daemon's clock does."""
    bus.clock.advance(seconds)
    await bus.delivery.catch_up()


def reason(bus: Bus, event: Event) -> tuple[str, str, str]:
    entry = bus.entry(event, "nova")
    return ("queued", "", "") if entry is None else (entry.state, entry.lane, entry.reason)


async def test_mail_that_waits_long_is_held_and_its_sender_notified_once(bus: Bus) -> None:
    luna, _ = await pair(bus)
    FakeLane(bus, "nova", HOOK)
    event = await bus.send(luna, "hello", "@nova")
    await passes(bus, 29)
    assert reason(bus, event)[0] == "queued"

    await passes(bus, 1)

    assert reason(bus, event) == ("held", "hook", "asleep")
    (notice,) = await notices(bus, "luna")
    assert "nothing can wake it. It is delivered with its next prompt" in notice


async def test_failed_hold_of_mail_for_two_agents_is_tried_again_for_both(bus: Bus) -> None:
    luna, _ = await pair(bus)
    await bus.join("kira", harness="gemini", seat=seat(8))
    FakeLane(bus, "nova", HOOK)
    FakeLane(bus, "kira", HOOK)
    event = await bus.send(luna, "hello", "@nova", "@kira")
    bus.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await passes(bus, 30)
    bus.failure = None

    await passes(bus, 30)

    assert [bus.state(event, name) for name in ("nova", "kira")] == ["held", "held"]
    assert len(await notices(bus, "luna")) == 2


async def test_held_mail_is_drawn_with_the_next_hook(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = FakeLane(bus, "nova", HOOK)
    event = await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)

    offer = await bus.delivery.draw(lane.lane, AgentState.ACTIVE)

    assert offer is not None
    assert texts_of(offer.events) == ["hello"]
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
    assert reason(bus, event)[0] == "seen"
    assert len(await notices(bus, "luna")) == 1


async def test_held_mail_is_offered_as_soon_as_a_lane_can_wake_the_agent(bus: Bus) -> None:
    luna, _ = await pair(bus)
    FakeLane(bus, "nova", HOOK)
    await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)

    native = FakeLane(bus, "nova", NATIVE)

    assert await native.next_texts() == ["hello"]


async def test_active_agent_is_not_asleep(bus: Bus) -> None:
    luna, nova = await pair(bus)
    FakeLane(bus, "nova", HOOK)
    await bus.broker.submit(nova, SetStatus(state="active"))
    event = await bus.send(luna, "hello", "@nova")

    await passes(bus, 60)

    assert reason(bus, event)[0] == "queued"
    assert await notices(bus, "luna") == []


async def test_offline_agent_without_a_lane_is_not_asleep(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = FakeLane(bus, "nova", HOOK)
    await bus.delivery.close_lane(lane.lane)
    event = await bus.send(luna, "hello", "@nova")

    await passes(bus, 60)
    await bus.send(HUMAN, "marker", "@luna")

    assert reason(bus, event)[0] == "queued"


async def told_apart(bus: Bus, luna: Caller) -> tuple[FakeLane, Event]:
    """Let luna receive two notices, of one message each. Return the lane and the second message."""
    lane = FakeLane(bus, "nova", HOOK)
    for text in ("one", "two"):
        event = await bus.send(luna, text, "@nova")
        await passes(bus, 31)
    assert len(await notices(bus, "luna")) == 2
    return lane, event


async def test_sender_is_not_notified_again_when_the_session_restarts(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane, event = await told_apart(bus, luna)

    await bus.delivery.close_lane(lane.lane)
    assert reason(bus, event)[0] == "queued"
    FakeLane(bus, "nova", HOOK)
    await passes(bus, 31)

    assert reason(bus, event) == ("held", "hook", "asleep")
    assert len(await notices(bus, "luna")) == 2


async def test_sender_is_notified_again_when_the_agent_has_left_and_returned(bus: Bus) -> None:
    luna, nova = await pair(bus)
    lane, event = await told_apart(bus, luna)
    await bus.delivery.close_lane(lane.lane)

    await bus.submit(nova, Leave())
    await bus.join("nova", harness="gemini", seat=seat(8))
    FakeLane(bus, "nova", HOOK)
    await passes(bus, 31)

    assert reason(bus, event) == ("held", "hook", "asleep")
    assert len(await notices(bus, "luna")) == 3
