"""Mail for agents at rest that nothing can wake: held, told, and given with what they do next."""

from tests.delivery.terminals import notices
from tests.fakes import HUMAN, Bus, FakeLane, seat, texts_of

from palaver.delivery.lane import Ability, Answer, LaneKind
from palaver.model.agent import Caller
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.request import Leave, SetStatus

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


async def test_what_waits_for_long_is_held_and_its_sender_told_once(bus: Bus) -> None:
    luna, _ = await pair(bus)
    FakeLane(bus, "nova", HOOK)
    event = await bus.send(luna, "hello", "@nova")
    await passes(bus, 29)
    assert reason(bus, event)[0] == "queued"

    await passes(bus, 1)

    assert reason(bus, event) == ("held", "hook", "asleep")
    (said,) = await notices(bus, "luna")
    assert "nothing can wake it. It is given it with its next prompt" in said


async def test_it_is_given_with_the_next_moment_of_the_lane(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = FakeLane(bus, "nova", HOOK)
    event = await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)

    offer = await bus.delivery.draw(lane.lane, AgentState.ACTIVE)

    assert offer is not None
    assert texts_of(offer.events) == ["hello"]
    await bus.delivery.answer(lane.lane, offer.number, Answer.SEEN)
    assert reason(bus, event)[0] == "seen"
    assert len(await notices(bus, "luna")) == 1


async def test_it_is_in_line_again_as_soon_as_something_can_wake_it(bus: Bus) -> None:
    luna, _ = await pair(bus)
    FakeLane(bus, "nova", HOOK)
    await bus.send(luna, "hello", "@nova")
    await passes(bus, 30)

    native = FakeLane(bus, "nova", NATIVE)

    assert await native.next_texts() == ["hello"]


async def test_an_agent_at_work_is_not_asleep(bus: Bus) -> None:
    luna, nova = await pair(bus)
    FakeLane(bus, "nova", HOOK)
    await bus.broker.submit(nova, SetStatus(state="active"))
    event = await bus.send(luna, "hello", "@nova")

    await passes(bus, 60)

    assert reason(bus, event)[0] == "queued"
    assert await notices(bus, "luna") == []


async def test_one_that_is_away_and_whose_lane_is_gone_is_not_asleep(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane = FakeLane(bus, "nova", HOOK)
    await bus.delivery.close_lane(lane.lane)
    event = await bus.send(luna, "hello", "@nova")

    await passes(bus, 60)
    await bus.send(HUMAN, "marker", "@luna")

    assert reason(bus, event)[0] == "queued"


async def told_apart(bus: Bus, luna: Caller) -> tuple[FakeLane, Event]:
    """Have luna told twice, each time of one message; gives the lane, and the second."""
    lane = FakeLane(bus, "nova", HOOK)
    for text in ("one", "two"):
        event = await bus.send(luna, text, "@nova")
        await passes(bus, 31)
    assert len(await notices(bus, "luna")) == 2
    return lane, event


async def test_a_sender_is_not_told_again_when_the_session_begins_anew(bus: Bus) -> None:
    luna, _ = await pair(bus)
    lane, event = await told_apart(bus, luna)

    await bus.delivery.close_lane(lane.lane)
    assert reason(bus, event)[0] == "queued"
    FakeLane(bus, "nova", HOOK)
    await passes(bus, 31)

    assert reason(bus, event) == ("held", "hook", "asleep")
    assert len(await notices(bus, "luna")) == 2


async def test_a_sender_is_told_again_when_the_agent_has_gone_and_come_back(bus: Bus) -> None:
    luna, nova = await pair(bus)
    lane, event = await told_apart(bus, luna)
    await bus.delivery.close_lane(lane.lane)

    await bus.submit(nova, Leave())
    await bus.join("nova", harness="gemini", seat=seat(8))
    FakeLane(bus, "nova", HOOK)
    await passes(bus, 31)

    assert reason(bus, event) == ("held", "hook", "asleep")
    assert len(await notices(bus, "luna")) == 3
