"""Companions and permission requests on a JSON line connection, without a real connection."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.doors.parts import BOOT, Parts, opened_parts
from tests.fakes import SCRIPT, caller
from tests.limits import LIMIT_S

from palaver.broker.context import SYSTEM_CALLER
from palaver.doors.connection import Link, Names, Outbox
from palaver.doors.lines_holders import AskedOnLines, Companions
from palaver.errors import BadRequest
from palaver.identity.caller import Anchor
from palaver.identity.process import Process, ancestors
from palaver.identity.seats import seat_mark
from palaver.protocol.agents import BeginSubagent, Caller, Seat, Standing
from palaver.protocol.events import ANSWERED, ASKED
from palaver.protocol.lines import AccompanyOp, PermissionOp
from palaver.protocol.requests import SetStatus
from palaver.services.permissions import Pending


class Line:
    """A connection that asks for permission and receives the decision of a person."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.pushed: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self.asked = AskedOnLines(parts.services, self.pushed.put_nowait, parts.tasks.create_task)

    async def hear(self, asking: Caller, request: str = "per_1", **fields: object) -> object:
        op = PermissionOp(req=1, request=request, **fields)  # type: ignore[arg-type]  # fields of the request
        return (await self.asked.hear(asking, op)).get("id")

    async def ask(self, asking: Caller, command: str = "rm x") -> Pending:
        """Ask for permission and return the pending request."""
        id = await self.hear(asking, tool="bash", input={"command": command})
        return next(one for one in self.parts.permissions.all() if one.id == id)

    async def next(self) -> Mapping[str, object]:
        async with asyncio.timeout(LIMIT_S):
            return await self.pushed.get()

    async def until_written(self, pending: Pending) -> dict[str, object]:
        """Wait until the outcome of a request is stored, and return it."""
        written: list[dict[str, object]] = []
        changed = asyncio.Event()
        unsubscribe = self.parts.log.subscribe(lambda _: changed.set())
        async with asyncio.timeout(LIMIT_S):
            while not written:
                changed.clear()
                found = await self.parts.payloads(ANSWERED)
                written = [one for one in found if one["permission"] == pending.id]
                if not written:
                    await changed.wait()
        unsubscribe()
        return written[0]


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    async with opened_parts(tmp_path, approvals=1, approvals_wait_s=600) as parts:
        made = Line(parts)
        yield made
        made.asked.close()


async def joined(line: Line) -> Caller:
    return await line.parts.bus.join("nova", harness="opencode")


async def test_decision_is_pushed_and_closed_once_it_is_taken(line: Line) -> None:
    nova = await joined(line)
    pending = await line.ask(nova)
    await line.parts.bus.submit(nova, SetStatus(state="blocked", detail="permission"))
    assert (pending.harness, pending.input) == ("opencode", {"command": "rm x"})

    pending.decided.set_result(True)

    reply = await line.next()
    assert (reply["name"], reply["request"], reply["allowed"]) == ("nova", "per_1", True)
    assert not pending.arrived.done()
    await line.hear(nova, outcome="taken")
    assert pending.arrived.result() is True
    assert line.parts.bus.agent("nova").state == "blocked"  # the harness reports its own status


async def test_repeated_permission_request_is_one_request(line: Line) -> None:
    nova = await joined(line)

    first = await line.ask(nova)

    assert await line.ask(nova) is first
    assert len(await line.parts.payloads(ASKED)) == 1


async def test_withdrawn_request_is_closed_and_a_repeat_is_a_new_one(line: Line) -> None:
    nova = await joined(line)
    first = await line.ask(nova)

    await line.hear(nova, outcome="gone")
    second = await line.ask(nova)

    assert first.decided.result() is None
    assert first.id != second.id
    assert (await line.until_written(first))["reason"] == "gone"
    assert line.parts.permissions.all() == (second,)
    assert line.pushed.empty()


async def test_outcome_of_an_unknown_request_is_not_an_error(line: Line) -> None:
    nova = await joined(line)

    assert await line.hear(nova, outcome="gone") is None
    assert await line.hear(nova, outcome="taken") is None


async def test_unknown_outcome_is_refused(line: Line) -> None:
    nova = await joined(line)
    pending = await line.ask(nova)

    with pytest.raises(BadRequest, match="taken or gone"):
        await line.hear(nova, outcome="lost")

    assert not pending.decided.done()


async def test_only_an_agent_can_ask_for_permission(line: Line) -> None:
    with pytest.raises(BadRequest, match="join first"):
        await line.hear(SCRIPT, tool="bash")


async def test_nothing_waits_when_approvals_are_off(tmp_path: Path) -> None:
    async with opened_parts(tmp_path) as parts:
        line = Line(parts)

        assert await line.hear(await joined(line), tool="bash") is None

        assert parts.permissions.all() == ()


async def test_two_agents_on_one_connection_may_use_the_same_request_id(line: Line) -> None:
    nova, luna = await joined(line), await line.parts.bus.join("luna")
    ones = [await line.ask(one) for one in (nova, luna)]

    await line.hear(luna, outcome="gone")

    assert [one.decided.done() for one in ones] == [False, True]


async def test_sub_agent_asks_under_its_own_name(line: Line) -> None:
    await joined(line)
    await line.parts.broker.submit(SYSTEM_CALLER, BeginSubagent(parent="nova", key="a1", type="x"))

    pending = await line.ask(caller(line.parts.bus.agent("nova_x_1")))

    assert (pending.agent, pending.harness) == ("nova_x_1", "opencode")


async def test_request_ends_with_its_connection(line: Line) -> None:
    pending = await line.ask(await joined(line))

    line.asked.close()

    assert (await line.until_written(pending))["reason"] == "gone"
    assert pending.arrived.result() is False


async def test_connection_closed_while_asking_leaves_no_request(line: Line) -> None:
    nova = await joined(line)
    asking = asyncio.ensure_future(line.hear(nova, tool="bash"))
    await asyncio.sleep(0)
    assert not asking.done()

    line.asked.close()
    id = await asking

    await line.parts.until(lambda: not line.parts.permissions.all())
    assert isinstance(id, str)


# Companions


class StartedCompanion:
    """The companion of sessions: the test process itself, as if its parent were the harness."""

    def __init__(self, parts: Parts, harness: str = "opencode", seat: Process | None = None) -> None:
        self.chain = ancestors(os.getpid())[:2]
        at = seat or self.chain[1]
        self._anchor = Anchor(seat=Seat(pid=at.pid, start=at.start, boot=BOOT), harness=harness)
        link = Link(id="1", caller=SCRIPT, outbox=Outbox())
        self.names = Names(parts.services, link, lambda: SCRIPT)
        self.companions = Companions(parts.services, self.names, lambda: self.chain, self._place)

    def _place(self, session: str) -> Anchor:
        return replace(self._anchor, seat=msgspec.structs.replace(self._anchor.seat, key=session))

    async def accompany(self, session: str = "ses_1") -> dict[str, object]:
        op = AccompanyOp(req=1, harness="opencode", session=session)
        return await self.companions.accompany(op)


async def test_session_is_seated_at_its_harness_once(line: Line) -> None:
    companion = StartedCompanion(line.parts)

    first = await companion.accompany()

    agent = line.parts.sit(str(first["name"]))
    assert agent.seat is not None
    assert (agent.seat.pid, agent.seat.key) == (os.getppid(), "ses_1")
    assert first["seat"] == seat_mark(agent.seat, agent.name)
    assert companion.names.caller(agent.name).standing is Standing.WORKER
    assert await companion.accompany() == first
    assert len(list(line.parts.broker.directory.all())) == 1


async def test_each_session_is_its_own_agent(line: Line) -> None:
    companion = StartedCompanion(line.parts)

    names = {(await companion.accompany(session))["name"] for session in ("ses_1", "ses_2")}

    assert len(names) == 2


async def test_companion_must_be_started_by_its_harness(line: Line) -> None:
    elsewhere = StartedCompanion(line.parts, seat=ancestors(os.getpid())[0])
    other = StartedCompanion(line.parts, harness="codex")
    unseen = StartedCompanion(line.parts)
    unseen.chain = []

    for one in (elsewhere, other):
        with pytest.raises(BadRequest, match="only opencode itself can start its companion"):
            await one.accompany()
    with pytest.raises(BadRequest, match="has ended or runs in another container"):
        await unseen.accompany()

    assert list(line.parts.broker.directory.all()) == []
