"""Moments of an agent's life, on both engines."""

import pytest
from tests.fakes import SCRIPT, Bus, seat

from palaver.broker.broker import SYSTEM_CALLER
from palaver.errors import IdTaken
from palaver.model.agent import Caller
from palaver.model.envelope import Envelope, Event
from palaver.model.query import Query
from palaver.model.request import Gone, Join, Leave, Put, Register, Request, SetStatus


async def moments(bus: Bus) -> list[Event]:
    return await bus.log.read(Query(types=("life",)))


async def actions(bus: Bus) -> list[str]:
    return [str(event.payload["action"]) for event in await moments(bus)]


async def test_a_join_is_a_start_written_once_however_often_it_is_asked_for(bus: Bus) -> None:
    request = Join(name="luna", seat=seat(1))

    for _ in range(2):
        await bus.broker.submit(SCRIPT, request, key=b"k" * 16)

    (event,) = await moments(bus)
    assert (event.sender, event.payload, event.by) == (
        "luna",
        {"action": "started", "name": "luna"},
        "script",
    )


async def test_who_comes_back_has_not_started_anew_and_an_agent_elsewhere_has_not_at_all(bus: Bus) -> None:
    await bus.join("luna", has_link=True, session="hash")
    await bus.join("luna", by=SCRIPT, has_link=True, session="hash", runtime="py")
    await bus.broker.submit(SCRIPT, Register(name="luna:BOXE"))

    assert await actions(bus) == ["started", "resumed"]


async def test_an_agent_is_ready_when_it_first_says_that_it_is_idle(bus: Bus) -> None:
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
            Put(envelope=Envelope(type="agent.bye", id="e1", sender="luna", payload={"reason": "x"})),
            "x",
        ),
        ("[pal-events]", Gone(name="luna", reason="its process ended", seat=seat(1)), "its process ended"),
    ],
)
async def test_whoever_goes_has_stopped_with_a_reason(
    bus: Bus, asking: str, request_: Request, reason: str
) -> None:
    callers: dict[str, Caller] = {"luna": await bus.join("luna", seat=seat(1)), "[pal-events]": SYSTEM_CALLER}

    await bus.broker.submit(callers[asking], request_)

    assert (await moments(bus))[-1].payload == {"action": "stopped", "name": "luna", "reason": reason}


async def test_a_second_goodbye_is_no_second_stop(bus: Bus) -> None:
    luna = await bus.join("luna")

    for _ in range(2):
        await bus.submit(luna, Leave())

    assert await actions(bus) == ["started", "stopped"]


async def test_a_goodbye_under_an_id_that_is_something_else_stops_nobody(bus: Bus) -> None:
    luna, _ = await bus.join("luna"), await bus.join("nova")
    await bus.broker.submit(luna, Put(envelope=Envelope(type="x", id="e1", sender="luna", to=("nova",))))
    with pytest.raises(IdTaken):
        await bus.broker.submit(luna, Put(envelope=Envelope(type="agent.bye", id="e1", sender="luna")))

    assert await actions(bus) == ["started", "started"]
    assert not bus.agent("luna").left


async def test_after_a_stop_the_next_idle_state_is_ready_again(bus: Bus) -> None:
    luna = await bus.join("luna", seat=seat(1))
    await bus.submit(luna, SetStatus(state="idle"))
    await bus.submit(luna, Leave())

    await bus.join("luna", by=SCRIPT, seat=seat(1))
    await bus.submit(luna, SetStatus(state="idle"))

    assert await actions(bus) == ["started", "ready", "stopped", "started", "ready"]


async def test_two_states_at_once_make_one_ready(bus: Bus) -> None:
    luna = await bus.join("luna")
    bus.broker.close()  # the directory is behind: the state itself decides

    for _ in range(2):
        await bus.submit(luna, SetStatus(state="idle"))

    assert await actions(bus) == ["started", "ready"]
