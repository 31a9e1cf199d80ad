"""Permission requests of agents and their decisions, on both engines."""

import pytest
from tests.fakes import HUMAN, SCRIPT, Bus

from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import BadText, NotAllowed, NotPerson
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.events import AnswerPermission, ClosePermission, OpenPermission

ASK = OpenPermission(name="luna", permission="p1", tool="Bash", text="Bash: ls", digest="d", until=9)
YES = AnswerPermission(name="luna", permission="p1", digest="d", is_allowed=True)
NO = AnswerPermission(name="luna", permission="p1", digest="d", is_allowed=False)


async def test_permission_request_is_an_event_of_the_agent(bus: Bus) -> None:
    await bus.join("luna")

    event = await bus.submit(SYSTEM_CALLER, ASK)

    assert event is not None
    assert (event.type, event.sender) == ("permission.asked", "luna")
    assert event.payload == {
        "permission": "p1",
        "tool": "Bash",
        "text": "Bash: ls",
        "digest": "d",
        "until": 9,
    }


@pytest.mark.parametrize(("request_", "decision"), [(YES, "allow"), (NO, "deny")])
async def test_decision_of_a_person_is_an_event_of_the_person(
    bus: Bus, request_: AnswerPermission, decision: str
) -> None:
    await bus.join("luna")

    event = await bus.submit(HUMAN, request_)

    assert event is not None
    assert (event.type, event.sender) == ("permission.answered", "human")
    assert event.payload == {"agent": "luna", "permission": "p1", "decision": decision, "digest": "d"}


async def test_missing_decision_is_an_event_too(bus: Bus) -> None:
    await bus.join("luna")

    over = ClosePermission(name="luna", permission="p1", decision="deny", reason="timeout")
    event = await bus.submit(SYSTEM_CALLER, over)

    assert event is not None
    assert event.payload == {"agent": "luna", "permission": "p1", "decision": "deny", "reason": "timeout"}


async def test_only_the_human_in_person_decides(bus: Bus) -> None:
    luna = await bus.join("luna")
    boss = await bus.join("boss", role="operator")
    as_another = Caller(name="luna", standing=Standing.HUMAN, kind="human", by="human")
    high_agent = Caller(name="luna", standing=Standing.HUMAN, kind="instance")

    for asking in (luna, boss, SCRIPT, high_agent):
        with pytest.raises(NotAllowed):
            await bus.submit(asking, YES)
    with pytest.raises(NotPerson):
        await bus.submit(as_another, YES)


async def test_only_the_bus_records_a_request_and_its_end(bus: Bus) -> None:
    luna = await bus.join("luna")

    for request in (ASK, ClosePermission(name="luna", permission="p1", decision="deny", reason="x")):
        with pytest.raises(NotAllowed):
            await bus.submit(luna, request)


async def test_permission_request_must_be_plain_text(bus: Bus) -> None:
    bad = OpenPermission(name="luna", permission="p1", tool="Bash", text="\x1b", digest="d", until=9)

    with pytest.raises(BadText):
        await bus.submit(SYSTEM_CALLER, bad)
