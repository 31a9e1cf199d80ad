"""The sub-agents of a harness, with a daemon that names each of them."""

import asyncio
import json
from collections.abc import Sequence

import msgspec
from tests.holder.nobody import Nobody
from tests.limits import LIMIT_S

from palaver.client.wire import ReplyLine
from palaver.errors import BadRequest, Disconnected, PalaverError
from palaver.harness.base import AgentReport, Done, TextOutcome
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.native_lane import NativeSubagents
from palaver.holder.tasks import Work
from palaver.protocol.events import AgentState, Outcome
from palaver.protocol.lines import AnswerOp, LaneOp, Op, StatusOp, SubBeginOp, SubEndOp


class NamingBus(HolderConnection):
    """Returns a name for every sub-agent and a number for every lane."""

    def __init__(self) -> None:
        self.held = Held(name="nova")
        self.told: list[Op] = []
        self.refusals: dict[type[Op], PalaverError] = {}
        self.drops = 0
        self.news = asyncio.Event()

    def trace(self, seqs: Sequence[int], step: str, lane: str, detail: str = "", *, name: str = "") -> None:
        """Record nothing: these tests write no trace file."""

    @property
    def is_connected(self) -> bool:
        return True

    def ask(self, request: Op) -> "asyncio.Future[msgspec.Raw]":
        self.mention(request)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        if (refusal := self.refusals.get(type(request))) is not None:
            answer.set_exception(refusal)
            return answer
        match request:
            case SubBeginOp():
                name = f"{request.name or 'nova'}_{request.type}_1"
                answer.set_result(msgspec.Raw(json.dumps({"name": name}).encode()))
            case LaneOp():
                answer.set_result(msgspec.Raw(b'{"lane":7}'))
            case _:
                answer.set_result(msgspec.Raw(b"{}"))
        return answer

    def mention(self, request: Op) -> None:
        self.told.append(request)
        self.news.set()

    def drop(self) -> None:
        self.drops += 1


class Harness(Nobody):
    """The test chooses the live sub-agents and the outcome of each text."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[str, tuple[str, str]] = {}
        self.word = AgentReport(state=AgentState.ACTIVE, detail="thinking")
        self.texts: dict[str, asyncio.Future[Done]] = {}
        self.is_carrying = asyncio.Event()

    def subagents(self) -> dict[str, tuple[str, str]]:
        return self.alive

    def status_of(self, key: str) -> AgentReport:
        return self.word

    def is_waiting(self, key: str) -> bool:
        return key in self.texts and not self.texts[key].done()

    async def carry(self, key: str, text: str, mark: str) -> Done:
        self.texts[key] = asyncio.get_running_loop().create_future()
        self.is_carrying.set()
        return await self.texts[key]


class Stage:
    """A harness, and the sub-agents made from its reports."""

    def __init__(self) -> None:
        self.bus = NamingBus()
        self.harness = Harness()
        self.names: dict[str, str] = {}
        self.work = Work()
        self.subagents = NativeSubagents(
            self.bus,
            self.harness,
            spawn=self.work.spawn,
            on_change=lambda: None,
            on_begun=self.names.__setitem__,
        )

    async def live(self, **alive: tuple[str, str]) -> None:
        """Make these the only live sub-agents, and wait until the bus knows."""
        self.harness.alive = alive
        self.subagents.look()
        await self.settle()

    async def settle(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.work.settle()

    async def reconnect(self) -> None:
        self.bus.told.clear()
        self.bus.refusals.clear()
        self.subagents.connected()
        await self.settle()

    async def offer(self) -> None:
        """Have the daemon offer a message on the lane, and wait until it is being carried."""
        messages = msgspec.Raw(b'[{"seq":3,"id":"01","from":"luna","text":"hello"}]')
        self.subagents.claim(ReplyLine(push="offer", lane=7, offer=9, messages=messages), lambda line: None)
        async with asyncio.timeout(LIMIT_S):
            await self.harness.is_carrying.wait()

    def keys(self, kind: type[SubBeginOp] | type[SubEndOp]) -> list[str]:
        return [one.key for one in self.bus.told if isinstance(one, kind)]

    def lanes(self) -> list[LaneOp]:
        return [one for one in self.bus.told if isinstance(one, LaneOp)]


async def test_subagent_begins_and_ends_with_the_harness() -> None:
    stage = Stage()

    await stage.live(b=("a", "general"))

    assert [one for one in stage.bus.told if isinstance(one, SubBeginOp)] == [
        SubBeginOp(key="b", type="general")
    ]
    assert stage.names == {"b": "nova_general_1"}
    assert stage.subagents.name_of("b") == "nova_general_1"
    assert LaneOp(kind="native", name="nova_general_1") in stage.bus.told
    assert StatusOp(name="nova_general_1", state="active", detail="thinking") in stage.bus.told

    await stage.live()

    assert stage.bus.told[-1] == SubEndOp(key="b", reason="done")
    assert stage.subagents.name_of("b") == ""


async def test_parent_begins_before_its_subagent_and_ends_after_it() -> None:
    stage = Stage()

    await stage.live(b=("a", "general"), c=("b", "deep"))
    await stage.live()

    begun = [one for one in stage.bus.told if isinstance(one, SubBeginOp)]
    assert begun == [
        SubBeginOp(key="b", type="general"),
        SubBeginOp(name="nova_general_1", key="c", type="deep"),
    ]
    ended = [(one.name, one.key) for one in stage.bus.told if isinstance(one, SubEndOp)]
    assert ended == [("nova_general_1", "c"), ("", "b")]


async def test_another_daemon_receives_the_live_subagents() -> None:
    stage = Stage()
    await stage.live(b=("a", "general"))

    await stage.reconnect()

    assert stage.keys(SubBeginOp) == ["b"]
    assert stage.lanes() == [LaneOp(kind="native", name="nova_general_1", remembers=True)]
    assert any(isinstance(one, StatusOp) for one in stage.bus.told)
    assert stage.names == {"b": "nova_general_1"}


async def test_refused_subagent_has_no_lane_and_is_not_retried() -> None:
    stage = Stage()
    stage.bus.refusals[SubBeginOp] = BadRequest("no")
    await stage.live(b=("a", "general"), c=("b", "deep"))

    await stage.live(b=("a", "general"), c=("b", "deep"))

    assert stage.keys(SubBeginOp) == ["b"]
    assert stage.lanes() == []

    await stage.reconnect()

    assert stage.keys(SubBeginOp) == ["b", "c"]


async def test_unreported_end_is_sent_to_the_next_daemon() -> None:
    stage = Stage()
    await stage.live(b=("a", "general"))
    stage.bus.refusals[SubEndOp] = Disconnected("the connection to the daemon was lost")
    await stage.live()

    await stage.reconnect()

    assert stage.bus.told == [SubEndOp(key="b", reason="done")]
    assert stage.subagents.name_of("b") == ""


async def test_seen_message_is_reported_before_the_end_of_its_subagent() -> None:
    stage = Stage()
    await stage.live(b=("a", "general"))
    await stage.offer()
    assert not stage.subagents.is_at_rest

    stage.harness.texts["b"].set_result(Done(TextOutcome.SEEN))
    await stage.live()

    kinds = [type(one) for one in stage.bus.told]
    assert kinds.index(AnswerOp) < kinds.index(SubEndOp)
    assert stage.subagents.outcomes == ()


async def test_end_of_a_subagent_does_not_wait_for_an_unread_message() -> None:
    stage = Stage()
    await stage.live(b=("a", "general"))
    await stage.offer()

    await stage.live()

    assert stage.keys(SubEndOp) == ["b"]
    assert not any(isinstance(one, AnswerOp) for one in stage.bus.told)


async def test_subagent_with_an_open_offer_does_not_delay_others() -> None:
    stage = Stage()
    await stage.live(b=("a", "general"))
    await stage.offer()
    stage.harness.alive = {"b": ("a", "general"), "c": ("a", "deep")}
    stage.bus.told.clear()

    stage.subagents.connected()
    async with asyncio.timeout(LIMIT_S):
        while stage.keys(SubBeginOp) != ["b", "c"]:
            stage.bus.news.clear()
            await stage.bus.news.wait()
    stage.harness.texts["b"].set_result(Done(TextOutcome.SEEN))
    await stage.settle()

    assert [one.name for one in stage.lanes()] == ["nova_deep_1", "nova_general_1"]
    assert stage.lanes()[1].outcomes == (Outcome(messages=(3,), answer="seen"),)


async def test_unreported_outcome_is_kept_by_name_for_the_next_process() -> None:
    stage, later = Stage(), Stage()
    await stage.live(b=("a", "general"))
    await stage.offer()
    stage.bus.refusals[AnswerOp] = Disconnected("the connection to the daemon was lost")
    stage.harness.texts["b"].set_result(Done(TextOutcome.SEEN))
    await stage.subagents.settle()
    stage.subagents.close()
    kept = stage.subagents.outcomes
    assert kept == (Outcome(messages=(3,), answer="seen", name="nova_general_1"),)

    later.subagents.remember(kept)
    await later.live(b=("a", "general"))

    assert later.lanes()[0].outcomes == (Outcome(messages=(3,), answer="seen"),)
    assert not later.subagents.outcomes


async def test_no_subagent_begins_after_close() -> None:
    stage = Stage()
    await stage.live(b=("a", "general"))

    stage.subagents.close()
    await stage.live(b=("a", "general"), c=("a", "general"))

    assert stage.keys(SubBeginOp) == ["b"]
    assert stage.subagents.is_at_rest
