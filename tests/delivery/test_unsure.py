"""The notice to the next session of a terminal agent: the seqs of unconfirmed messages."""

from itertools import count

from tests.delivery.terminals import lane_of, notices, take
from tests.fakes import HUMAN, Bus, FakeLane, seat

from palaver.delivery.ledger import unsure_notice
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import LaneKind
from palaver.protocol.requests import Leave, Redeliver, Send, SetStatus

_pids = count(10)


async def begin(bus: Bus, *, holder: str = "hash") -> tuple[Caller, FakeLane]:
    """Start a session of nova in a terminal that accepts mail."""
    nova = await bus.join("nova", seat=seat(next(_pids)), holder=holder)
    return nova, lane_of(bus)


async def get_ready(bus: Bus, nova: Caller) -> None:
    await bus.submit(nova, SetStatus(state=AgentState.IDLE))


async def end_with(bus: Bus, nova: Caller, lane: FakeLane) -> None:
    """End a session, and with it the open offer of its lane."""
    await bus.delivery.close_lane(lane.lane)
    await bus.submit(nova, Leave(reason="killed"))


async def lose(bus: Bus, *texts: str) -> list[Event]:
    """Let each message be submitted to nova when its session ends, one session per message."""
    events = []
    for text in texts:
        nova, lane = await begin(bus)
        events.append(await bus.send(HUMAN, text, "@nova"))
        await lane.next()
        await end_with(bus, nova, lane)
    return events


def words(*events: Event) -> str:
    named = ", ".join(f"#{event.seq}" for event in events)
    return f"delivered to you before, but maybe not read: {named} ('pal show NUMBER' shows one)"


async def test_next_session_gets_the_seqs_in_one_line(bus: Bus) -> None:
    first, second = await lose(bus, "one", "two")
    nova, lane = await begin(bus)

    await get_ready(bus, nova)

    assert await take(bus, lane) == words(first, second)


async def test_session_that_got_the_seqs_is_not_notified_again(bus: Bus) -> None:
    (lost,) = await lose(bus, "one")
    for _ in range(2):
        nova, lane = await begin(bus)
        await get_ready(bus, nova)
        await bus.send(HUMAN, "later", "@nova")
        while await take(bus, lane) != "later":
            pass
        await end_with(bus, nova, lane)

    assert await notices(bus, "nova") == [words(lost)]


async def test_unconfirmed_notice_is_itself_in_the_next_notice(bus: Bus) -> None:
    (lost,) = await lose(bus, "one")
    nova, lane = await begin(bus)
    await get_ready(bus, nova)
    (notice,) = (await lane.next()).events
    await end_with(bus, nova, lane)

    nova, lane = await begin(bus)
    await get_ready(bus, nova)

    assert await take(bus, lane) == words(lost, notice)


async def test_message_that_is_redelivered_and_lost_again_is_in_the_next_notice(bus: Bus) -> None:
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


async def test_session_with_a_hook_gets_no_typed_notice(bus: Bus) -> None:
    await lose(bus, "one")
    nova, _ = await begin(bus)
    hook = bus.open_lane("nova", LaneKind.HOOK)

    await get_ready(bus, nova)
    await bus.send(HUMAN, "later", "@nova")

    assert await hook.next_texts() == ["later"]
    assert await notices(bus, "nova") == []


async def test_agent_without_a_terminal_and_unknown_agent_get_no_notice(bus: Bus) -> None:
    await lose(bus, "one")
    nova, lane = await begin(bus, holder="")

    await get_ready(bus, nova)
    await bus.send(HUMAN, "later", "@nova")

    assert await take(bus, lane) == "later"
    assert unsure_notice(bus.log, "nobody") is None


async def test_keys_are_not_in_the_notice(bus: Bus) -> None:
    nova, lane = await begin(bus)
    await bus.submit(HUMAN, Send(text="", raw=b"y", recipient="nova"))
    await lane.next()
    await end_with(bus, nova, lane)
    nova, lane = await begin(bus)

    await get_ready(bus, nova)
    await bus.send(HUMAN, "later", "@nova")

    assert await take(bus, lane) == "later"


async def test_first_of_many_unconfirmed_messages_are_named_others_counted(bus: Bus) -> None:
    nova = await bus.join("nova", seat=seat(7), holder="hash")
    seqs = [(await bus.send(HUMAN, f"{number}", "@nova")).seq for number in range(23)]
    await bus.report("nova", "submitted", *seqs, lane="terminal")
    await bus.report("nova", "submitted", *seqs, lane="terminal", unconfirmed=True)

    notice = unsure_notice(bus.log, nova.name)

    assert notice is not None
    assert f"#{seqs[19]} and 3 more (" in notice.text
    assert f"#{seqs[20]}" not in notice.text
