"""Finding the agent of a hook, with simulated processes."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.doors.parts import BOOT, Parts, opened_parts
from tests.fakes import SCRIPT

from palaver.doors.hooks import HookAsking, HookHandler, HookReply
from palaver.errors import AlreadyJoined
from palaver.identity.caller import Anchor, CallerClaim, CallerIdentifier
from palaver.identity.process import HarnessEnvironment, Peer, Process
from palaver.protocol.agents import Caller, Seat, caller_for
from palaver.protocol.thin import ThinRequest
from palaver.services.agents import TranscriptBook
from palaver.services.evidence import HookOutcomes

HARNESS = 10
"""The pid of the harness process where sessions have their seat."""


def process(pid: int) -> Process:
    return Process(pid, 1, pid, pid, 0, -1, pid * 10, "x")


class Street:
    """Simulated processes with their marks and the harness above them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.pids: Sequence[int] = (30, HARNESS)
        """The processes of the next hook, its own first."""
        self.harness = "claude"
        self.names: dict[int, str] = {}
        """The processes that are a harness by their name."""
        self.marks: dict[int, dict[str, str]] = {}
        self.is_taken = False
        self.is_false = False
        self.environments = SimpleNamespace(look=self._look)

    def chain(self, is_enough: Callable[[Process], bool] | None = None) -> list[Process]:
        return [process(pid) for pid in self.pids]

    def _look(self, found: Process) -> HarnessEnvironment:
        return HarnessEnvironment(self.marks.get(found.pid, {}), self.names.get(found.pid))

    def is_forged(self, *_: object, **__: object) -> bool:
        return self.is_false

    def who(self, chain: Sequence[Process], claim: CallerClaim) -> Caller:
        anchored = self._parts.seats.nearest(chain)
        return SCRIPT if anchored is None else caller_for(anchored.agents[0])

    def anchor_of(self, chain: Sequence[Process], claim: CallerClaim) -> Anchor:
        if self.is_taken:
            raise AlreadyJoined("luna")
        seat = Seat(pid=HARNESS, start=HARNESS * 10, boot=BOOT)
        return Anchor(seat=seat, harness=self.harness)


class Asking:
    """Hooks that arrive from processes."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.street = Street(parts)
        handler = HookHandler(
            queries=parts.queries,
            broker=parts.broker,
            delivery=parts.delivery,
            conversations=parts.conversations,
            transcripts=TranscriptBook(),
            subagents=parts.subagents,
            outcomes=HookOutcomes(parts.services.daemon.home, parts.queries, parts.broker),
            hints=lambda agent: "",
            tasks=parts.tasks,
        )
        self.asking = HookAsking(parts.services, cast("CallerIdentifier", self.street), handler)

    async def hook(self, *words: str, **fields: object) -> HookReply | None:
        """Run a hook with these arguments after `pal hook`."""
        asked = ThinRequest(
            key=b"k" * 16,
            version="1",
            argv=("pal", "hook", *words),
            cwd="/",
            environment={},
            stdin_is_terminal=False,
            stdout_is_terminal=False,
            stderr_is_terminal=False,
            width=0,
            body=json.dumps({"session_id": "s1", **fields}).encode(),
        )
        unsubscribe = self.parts.log.subscribe(lambda _: self._sit())
        try:
            return await self.asking.answer(cast("Peer", self.street), asked)
        finally:
            unsubscribe()

    def _sit(self) -> None:
        for agent in self.parts.broker.directory.all():
            self.parts.seats.put(agent)

    async def starts(self, **fields: object) -> HookReply:
        found = await self.hook("claude", "SessionStart", source="startup", **fields)
        assert found is not None
        return found


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Asking]:
    async with opened_parts(tmp_path) as parts:
        yield Asking(parts)


def everybody(asking: Asking) -> list[str]:
    return [agent.name for agent in asking.parts.broker.directory.all()]


async def nova(
    asking: Asking, harness: str = "claude", session: str = "", argv: tuple[str, ...] = ()
) -> None:
    """Seat nova at the harness; with `argv` it was started by a holder."""
    seat = Seat(pid=HARNESS, start=HARNESS * 10, boot=BOOT)
    holder = "h" if argv else ""
    await asking.parts.bus.join("nova", harness=harness, seat=seat, session=session, holder=holder, argv=argv)
    asking.parts.sit("nova")


async def test_session_start_seats_an_agent_at_its_harness(asking: Asking) -> None:
    answer = await asking.starts(cwd="/x")

    agent = asking.parts.bus.agent(answer.caller.name)
    assert agent.seat is not None
    assert (agent.seat.pid, agent.harness, agent.session) == (HARNESS, "claude", "s1")
    assert answer.news.is_new
    assert agent.name in str(answer.content)
    assert (await asking.starts()).caller.name == agent.name
    assert everybody(asking) == [agent.name]


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("claude", "PreToolUse"), {"tool_name": "Bash", "tool_input": {}}),
        (("claude", "SessionStart"), {"agent_id": "a1"}),
        (("gemini", "SessionStart"), {}),
    ],
)
async def test_no_agent_joins_mid_turn_in_a_sub_agent_or_at_another_harness(
    asking: Asking, words: tuple[str, ...], fields: dict[str, object]
) -> None:
    assert await asking.hook(*words, **fields) is None

    assert everybody(asking) == []


async def test_no_agent_joins_at_an_occupied_seat(asking: Asking) -> None:
    asking.street.is_taken = True

    assert await asking.hook("claude", "SessionStart", source="startup") is None

    assert everybody(asking) == []


@pytest.mark.parametrize("words", [(), ("claude",), ("claude", "Stop", "more"), ("nobody", "Stop")])
async def test_malformed_hook_gets_no_reply(asking: Asking, words: tuple[str, ...]) -> None:
    await nova(asking)

    assert await asking.hook(*words) is None


async def test_hook_of_another_harness_is_not_the_agents(asking: Asking) -> None:
    await nova(asking, harness="codex")

    assert await asking.hook("claude", "Stop") is None


async def test_forged_hook_gets_no_reply(asking: Asking) -> None:
    await nova(asking)
    asking.street.is_false = True

    assert await asking.hook("claude", "Stop") is None


async def test_installed_hook_is_ignored_if_the_agent_was_started_with_hooks(asking: Asking) -> None:
    await nova(asking, argv=("pal", "claude"))

    assert await asking.hook("claude", "Stop", "--installed") is None
    assert await asking.hook("claude", "Stop") is not None


@pytest.mark.parametrize("argv", [(), ("claude",)])
async def test_installed_hook_counts_for_an_agent_without_its_own_hooks(
    asking: Asking, argv: tuple[str, ...]
) -> None:
    await nova(asking, argv=argv)

    assert await asking.hook("claude", "Stop", "--installed") is not None


@pytest.mark.parametrize(
    ("event", "fields", "is_heard"),
    [
        ("Stop", {"session_id": "s1"}, True),
        ("Stop", {"session_id": "s2"}, False),
        ("SessionStart", {"session_id": "s2", "source": "startup"}, False),
        ("SessionStart", {"session_id": "s2", "source": "clear"}, True),
    ],
)
async def test_nested_session_speaks_only_for_itself(
    asking: Asking, event: str, fields: dict[str, object], is_heard: bool
) -> None:
    await nova(asking, session="s1")
    asking.street.pids = (30, 20, HARNESS)
    asking.street.names = {20: "claude"}

    assert (await asking.hook("claude", event, **fields) is not None) is is_heard


async def test_process_between_that_is_not_a_harness_changes_nothing(asking: Asking) -> None:
    await nova(asking, session="s1")
    asking.street.pids = (30, 20, HARNESS)

    assert await asking.hook("claude", "Stop", session_id="s2") is not None


@pytest.mark.parametrize(
    ("harness", "marks", "pids", "is_heard"),
    [
        ("gemini", {}, (30, 20, HARNESS), True),
        ("gemini", {20: {"GEMINI_CLI": "1"}}, (30, 20, HARNESS), False),
        ("gemini", {}, (30, 21, 20, HARNESS), False),
        ("claude", {}, (30, 20, HARNESS), False),
    ],
)
async def test_harness_that_restarts_itself_is_one_session(
    asking: Asking, harness: str, marks: dict[int, dict[str, str]], pids: Sequence[int], is_heard: bool
) -> None:
    await nova(asking, harness=harness, session="s1")
    asking.street.pids, asking.street.names, asking.street.marks = pids, {20: harness}, marks
    event = "AfterAgent" if harness == "gemini" else "Stop"

    found = await asking.hook(harness, event, session_id="s2")

    assert (found is not None) is is_heard


async def test_hook_of_a_sub_agent_belongs_to_the_sub_agent(asking: Asking) -> None:
    await nova(asking, session="s1")

    found = await asking.hook("claude", "PreToolUse", agent_id="a1", agent_type="x", tool_name="Bash")

    assert found is not None
    assert found.caller.name == "nova_x_1"
    assert await asking.hook("claude", "SubagentStop", agent_id="never") is None
