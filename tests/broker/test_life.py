"""Life events of agents, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus, seat

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import IdTaken
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Draft, Event
from palaver.protocol.query import Query
from palaver.protocol.requests import Gone, Join, Leave, Put, Register, Request, SetStatus


async def life_events(bus: Bus) -> list[Event]:
    return await bus.log.read(Query(types=("life",)))


async def actions(bus: Bus) -> list[str]:
    return [str(event.payload["action"]) for event in await life_events(bus)]


async def test_repeated_join_writes_one_started_event(bus: Bus) -> None:
    request = Join(name="luna", seat=seat(1))

    for _ in range(2):
        await bus.broker.submit(SCRIPT, request, key=b"k" * 16)

    (event,) = await life_events(bus)
    assert (event.sender, event.payload, event.by) == (
        "luna",
        {"action": "started", "name": "luna"},
        "script",
    )


async def test_returning_agent_is_resumed_and_a_remote_agent_has_no_life_event(bus: Bus) -> None:
    await bus.join("luna", has_link=True, session="hash")
    await bus.join("luna", by=SCRIPT, has_link=True, session="hash", runtime="py")
    await bus.broker.submit(HUMAN, Register(name="luna:BOXE"))

    assert await actions(bus) == ["started", "resumed"]


async def test_agent_is_ready_at_its_first_idle_status(bus: Bus) -> None:
    luna = await bus.join("luna")

    for state in ("starting", "active", "idle", "active", "listening"):
        await bus.submit(luna, SetStatus(state=state))

    assert await actions(bus) == ["started", "ready"]
    assert bus.agent("luna").ready


@pytest.mark.parametrize(
    ("asking", "request_", "reason"),
    [
        ("luna", Leave(), "left"),
        ("luna", Leave(reason="lunch"), "lunch"),
        ("luna", SetStatus(state="inactive", detail="done"), "done"),
        (
            "luna",
            Put(envelope=Draft(type="agent.bye", id="e1", sender="luna", payload={"reason": "x"})),
            "x",
        ),
        ("[pal-events]", Gone(name="luna", reason="its process ended", seat=seat(1)), "its process ended"),
    ],
)
async def test_agent_that_ends_has_a_stopped_event_with_a_reason(
    bus: Bus, asking: str, request_: Request, reason: str
) -> None:
    callers: dict[str, Caller] = {"luna": await bus.join("luna", seat=seat(1)), "[pal-events]": SYSTEM_CALLER}

    await bus.broker.submit(callers[asking], request_)

    assert (await life_events(bus))[-1].payload == {"action": "stopped", "name": "luna", "reason": reason}


async def test_second_bye_writes_no_second_stopped_event(bus: Bus) -> None:
    luna = await bus.join("luna")

    for _ in range(2):
        await bus.submit(luna, Leave())

    assert await actions(bus) == ["started", "stopped"]


async def test_bye_with_a_used_id_stops_no_agent(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await bus.broker.submit(luna, Put(envelope=Draft(type="x", id="e1", sender="luna", to=("nova",))))
    with pytest.raises(IdTaken):
        await bus.broker.submit(luna, Put(envelope=Draft(type="agent.bye", id="e1", sender="luna")))

    assert await actions(bus) == ["started", "started"]
    assert not bus.agent("luna").left


async def test_after_a_stop_the_next_idle_status_is_ready_again(bus: Bus) -> None:
    luna = await bus.join("luna", seat=seat(1))
    await bus.submit(luna, SetStatus(state="idle"))
    await bus.submit(luna, Leave())

    await bus.join("luna", by=SCRIPT, seat=seat(1))
    await bus.submit(luna, SetStatus(state="idle"))

    assert await actions(bus) == ["started", "ready", "stopped", "started", "ready"]


async def test_two_idle_states_write_one_ready_event(bus: Bus) -> None:
    luna = await bus.join("luna")
    bus.broker.close()  # the directory is not updated any more: the stored state decides

    for _ in range(2):
        await bus.submit(luna, SetStatus(state="idle"))

    assert await actions(bus) == ["started", "ready"]
