"""Screen states that a holder reports right after a hook has reported a dialog."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.fakes import Bus, OpenLog, opened_bus
from tests.limits import LIMIT_S

from palaver.doors.lines_holders import ScreenReports, is_after_work, is_before_dialog, says_less
from palaver.protocol.agents import Agent, Caller
from palaver.protocol.lanes import LaneKind, LaneLevel
from palaver.protocol.requests import DIALOG, SetStatus
from palaver.services.services import Services


def agent(state: str = "blocked", harness: str = "claude") -> Agent:
    return Agent(name="nova", base="nova", device="D", harness=harness, state=state, since=10_000)


@pytest.mark.parametrize(
    ("known", "state", "is_early"),
    [
        (agent(), "idle", True),
        (agent(), "active", False),
        (agent("active"), "idle", False),
        (agent(harness="gemini"), "idle", False),
    ],
)
def test_idle_screen_before_a_dialog_appears_is_held_back(known: Agent, state: str, is_early: bool) -> None:
    assert is_before_dialog(known, state) is is_early


@pytest.mark.parametrize(
    ("known", "state", "now_ms", "is_old"),
    [
        (agent("idle"), "active", 11_499, True),
        (agent("idle"), "active", 11_500, False),
        (agent("idle"), "active", 5_000, False),
        (agent("idle"), "blocked", 10_000, False),
        (agent("active"), "active", 10_000, False),
        (agent("idle", "gemini"), "active", 10_000, False),
    ],
)
def test_busy_screen_just_after_the_end_of_the_work_is_held_back(
    known: Agent, state: str, now_ms: int, is_old: bool
) -> None:
    assert is_after_work(known, state, now_ms) is is_old


@pytest.mark.parametrize(
    ("state", "detail", "is_less"),
    [
        ("blocked", "permission", True),
        ("blocked", "permission: Bash: make", False),
        ("blocked", "permission: Write", False),
        ("blocked", "question", False),
        ("blocked", "", False),
        ("active", "permission", False),
    ],
)
def test_screen_report_without_the_question_has_less_detail(state: str, detail: str, is_less: bool) -> None:
    known = msgspec.structs.replace(agent(), detail="permission: Bash: make")

    assert says_less(SetStatus(state=state, detail=detail), known) is is_less


def test_report_for_an_agent_that_is_not_blocked_is_never_less() -> None:
    known = msgspec.structs.replace(agent("active"), detail="permission: Bash: make")

    assert not says_less(SetStatus(state="blocked", detail="permission"), known)


class Early:
    """An agent with a dialog reported by a hook, and a holder that reports too early."""

    def __init__(self, bus: Bus, nova: Caller) -> None:
        self.bus = bus
        self.nova = nova
        self.started: list[asyncio.Task[None]] = []
        services = SimpleNamespace(broker=bus.broker, delivery=bus.delivery, clock=bus.clock)
        self.words = ScreenReports(cast("Services", services), self._start)

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        self.started.append(asyncio.ensure_future(work))
        return self.started[-1]

    def keep(self, state: str = "idle", known: Agent | None = None) -> None:
        """Report a state early; its delay is over as soon as the task waits."""
        status = SetStatus(state=state)
        self.words.hear("nova", status)
        self.words.keep(known or self.bus.agent("nova"), status)
        self.bus.clock.advance(2.0)

    async def state(self) -> str:
        """Return the state after every held report was written or dropped."""
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait(self.started)
        return self.bus.agent("nova").state


@pytest.fixture
async def early(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Early]:
    async with opened_bus(open_log, tmp_path) as bus:
        nova = await bus.join("nova", harness="claude")
        await bus.submit(nova, SetStatus(state="blocked", detail="permission: Bash: make"))
        yield Early(bus, nova)


async def test_early_report_counts_without_a_newer_one(early: Early) -> None:
    early.keep()

    assert await early.state() == "idle"


async def test_newer_screen_report_drops_the_early_one(early: Early) -> None:
    early.keep()
    early.words.hear("nova", SetStatus(state="active"))

    assert await early.state() == "blocked"


async def test_last_early_report_counts_unless_the_holder_closes(early: Early) -> None:
    early.keep("active")
    early.keep()

    assert await early.state() == "idle"
    early.keep("active")
    early.words.close()
    assert await early.state() == "idle"


async def test_newer_hook_report_wins_over_an_early_one(early: Early) -> None:
    known = early.bus.agent("nova")
    await early.bus.submit(early.nova, SetStatus(state="blocked", detail="permission: Write: a.py"))

    early.keep(known=known)

    assert await early.state() == "blocked"


async def test_dialog_on_the_screen_wins_over_an_early_report(early: Early) -> None:
    lane = early.bus.open_lane("nova", LaneKind.TERMINAL)
    early.bus.delivery.set_level(lane.lane, LaneLevel(is_open=False, reason=DIALOG))

    early.keep()

    assert await early.state() == "blocked"


async def test_early_report_that_cannot_be_written_is_dropped(early: Early) -> None:
    early.keep("no such state")

    assert await early.state() == "blocked"
    assert all(task.exception() is None for task in early.started)
