"""What a holder says of a screen right behind the hook that tells of a dialog."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.fakes import Bus, OpenLog, opened_bus
from tests.limits import LIMIT_S

from palaver.delivery.lane import LaneKind, Level
from palaver.doors.lines_early import EarlyWords, is_before_dialog, says_less
from palaver.doors.services import Services
from palaver.model.agent import Agent, Caller
from palaver.model.request import SetStatus
from palaver.model.terminal import DIALOG


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
def test_a_screen_that_may_be_about_to_show_a_dialog_says_nothing_for_a_moment(
    known: Agent, state: str, is_early: bool
) -> None:
    assert is_before_dialog(known, state) is is_early


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
def test_a_screen_that_shows_a_dialog_and_not_what_is_asked_says_less(
    state: str, detail: str, is_less: bool
) -> None:
    known = msgspec.structs.replace(agent(), detail="permission: Bash: make")

    assert says_less(SetStatus(state=state, detail=detail), known) is is_less


def test_of_an_agent_that_does_not_wait_nothing_was_said_better() -> None:
    known = msgspec.structs.replace(agent("active"), detail="permission: Bash: make")

    assert not says_less(SetStatus(state="blocked", detail="permission"), known)


class Early:
    """What is known of an agent whose dialog a hook has told of, and a holder that speaks too early."""

    def __init__(self, bus: Bus, nova: Caller) -> None:
        self.bus = bus
        self.nova = nova
        self.started: list[asyncio.Task[None]] = []
        services = SimpleNamespace(broker=bus.broker, delivery=bus.delivery, clock=bus.clock)
        self.words = EarlyWords(cast("Services", services), self._start)

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        self.started.append(asyncio.ensure_future(work))
        return self.started[-1]

    def keep(self, state: str = "idle", known: Agent | None = None) -> None:
        """Say something early, of which the moment comes as soon as it is waited for."""
        self.words.keep(known or self.bus.agent("nova"), SetStatus(state=state))
        self.bus.clock.advance(2.0)

    async def state(self) -> str:
        """Give the state once all that was kept is said or dropped."""
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait(self.started)
        return self.bus.agent("nova").state


@pytest.fixture
async def early(open_log: OpenLog, tmp_path: Path) -> AsyncIterator[Early]:
    async with opened_bus(open_log, tmp_path) as bus:
        nova = await bus.join("nova", harness="claude")
        await bus.submit(nova, SetStatus(state="blocked", detail="permission: Bash: make"))
        yield Early(bus, nova)


async def test_an_early_word_counts_when_nothing_else_was_said(early: Early) -> None:
    early.keep()

    assert await early.state() == "idle"


async def test_an_early_word_is_dropped_when_the_screen_says_something_newer(early: Early) -> None:
    early.keep()
    early.words.drop("nova")

    assert await early.state() == "blocked"


async def test_of_two_early_words_the_last_counts_and_none_when_the_holder_has_gone(early: Early) -> None:
    early.keep("active")
    early.keep()

    assert await early.state() == "idle"
    early.keep("active")
    early.words.close()
    assert await early.state() == "idle"


async def test_an_early_word_does_not_stand_against_what_a_hook_has_said_since(early: Early) -> None:
    known = early.bus.agent("nova")
    await early.bus.submit(early.nova, SetStatus(state="blocked", detail="permission: Write: a.py"))

    early.keep(known=known)

    assert await early.state() == "blocked"


async def test_an_early_word_does_not_stand_against_a_dialog_on_the_screen(early: Early) -> None:
    lane = early.bus.open_lane("nova", LaneKind.TERMINAL)
    early.bus.delivery.set_level(lane.lane, Level(is_open=False, reason=DIALOG))

    early.keep()

    assert await early.state() == "blocked"


async def test_an_early_word_that_cannot_be_written_is_let_go(early: Early) -> None:
    early.keep("no such state")

    assert await early.state() == "blocked"
    assert all(task.exception() is None for task in early.started)
