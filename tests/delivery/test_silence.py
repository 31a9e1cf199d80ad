"""The bounded wait for a silent lane: then the next lane or a notice, and nothing twice."""

import asyncio

import pytest
from tests.delivery.terminals import becomes, notices
from tests.fakes import HUMAN, Bus, FakeLane, seat, texts_of
from tests.limits import LIMIT_S

from palaver.errors import DiskFull
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import (
    IDLE_WAIT_S,
    PACED,
    WITHDRAWN,
    Ability,
    LaneKind,
    LaneLevel,
    Offer,
    OfferOutcome,
)
from palaver.protocol.requests import Leave, Send, SetStatus

HOOK = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)


@pytest.fixture
async def luna(bus: Bus) -> Caller:
    return await bus.join("luna")


@pytest.fixture
async def nova(bus: Bus) -> Caller:
    return await bus.join("nova", holder="hash", seat=seat(7))


async def passes(bus: Bus, seconds: float) -> None:
    """Let time pass, as the daemon's clock does."""
    bus.clock.advance(seconds)
    await bus.delivery.catch_up()


def is_unconfirmed(bus: Bus, event: Event) -> bool:
    entry = bus.entry(event, "nova")
    return entry is not None and entry.unconfirmed


def dropping(bus: Bus) -> FakeLane:
    """Open a lane whose holder is certain that the model did not see a message if an idle agent is silent."""
    lane = bus.open_lane("nova")
    lane.lane.silence = lambda offer: OfferOutcome.REFUSED
    return lane


# Offers without an outcome


async def test_silent_idle_agent_leaves_a_message_unconfirmed_and_reported(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()

    await passes(bus, IDLE_WAIT_S - 1)
    too_early = is_unconfirmed(bus, event)
    wait_s = bus.delivery.next_wait_s()
    await passes(bus, 1)

    assert (too_early, wait_s) == (False, 1)
    assert is_unconfirmed(bus, event)
    (notice,) = await notices(bus, "luna")
    assert f"#{event.seq} was submitted to nova but never confirmed" in notice
    await passes(bus, IDLE_WAIT_S)
    assert len(await notices(bus, "luna")) == 1


async def test_wait_does_not_run_while_the_agent_is_active(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    await bus.submit(nova, SetStatus(state="active"))
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()

    await passes(bus, IDLE_WAIT_S)
    await bus.submit(nova, SetStatus(state="idle"))
    await passes(bus, IDLE_WAIT_S - 1)
    await bus.submit(nova, SetStatus(state="active"))
    await bus.submit(nova, SetStatus(state="idle"))
    await passes(bus, IDLE_WAIT_S - 1)
    before = is_unconfirmed(bus, event)
    await passes(bus, 1)

    assert not before
    assert is_unconfirmed(bus, event)


async def test_certain_lane_passes_the_message_on_to_the_next_lane(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    native, terminal = dropping(bus), bus.open_lane("nova", LaneKind.TERMINAL)
    event = await bus.send(luna, "hello", "@nova")
    await native.next()

    await passes(bus, IDLE_WAIT_S)

    offer = await terminal.next()
    assert texts_of(offer.events) == ["hello"]
    await bus.delivery.answer(terminal.lane, offer.number, OfferOutcome.SEEN)
    assert bus.state(event, "nova") == "seen"
    assert native.is_empty
    assert await notices(bus, "luna") == []


async def test_message_is_sent_again_on_the_only_lane_that_can_wake_the_agent(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    native = dropping(bus)
    bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    await bus.send(luna, "hello", "@nova")
    await native.next()

    await passes(bus, IDLE_WAIT_S)

    assert await native.next_texts() == ["hello"]


async def test_hook_may_take_a_withdrawn_message(bus: Bus, luna: Caller, nova: Caller) -> None:
    native, _ = (
        dropping(bus),
        bus.open_lane("nova", LaneKind.TERMINAL, LaneLevel(is_open=False, reason="draft")),
    )
    hook = bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    event = await bus.send(luna, "hello", "@nova")
    await native.next()
    await passes(bus, IDLE_WAIT_S)
    await becomes(bus, event, "queued")

    offer = await bus.delivery.draw(hook, AgentState.ACTIVE)

    assert offer is not None
    assert texts_of(offer.events) == ["hello"]


async def test_message_confirmed_in_time_is_left_alone(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    offer = await lane.next()
    bus.clock.advance(IDLE_WAIT_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN))
        group.create_task(bus.delivery.catch_up())
    await bus.delivery.end_silence(lane.lane, offer.number)

    assert bus.state(event, "nova") == "seen"


async def test_failed_record_of_a_silent_offer_is_retried(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()
    bus.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await passes(bus, IDLE_WAIT_S)
    bus.failure = None

    await passes(bus, IDLE_WAIT_S)

    assert is_unconfirmed(bus, event)


# Late outcomes


async def test_message_that_is_seen_late_is_seen(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    offer = await lane.next()
    await passes(bus, IDLE_WAIT_S)

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN, grade="context")
    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)

    entry = bus.entry(event, "nova")
    assert entry is not None
    assert (entry.state, entry.grade) == ("seen", "context")


async def test_late_outcome_that_could_not_be_recorded_can_be_repeated(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    offer = await lane.next()
    await passes(bus, IDLE_WAIT_S)
    bus.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)
    bus.failure = None

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.SEEN)

    assert bus.state(event, "nova") == "seen"
    assert lane.lane.late == {}


@pytest.mark.parametrize("answer", [OfferOutcome.REFUSED, OfferOutcome.DEFERRED])
async def test_message_that_did_not_arrive_is_queued_at_its_old_position(
    bus: Bus, luna: Caller, nova: Caller, answer: OfferOutcome
) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova", priority="interrupt")
    offer = await lane.next()
    await passes(bus, IDLE_WAIT_S)
    await bus.submit(nova, SetStatus(state="blocked"))

    await bus.delivery.answer(lane.lane, offer.number, answer)

    assert (await lane.next()).seqs == (event.seq,)


async def test_late_unconfirmed_outcome_changes_nothing(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    offer = await lane.next()
    await passes(bus, IDLE_WAIT_S)
    before = len(bus.asked)

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.UNCONFIRMED)

    assert len(bus.asked) == before
    assert is_unconfirmed(bus, event)


async def test_keys_are_never_pressed_later(bus: Bus, nova: Caller) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL)
    event = await bus.submit(HUMAN, Send(text="", raw=b"x", recipient="nova"))
    assert event is not None
    offer = await lane.next()
    await passes(bus, IDLE_WAIT_S)

    await bus.delivery.answer(lane.lane, offer.number, OfferOutcome.DEFERRED)

    assert is_unconfirmed(bus, event)


async def test_oldest_of_very_many_late_offers_is_dropped(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova")
    first: Offer | None = None
    for number in range(101):
        await bus.send(luna, str(number), "@nova")
        offer = await lane.next()
        first = first or offer
        await passes(bus, IDLE_WAIT_S)

    assert first is not None
    assert first.number not in lane.lane.late
    assert len(lane.lane.late) == 100


# Messages that no lane has in hand


async def test_message_that_no_lane_claims_in_time_is_unconfirmed(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()
    await bus.delivery.close_lane(lane.lane)
    before = is_unconfirmed(bus, event)

    await passes(bus, IDLE_WAIT_S)

    assert not before
    assert is_unconfirmed(bus, event)
    assert len(await notices(bus, "luna")) == 1


async def test_failed_unconfirmed_report_is_retried(bus: Bus, luna: Caller, nova: Caller) -> None:
    lane = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()
    await bus.delivery.close_lane(lane.lane)
    bus.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await passes(bus, IDLE_WAIT_S)
    bus.failure = None

    await passes(bus, IDLE_WAIT_S)

    assert is_unconfirmed(bus, event)


async def test_failed_unconfirmed_report_of_a_closed_lane_is_retried(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova")
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()
    bus.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await bus.delivery.close_lane(lane.lane)
    bus.failure = None

    await passes(bus, IDLE_WAIT_S)

    assert is_unconfirmed(bus, event)
    assert len(await notices(bus, "luna")) == 1


async def test_late_holder_presses_no_keys_and_keeps_the_order_of_messages(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", LaneKind.TERMINAL, remembers=True)
    keys = await bus.submit(HUMAN, Send(text="", raw=b"x", recipient="nova"))
    assert keys is not None
    await lane.next()
    await bus.delivery.close_lane(lane.lane)
    await passes(bus, IDLE_WAIT_S)
    lane = bus.open_lane("nova", LaneKind.TERMINAL, remembers=True)
    event = await bus.send(luna, "hello", "@nova", priority="interrupt")
    await lane.next()
    await bus.delivery.close_lane(lane.lane)
    await passes(bus, IDLE_WAIT_S)
    await bus.submit(nova, SetStatus(state="blocked"))

    lane = bus.open_lane("nova", LaneKind.TERMINAL, remembers=True)
    await bus.delivery.recover(lane.lane, [keys.seq, event.seq], OfferOutcome.DEFERRED)
    await bus.delivery.recovered(lane.lane)

    assert (await lane.next()).seqs == (event.seq,)
    assert is_unconfirmed(bus, keys)


async def test_next_daemon_waits_a_limited_time_for_a_returning_lane(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()
    bus.close()

    async with asyncio.TaskGroup() as tasks:
        again = Bus(bus.log, bus.clock, tasks)
        await passes(again, IDLE_WAIT_S)
        again.close()

    assert is_unconfirmed(bus, event)


async def test_late_end_of_an_old_connection_queues_what_its_holder_never_got(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    old = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await old.next()
    new = bus.open_lane("nova", remembers=True)
    await bus.delivery.recovered(new.lane)

    await bus.delivery.close_lane(old.lane)

    assert (await new.next()).seqs == (event.seq,)


async def test_early_end_of_an_old_connection_delivers_nothing_twice(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    old = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await old.next()
    new = bus.open_lane("nova", remembers=True)

    await bus.delivery.close_lane(old.lane)
    state = bus.state(event, "nova")
    await bus.delivery.recover(new.lane, [event.seq], OfferOutcome.SEEN)
    await bus.delivery.recovered(new.lane)

    assert (state, bus.state(event, "nova")) == ("submitted", "seen")
    assert new.is_empty


async def test_new_holder_reports_nothing_about_offers_of_another_one(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    old = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await old.next()
    await bus.delivery.close_lane(old.lane)

    new = bus.open_lane("nova", remembers=True)
    await bus.delivery.recovered(new.lane, knows_all=False)

    assert is_unconfirmed(bus, event)
    assert new.is_empty


async def test_lane_of_an_ended_agent_leaves_its_mail_unconfirmed_at_once(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    lane = bus.open_lane("nova", remembers=True)
    event = await bus.send(luna, "hello", "@nova")
    await lane.next()

    await bus.submit(nova, Leave())
    await bus.delivery.close_lane(lane.lane)

    assert is_unconfirmed(bus, event)


# Withdrawn messages that appear later


async def test_withdrawn_message_that_appears_is_not_sent_on_another_lane(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    native = dropping(bus)
    bus.open_lane("nova", LaneKind.TERMINAL, LaneLevel(is_open=False, reason="draft"))
    hook = bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    event = await bus.send(luna, "hello", "@nova")
    await native.next()
    await passes(bus, IDLE_WAIT_S)
    await becomes(bus, event, "queued")
    entry = bus.entry(event, "nova")
    assert entry is not None
    assert entry.reason == WITHDRAWN

    await bus.delivery.reclaim(hook, [event.seq])

    assert bus.state(event, "nova") == "submitted"
    assert await bus.delivery.draw(hook, AgentState.ACTIVE) is None
    (number,) = hook.offers
    assert number in hook.arrived
    await bus.delivery.answer(hook, number, OfferOutcome.SEEN)
    assert bus.state(event, "nova") == "seen"


async def test_withdrawn_message_in_the_hand_of_another_lane_stays_there(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    native, terminal = dropping(bus), bus.open_lane("nova", LaneKind.TERMINAL)
    hook = bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    event = await bus.send(luna, "hello", "@nova")
    await native.next()
    await passes(bus, IDLE_WAIT_S)
    await terminal.next()

    await bus.delivery.reclaim(hook, [event.seq])

    assert hook.offers == {}
    assert bus.state(event, "nova") == "submitted"


# A lane that keeps a limit of its harness


async def test_paced_lane_lets_a_hook_go_first_but_no_terminal(bus: Bus, luna: Caller, nova: Caller) -> None:
    native = bus.open_lane("nova", LaneKind.NATIVE, LaneLevel(is_open=False, reason=PACED))
    terminal = bus.open_lane("nova", LaneKind.TERMINAL)
    hook = bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    await bus.send(luna, "one", "@nova")

    offer = await bus.delivery.draw(hook, AgentState.ACTIVE)
    await bus.send(luna, "two", "@nova")
    bus.delivery.set_level(native.lane, LaneLevel())

    assert offer is not None
    assert texts_of(offer.events) == ["one"]
    assert await native.next_texts() == ["two"]
    assert terminal.is_empty


async def test_pull_does_not_overtake_an_open_offer_of_a_paced_lane(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    native = bus.open_lane("nova")
    hook = bus.delivery.open_lane("nova", HOOK, lambda offer: None)
    await bus.send(luna, "one", "@nova")
    await native.next()
    bus.delivery.set_level(native.lane, LaneLevel(is_open=False, reason=PACED))
    await bus.send(luna, "two", "@nova")

    async with asyncio.timeout(LIMIT_S):
        assert await bus.delivery.draw(hook, AgentState.ACTIVE) is None


async def test_holder_knows_only_messages_submitted_since_it_started(
    bus: Bus, luna: Caller, nova: Caller
) -> None:
    old = bus.open_lane("nova")
    before = await bus.send(luna, "before", "@nova")
    await old.next()
    bus.delivery.arrived(old.lane, 1)
    since_ms = bus.clock.now_ms()
    bus.clock.advance(1)
    after = await bus.send(luna, "after", "@nova")
    await old.next()
    bus.close()
    bus.clock.advance(1)  # the ids of the next daemon are larger

    async with asyncio.TaskGroup() as tasks:
        again = Bus(bus.log, bus.clock, tasks)
        lane = again.open_lane("nova")
        await again.delivery.recovered(lane.lane, since_ms=since_ms)
        assert (await lane.next()).seqs == (after.seq,)
        again.close()

    assert is_unconfirmed(bus, before)
