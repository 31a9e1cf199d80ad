"""Lanes that pull mail when they choose, and offers that have arrived before they are seen."""

from tests.delivery.terminals import becomes
from tests.fakes import Bus, texts_of

from palaver.protocol.agents import Caller
from palaver.protocol.events import AgentState, Grade
from palaver.protocol.lanes import Ability, Lane, LaneKind, LaneLevel, OfferOutcome
from palaver.protocol.requests import DIALOG, SetStatus

HOOK = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)
BUSY = SetStatus(state="active")


def open_hook(bus: Bus, name: str) -> Lane:
    return bus.delivery.open_lane(name, HOOK, lambda offer: None)


async def pair(bus: Bus) -> tuple[Caller, Caller]:
    return await bus.join("luna"), await bus.join("nova")


async def test_pulled_lane_gets_waiting_mail_when_it_asks(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = open_hook(bus, "nova")
    message = await bus.send(luna, "look", "@nova")

    offer = await bus.delivery.draw(lane, AgentState.ACTIVE)

    assert offer is not None
    assert texts_of(offer.events) == ["look"]
    assert bus.state(message, "nova") == "submitted"


async def test_pull_without_mail_writes_nothing(bus: Bus) -> None:
    await pair(bus)
    lane = open_hook(bus, "nova")
    before = bus.log.last()

    assert await bus.delivery.draw(lane, AgentState.ACTIVE) is None
    assert bus.log.last() == before
    assert bus.asked == []


async def test_mail_that_waits_for_a_pulled_lane_is_not_typed_meanwhile(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, BUSY)
    hook, terminal = open_hook(bus, "nova"), bus.open_lane("nova", LaneKind.TERMINAL)
    message = await bus.send(luna, "look", "@nova")

    offer = await bus.delivery.draw(hook, AgentState.ACTIVE)

    assert offer is not None
    assert offer.seqs == (message.seq,)
    assert terminal.is_empty


async def test_interrupt_is_held_during_a_dialog_despite_a_pulled_lane(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, SetStatus(state="blocked"))
    hook, terminal = open_hook(bus, "nova"), bus.open_lane("nova", LaneKind.TERMINAL)
    bus.delivery.set_level(terminal.lane, LaneLevel(is_open=False, reason=DIALOG))

    urgent = await bus.send(luna, "stop", "@nova", priority="interrupt")
    await becomes(bus, urgent, "held")
    bus.delivery.set_level(terminal.lane, LaneLevel(is_open=False, reason="composer"))
    await becomes(bus, urgent, "queued")

    offer = await bus.delivery.draw(hook, AgentState.ACTIVE)
    assert offer is not None
    assert offer.seqs == (urgent.seq,)
    assert terminal.is_empty


async def test_interrupt_is_held_during_a_dialog_despite_a_native_lane(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, SetStatus(state="blocked"))
    native, terminal = bus.open_lane("nova", LaneKind.NATIVE), bus.open_lane("nova", LaneKind.TERMINAL)
    bus.delivery.set_level(terminal.lane, LaneLevel(is_open=False, reason=DIALOG))

    urgent = await bus.send(luna, "stop", "@nova", priority="interrupt")
    await becomes(bus, urgent, "held")
    assert native.is_empty
    bus.delivery.set_level(terminal.lane, LaneLevel(is_open=False, reason="composer"))

    offer = await native.next()
    assert offer.seqs == (urgent.seq,)
    assert terminal.is_empty


async def test_idle_agent_is_woken_by_another_lane_than_the_pulled_one(bus: Bus) -> None:
    luna, _ = await pair(bus)
    open_hook(bus, "nova")
    terminal = bus.open_lane("nova", LaneKind.TERMINAL)
    assert bus.delivery.can_wake("nova")
    assert not bus.delivery.can_wake("luna")

    await bus.send(luna, "wake up", "@nova")

    assert await terminal.next_texts() == ["wake up"]


async def test_better_busy_lane_comes_before_a_pulling_lane(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, BUSY)
    hook, native = open_hook(bus, "nova"), bus.open_lane("nova", LaneKind.NATIVE)
    await bus.send(luna, "one", "@nova")
    await native.next()
    await bus.send(luna, "two", "@nova")

    assert await bus.delivery.draw(hook, AgentState.ACTIVE) is None


async def test_free_better_lane_is_used_and_the_pulling_lane_gets_nothing(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, BUSY)
    hook = open_hook(bus, "nova")
    await bus.send(luna, "one", "@nova")
    native = bus.open_lane("nova", LaneKind.NATIVE)

    assert await bus.delivery.draw(hook, AgentState.ACTIVE) is None
    assert await native.next_texts() == ["one"]


async def test_status_given_by_the_pulling_lane_counts(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, SetStatus(state="blocked"))
    lane = open_hook(bus, "nova")
    await bus.send(luna, "when you rest", "@nova", priority="idle")
    await bus.send(luna, "now", "@nova")

    first = await bus.delivery.draw(lane, AgentState.ACTIVE)
    assert first is not None
    bus.delivery.arrived(lane, first.number)
    second = await bus.delivery.draw(lane, AgentState.IDLE)

    assert second is not None
    assert [texts_of(offer.events) for offer in (first, second)] == [["now"], ["when you rest"]]


async def test_offer_is_limited_in_text_size_but_has_at_least_one_message(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = open_hook(bus, "nova")
    for text in ("a" * 30, "b" * 30, "c" * 30):
        await bus.send(luna, text, "@nova")

    sizes = []
    for limit in (65, 10):
        offer = await bus.delivery.draw(lane, AgentState.ACTIVE, limit_text=limit)
        assert offer is not None
        bus.delivery.arrived(lane, offer.number)
        sizes.append(len(offer.events))

    assert sizes == [2, 1]


async def test_next_offer_follows_an_arrived_one_and_each_is_seen_separately(bus: Bus) -> None:
    luna, _ = await pair(bus)
    native = bus.open_lane("nova", LaneKind.NATIVE)
    one = await bus.send(luna, "one", "@nova")
    first = await native.next()
    two = await bus.send(luna, "two", "@nova")
    assert native.is_empty

    bus.delivery.arrived(native.lane, first.number)

    assert (await native.next()).seqs == (two.seq,)
    assert bus.state(one, "nova") == "submitted"
    await bus.delivery.answer(native.lane, first.number, OfferOutcome.SEEN, grade=Grade.CONTEXT)
    assert bus.state(one, "nova") == "seen"
    bus.delivery.arrived(native.lane, first.number)
    assert native.lane.arrived == set()


async def test_lane_sets_its_number_of_messages_per_offer(bus: Bus) -> None:
    luna, _ = await pair(bus)
    for text in ("one", "two", "three"):
        await bus.send(luna, text, "@nova")
    carried: list[list[str]] = []
    ability = Ability(kind=LaneKind.NATIVE, reaches_busy=True, wakes_idle=True, limit=2)

    lane = bus.delivery.open_lane("nova", ability, lambda offer: carried.append(texts_of(offer.events)))
    offer = await bus.delivery.draw(lane, AgentState.IDLE)

    assert (carried or [texts_of(offer.events) if offer else []])[0] == ["one", "two"]


async def test_lane_that_closes_while_it_pulls_leaves_the_mail_queued(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = open_hook(bus, "nova")
    message = await bus.send(luna, "look", "@nova")
    await bus.delivery.close_lane(lane)

    assert await bus.delivery.draw(lane, AgentState.ACTIVE) is None
    assert bus.state(message, "nova") == "queued"


async def test_compacting_agent_gets_only_interrupts(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, SetStatus(state="active", detail="compacting"))
    native = bus.open_lane("nova")
    await bus.send(luna, "later", "@nova")
    await bus.send(luna, "now", "@nova", priority="interrupt")

    offer = await native.next()
    assert texts_of(offer.events) == ["now"]
    await bus.delivery.answer(native.lane, offer.number, OfferOutcome.SEEN)
    assert native.is_empty
    await bus.submit(nova, BUSY)
    assert await native.next_texts() == ["later"]


async def test_pull_of_a_hook_overrides_an_earlier_compacting_status(bus: Bus) -> None:
    luna, nova = await pair(bus)
    await bus.submit(nova, SetStatus(state="active", detail="compacting"))
    lane = open_hook(bus, "nova")
    await bus.send(luna, "look", "@nova")

    offer = await bus.delivery.draw(lane, AgentState.ACTIVE)

    assert offer is not None


async def test_pull_does_not_overtake_an_offer_that_wakes_the_agent(bus: Bus) -> None:
    luna, nova = await pair(bus)
    wake, hook = bus.open_lane("nova", reaches_busy=False), open_hook(bus, "nova")
    await bus.send(luna, "first", "@nova")
    left = await wake.next()
    await bus.submit(nova, BUSY)
    await bus.send(luna, "second", "@nova")

    assert await bus.delivery.draw(hook, AgentState.ACTIVE) is None

    bus.delivery.arrived(wake.lane, left.number)
    offer = await bus.delivery.draw(hook, AgentState.ACTIVE)
    assert offer is not None
    assert texts_of(offer.events) == ["second"]


async def test_open_offer_of_a_spent_lane_blocks_nothing(bus: Bus) -> None:
    luna, nova = await pair(bus)
    wake, hook = bus.open_lane("nova", reaches_busy=False), open_hook(bus, "nova")
    await bus.send(luna, "first", "@nova")
    await wake.next()
    await bus.submit(nova, BUSY)
    await bus.send(luna, "second", "@nova")

    wake.lane.is_spent = True

    assert await bus.delivery.draw(hook, AgentState.ACTIVE) is not None
