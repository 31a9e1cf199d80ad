"""Names of one connection: the caller of a request, and the names it may speak for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.doors.parts import Parts, opened_parts
from tests.fakes import HUMAN, SCRIPT, seat

from palaver.doors.connection import Link, Names, Outbox
from palaver.errors import BadRequest, MessageTooLarge, NotPerson, WhoAreYou
from palaver.protocol.agents import Caller, Standing
from palaver.protocol.lines import JoinOp, LeaveOp, SubBeginOp, SubEndOp
from palaver.protocol.requests import Leave


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with opened_parts(tmp_path) as made:
        yield made


def names(parts: Parts, own: Caller = SCRIPT) -> Names:
    return Names(parts.services, Link(id="1", caller=own, outbox=Outbox()), lambda: own)


async def join(found: Names, name: str, **fields: str) -> dict[str, object]:
    return await found.join(JoinOp(req=1, name=name, **fields))


async def test_without_a_name_the_process_is_the_caller(parts: Parts) -> None:
    assert names(parts).caller("") == SCRIPT
    assert names(parts, HUMAN).caller("human") == HUMAN


async def test_only_name_is_the_default_caller_and_several_need_a_choice(parts: Parts) -> None:
    opened = names(parts)
    await join(opened, "luna")

    assert opened.caller("").name == "luna"

    await join(opened, "nova")
    with pytest.raises(WhoAreYou, match=r"several names \(luna, nova\)"):
        opened.caller("")
    assert opened.caller("nova").name == "nova"


async def test_name_opened_by_another_connection_cannot_be_used(parts: Parts) -> None:
    await parts.bus.join("luna")

    for name in ("luna", "nobody"):
        with pytest.raises(WhoAreYou, match="has not opened the name"):
            names(parts).caller(name)


async def test_name_cannot_have_more_rights_than_its_opener(parts: Parts) -> None:
    with pytest.raises(NotPerson):
        await join(names(parts), "luna", role="operator")

    high = names(parts, HUMAN)
    await join(high, "nova", role="operator")
    assert high.caller("nova").standing is Standing.OPERATOR


async def test_taken_over_name_can_no_longer_be_used(parts: Parts) -> None:
    first, second = names(parts), names(parts)
    await join(first, "luna", secret="one")
    await first.leave(LeaveOp(req=2, name="luna"))
    await join(first, "luna", secret="one")
    await parts.bus.submit(first.caller("luna"), Leave())

    await join(second, "luna", secret="two")

    with pytest.raises(WhoAreYou, match="has left, or belongs to another caller"):
        first.caller("luna")
    assert second.caller("luna").name == "luna"


async def test_secret_opens_the_same_name_again(parts: Parts) -> None:
    first, second = names(parts), names(parts)
    joined = await join(first, "luna")

    again = await join(second, "luna", secret=str(joined["secret"]))

    assert again["name"] == "luna"
    assert first.caller("luna") == second.caller("luna")


async def test_name_is_present_while_a_connection_has_it(parts: Parts) -> None:
    opened = names(parts)
    await join(opened, "luna", secret="one")
    await join(opened, "luna", secret="one")
    await join(opened, "nova")
    assert parts.presence.count == {"luna": 1, "nova": 1}

    assert await opened.leave(LeaveOp(req=2, name="luna", reason="done")) == "luna"
    assert (parts.bus.agent("luna").left, parts.bus.agent("luna").detail) == (True, "done")
    opened.close()

    assert parts.presence.count == {"luna": 0, "nova": 0}
    with pytest.raises(WhoAreYou):
        opened.caller("luna")


async def test_connection_speaks_for_live_sub_agents_of_its_agent(parts: Parts) -> None:
    await parts.bus.join("nova", role="operator", harness="claude", holder="h", seat=seat(7))
    opened = names(parts)
    opened.take(parts.bus.agent("nova"), Standing.OBSERVER, by="script")

    began = await opened.begin_subagent(SubBeginOp(req=1, name="nova", key="a1", type="x"))

    child = opened.caller(str(began["name"]))
    assert (child.name, child.standing, child.by) == ("nova_x_1", Standing.OBSERVER, "script")
    assert (child.harness, child.seat) == ("claude", seat(7, "a1"))
    with pytest.raises(WhoAreYou):
        names(parts).caller("nova_x_1")

    assert await opened.end_subagent(SubEndOp(req=2, name="nova", key="a1", reason="done")) == "nova_x_1"
    assert await opened.end_subagent(SubEndOp(req=3, name="nova", key="a1")) == ""
    with pytest.raises(WhoAreYou):
        opened.caller("nova_x_1")


async def test_invalid_sub_agent_is_refused(parts: Parts) -> None:
    opened = names(parts)
    await join(opened, "luna")

    with pytest.raises(WhoAreYou, match="only an agent has sub-agents"):
        await names(parts).begin_subagent(SubBeginOp(req=1, key="a1"))
    with pytest.raises(BadRequest, match="can begin"):
        await opened.begin_subagent(SubBeginOp(req=1, name="luna", key=""))


async def test_end_reason_of_a_sub_agent_is_limited_in_size(parts: Parts) -> None:
    opened = names(parts)
    await join(opened, "luna")
    await opened.begin_subagent(SubBeginOp(req=1, name="luna", key="a1", type="x"))

    with pytest.raises(MessageTooLarge):
        await opened.end_subagent(SubEndOp(req=2, name="luna", key="a1", reason="x" * 2000))

    assert not parts.bus.agent("luna_x_1").left
