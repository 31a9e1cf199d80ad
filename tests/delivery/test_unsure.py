"""What the next session of an agent in a terminal is told of before: the numbers that nobody confirmed."""

from itertools import count

from tests.delivery.terminals import lane_of, notices, take
from tests.fakes import HUMAN, Bus, FakeLane, seat

from palaver.delivery.lane import LaneKind
from palaver.delivery.unsure import unsure_notice
from palaver.model.agent import Caller
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.request import Leave, Redeliver, Send, SetStatus

_pids = count(10)


async def begin(bus: Bus, *, holder: str = "hash") -> tuple[Caller, FakeLane]:
    """Begin a session of nova in a terminal that mail can be typed into."""
    nova = await bus.join("nova", seat=seat(next(_pids)), holder=holder)
    return nova, lane_of(bus)


async def get_ready(bus: Bus, nova: Caller) -> None:
    await bus.submit(nova, SetStatus(state=AgentState.IDLE))


async def end_with(bus: Bus, nova: Caller, lane: FakeLane) -> None:
    """End a session, and with it what its lane has in hand."""
    await bus.delivery.close_lane(lane.lane)
    await bus.submit(nova, Leave(reason="killed"))


async def lose(bus: Bus, *texts: str) -> list[Event]:
    """Let messages be on their way to nova, one in each session, when that ends."""
    events = []
    for text in texts:
        nova, lane = await begin(bus)
        events.append(await bus.send(HUMAN, text, "@nova"))
        await lane.next()
        await end_with(bus, nova, lane)
    return events


def words(*events: Event) -> str:
    named = ", ".join(f"#{event.seq}" for event in events)
    return f"handed to you before, and maybe never read: {named} ('pal show NUMBER' shows one)"


async def test_the_next_session_is_given_the_numbers_in_one_line(bus: Bus) -> None:
    first, second = await lose(bus, "one", "two")
    nova, lane = await begin(bus)

    await get_ready(bus, nova)

    assert await take(bus, lane) == words(first, second)


async def test_whoever_was_given_them_is_not_told_again(bus: Bus) -> None:
    (lost,) = await lose(bus, "one")
    for _ in range(2):
        nova, lane = await begin(bus)
        await get_ready(bus, nova)
        await bus.send(HUMAN, "later", "@nova")
        while await take(bus, lane) != "later":
            pass
        await end_with(bus, nova, lane)

    assert await notices(bus, "nova") == [words(lost)]


async def test_a_line_of_which_nobody_knows_is_itself_among_the_next(bus: Bus) -> None:
    (lost,) = await lose(bus, "one")
    nova, lane = await begin(bus)
    await get_ready(bus, nova)
    (told,) = (await lane.next()).events
    await end_with(bus, nova, lane)

    nova, lane = await begin(bus)
    await get_ready(bus, nova)

    assert await take(bus, lane) == words(lost, told)


async def test_one_that_was_sent_again_and_lost_again_is_given_again(bus: Bus) -> None:
    (lost,) = await lose(bus, "one")
    nova, lane = await begin(bus)
    await get_ready(bus, nova)
    assert await take(bus, lane) == words(lost)
    bus.clock.advance(1)
    await bus.submit(HUMAN, Redeliver(message=str(lost.seq)))
    await lane.next()
    await end_with(bus, nova, lane)

    nova, lane = await begin(bus)
    await get_ready(bus, nova)

    assert await take(bus, lane) == words(lost)


async def test_where_a_hook_begins_the_session_nothing_is_typed_of_it(bus: Bus) -> None:
    await lose(bus, "one")
    nova, _ = await begin(bus)
    hook = bus.open_lane("nova", LaneKind.HOOK)

    await get_ready(bus, nova)
    await bus.send(HUMAN, "later", "@nova")

    assert await hook.next_texts() == ["later"]
    assert await notices(bus, "nova") == []


async def test_an_agent_in_no_terminal_and_one_that_nobody_knows_are_told_nothing(bus: Bus) -> None:
    await lose(bus, "one")
    nova, lane = await begin(bus, holder="")

    await get_ready(bus, nova)
    await bus.send(HUMAN, "later", "@nova")

    assert await take(bus, lane) == "later"
    assert unsure_notice(bus.log, "nobody") is None


async def test_keys_are_no_message_to_be_read_later(bus: Bus) -> None:
    nova, lane = await begin(bus)
    await bus.submit(HUMAN, Send(text="", raw=b"y", recipient="nova"))
    await lane.next()
    await end_with(bus, nova, lane)
    nova, lane = await begin(bus)

    await get_ready(bus, nova)
    await bus.send(HUMAN, "later", "@nova")

    assert await take(bus, lane) == "later"


async def test_of_very_many_the_first_are_named_and_the_rest_counted(bus: Bus) -> None:
    nova = await bus.join("nova", seat=seat(7), holder="hash")
    seqs = [(await bus.send(HUMAN, f"{number}", "@nova")).seq for number in range(23)]
    await bus.report("nova", "submitted", *seqs, lane="terminal")
    await bus.report("nova", "submitted", *seqs, lane="terminal", unconfirmed=True)

    told = unsure_notice(bus.log, nova.name)

    assert told is not None
    assert f"#{seqs[19]} and 3 more (" in told.text
    assert f"#{seqs[20]}" not in told.text
