"""A bus on each log engine, with a hook handler."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.fakes import Bus, OpenLog, opened_bus
from tests.limits import LIMIT_S

from palaver.doors.hooks import HookHandler, HookReply
from palaver.harness.registry import read_hook
from palaver.protocol.agents import Caller
from palaver.services.agents import Subagents, TranscriptBook
from palaver.services.evidence import Conversations, HookOutcomes
from palaver.services.queries import Queries


class Hooks:
    """The hooks of agents, called one after the other as a harness does."""

    def __init__(self, bus: Bus, tasks: asyncio.TaskGroup, home: Path) -> None:
        self.bus = bus
        self.conversations = Conversations(bus.delivery, Queries(bus.log), tasks)
        self.subagents = Subagents(bus.log, bus.broker, tasks)
        self.handler = HookHandler(
            queries=Queries(bus.log),
            broker=bus.broker,
            delivery=bus.delivery,
            conversations=self.conversations,
            transcripts=TranscriptBook(),
            subagents=self.subagents,
            outcomes=HookOutcomes(home, Queries(bus.log), bus.broker),
            hints=lambda agent: "",
            tasks=tasks,
        )

    async def answer(self, caller: Caller, event: str, **fields: object) -> HookReply:
        """Call a hook; the test decides later whether its reply was sent."""
        news = read_hook("claude", event, {"session_id": "s1", **fields})
        assert news is not None
        found = await self.handler.speakers.of(caller, news)
        assert found is not None
        return await self.handler.answer(found[0], "claude", found[1])

    async def hook(self, caller: Caller, event: str, **fields: object) -> str:
        """Call a hook whose reply is sent, and return its text after all effects are stored."""
        answer = await self.answer(caller, event, **fields)
        await self.settle(answer)
        return text_of(answer)

    async def settle(self, answer: HookReply, *, has_left: bool = True) -> None:
        """Report whether a reply was sent, and wait until the effects are stored."""
        self.handler.settle(answer, has_left=has_left)
        await self.rest(answer)

    async def rest(self, answer: HookReply) -> None:
        """Wait until the effects of a hook are stored."""
        await asyncio.sleep(0)
        async with asyncio.timeout(LIMIT_S), answer.conversation.writing:
            pass


def text_of(answer: HookReply) -> str:
    """Return the text that a reply shows to the model."""
    output = answer.content.get("hookSpecificOutput")
    if isinstance(output, dict):
        return str(output["additionalContext"])
    return str(answer.content.get("reason", ""))


@pytest.fixture
async def hooks(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Hooks]:
    async with opened_bus(open_log, tmp_path) as bus, asyncio.TaskGroup() as tasks:
        yield Hooks(bus, tasks, tmp_path)
