"""States that hooks leave uncertain are checked in the session file, slowly, and only then."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

from tests.doors.hooks.conftest import Hooks
from tests.doors.hooks.test_handler import BASH, pair
from tests.limits import LIMIT_S

from palaver.doors.cli.harness import ClaudeStateCheck
from palaver.errors import NotFound
from palaver.harness.registry import read_hook
from palaver.protocol.agents import Caller
from palaver.protocol.requests import Leave, SetStatus
from palaver.services.agents import TranscriptBook
from palaver.services.queries import Queries
from palaver.services.services import Services

PID = 7


class HarnessFiles:
    """A client next to a harness: the files it is asked to read, and their content."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.found: asyncio.Queue[dict[str, object] | None] = asyncio.Queue()
        self.transcripts = TranscriptBook()
        self.services = cast(
            "Services",
            SimpleNamespace(
                queries=Queries(hooks.bus.log),
                broker=hooks.bus.broker,
                clock=hooks.bus.clock,
                agents=SimpleNamespace(
                    conversations=hooks.conversations,
                    transcripts=self.transcripts,
                    subagents=hooks.subagents,
                ),
            ),
        )

    def state_check(self) -> ClaudeStateCheck:
        return ClaudeStateCheck(self.services, "nova", self.read, home="/home/ann", pauses_s=(0.0,))

    async def read(self, path: str, limit_bytes: int) -> bytes:
        self.asked.put_nowait(path)
        found = await self.found.get()
        if found is None:
            raise NotFound(f"readable file {path}", "it is not there")
        return json.dumps({"pid": PID, **found}).encode()

    async def next(self) -> str:
        """Wait for the next request to read a file and return its path."""
        async with asyncio.timeout(LIMIT_S):
            return await self.asked.get()

    async def becomes(self, state: str, detail: str = "", *, name: str = "nova") -> None:
        """Wait until the agent has this state."""
        bus, changed = self.hooks.bus, asyncio.Event()
        unsubscribe = bus.log.subscribe(lambda _: changed.set())
        async with asyncio.timeout(LIMIT_S):
            while (bus.agent(name).state, bus.agent(name).detail) != (state, detail):
                changed.clear()
                await changed.wait()
        unsubscribe()


@asynccontextmanager
async def looking(hooks: Hooks) -> AsyncIterator[HarnessFiles]:
    files = HarnessFiles(hooks)
    state_check = asyncio.ensure_future(files.state_check().run())
    try:
        yield files
    finally:
        state_check.cancel()
        await asyncio.gather(state_check, return_exceptions=True)


async def working(hooks: Hooks) -> Caller:
    _, nova = await pair(hooks.bus)
    await hooks.hook(nova, "UserPromptSubmit", prompt="go")
    return nova


async def test_turn_stopped_by_a_person_ends(hooks: Hooks) -> None:
    await working(hooks)

    async with looking(hooks) as files:
        files.transcripts.tell("nova", "/x/.claude/projects/-x/s1.jsonl")
        assert await files.next() == f"/x/.claude/sessions/{PID}.json"
        files.found.put_nowait({"status": "busy"})
        await files.next()
        files.found.put_nowait({"status": "shell"})

        await files.becomes("idle")


async def delegating(hooks: Hooks) -> tuple[Caller, str]:
    """Have a sub-agent at work while its parent is idle."""
    nova = await working(hooks)
    child = await hooks.subagents.begun("nova", "a1", "reviewer")
    assert child is not None
    await hooks.hook(nova, "Stop", background_tasks=[{"type": "subagent"}])
    return nova, child.name


async def test_sub_agent_stopped_by_a_person_ends(hooks: Hooks) -> None:
    _, child = await delegating(hooks)

    async with looking(hooks) as files:
        await files.next()
        files.found.put_nowait({"status": "busy"})
        await files.next()
        assert not hooks.bus.agent(child).left
        assert hooks.bus.agent("nova").state == "idle"
        files.found.put_nowait({"status": "shell"})

        await files.becomes("exited", "stopped with the turn of nova", name=child)
    assert hooks.bus.agent("nova").state == "idle"


async def test_sub_agent_with_a_new_hook_keeps_working(hooks: Hooks) -> None:
    nova, child = await delegating(hooks)
    spoken = read_hook("claude", "PreToolUse", {"session_id": "s1", "agent_id": "a1", **BASH})
    assert spoken is not None
    speaker = await hooks.handler.speakers.of(nova, spoken)
    assert speaker is not None

    async with looking(hooks) as files:
        await files.next()
        await hooks.settle(await hooks.handler.answer(speaker[0], "claude", speaker[1]))
        files.found.put_nowait({"status": "idle"})
        await files.next()

        assert not hooks.bus.agent(child).left
        files.found.put_nowait({"status": "busy"})


async def test_denied_dialog_is_closed(hooks: Hooks) -> None:
    nova = await working(hooks)
    await hooks.hook(nova, "PermissionRequest", **BASH)

    async with looking(hooks) as files:
        await files.next()
        files.found.put_nowait({"status": "waiting", "waitingFor": "permission prompt"})
        await files.next()
        assert hooks.bus.agent("nova").state == "blocked"
        files.found.put_nowait({"status": "idle"})

        await files.becomes("idle")


async def test_hook_during_the_check_wins(hooks: Hooks) -> None:
    nova = await working(hooks)

    async with looking(hooks) as files:
        await files.next()
        await hooks.hook(nova, "PreToolUse", **BASH)
        files.found.put_nowait({"status": "idle"})
        await files.next()

        assert (hooks.bus.agent("nova").state, hooks.bus.agent("nova").detail) == ("active", "Bash: ls")
        files.found.put_nowait({"status": "busy"})


async def test_missing_or_useless_session_file_changes_nothing(hooks: Hooks) -> None:
    await working(hooks)

    async with looking(hooks) as files:
        nothing: list[dict[str, object] | None] = [None, {"status": "dreaming"}, {"status": "idle", "pid": 8}]
        for found in nothing:
            await files.next()
            files.found.put_nowait(found)
        await files.next()

        assert hooks.bus.agent("nova").state == "active"


async def test_state_missed_by_an_earlier_daemon_is_checked_once(hooks: Hooks) -> None:
    _, nova = await pair(hooks.bus)
    await hooks.bus.submit(nova, SetStatus(state="idle"))

    async with looking(hooks) as files:
        await files.next()
        files.found.put_nowait({"status": "busy"})

        await files.becomes("active", "thinking")


async def test_idle_or_usage_limited_agent_is_not_checked(hooks: Hooks) -> None:
    nova = await working(hooks)
    await hooks.hook(nova, "Stop")

    async with looking(hooks) as files:
        await hooks.hook(nova, "StopFailure", error="billing_error")
        await hooks.hook(nova, "UserPromptSubmit", prompt="go on")
        await files.next()

        assert files.asked.empty()
        assert hooks.bus.agent("nova").state == "active"


async def test_checks_end_with_the_agent(hooks: Hooks) -> None:
    nova = await working(hooks)
    files = HarnessFiles(hooks)
    state_check = asyncio.ensure_future(files.state_check().run())
    await files.next()
    files.found.put_nowait({"status": "busy"})

    await hooks.bus.submit(nova, Leave())
    files.found.put_nowait({"status": "busy"})

    async with asyncio.timeout(LIMIT_S):
        await state_check
