"""The native lane of a terminal agent: while it is available nothing is typed; without it the terminal is
used.
"""

from pathlib import Path

import pytest
from tests.agents.nobody import Nobody
from tests.agents.stage import Stage
from tests.fakes import FakeClock

from palaver.agents.bus import Bus
from palaver.agents.native import WAYS_IN, Native
from palaver.agents.native_way import Reach
from palaver.agents.native_word import Word
from palaver.agents.terminal.gates import OPEN, Gate
from palaver.agents.terminal.look import Look
from palaver.agents.typing.steps import Answer, Done
from palaver.client.wire import Line
from palaver.model.delivery import AgentState
from palaver.model.last_report import Outcome
from palaver.model.lines.holder_ops import HoldOp

IDLE = Look(state=AgentState.IDLE)


class FakeWay:
    """A native lane that the test controls."""

    def __init__(self, bus: Bus) -> None:
        self.reach = Reach(
            bus, self._carry, Nobody(), Nobody(), spawn=lambda work: work.close(), on_change=lambda: None
        )
        self.word: Word | None = None
        self.is_over = False
        self.calls: list[str] = []

    async def _carry(self, text: str, key: str) -> Done:
        return Done(Answer.DEFERRED)

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")


def make(bus: Bus, address: str, harness: str = "fake") -> Native:
    return Native(
        harness,
        address,
        bus,
        clock=FakeClock(),
        spawn=lambda work: work.close(),
        on_word=lambda: None,
        on_change=lambda: None,
    )


@pytest.fixture
def bus(stage: Stage) -> Bus:
    async def on_held(held: object) -> None:
        return

    return Bus(str(stage.home), HoldOp(pid=1), on_held, lambda line: None)


@pytest.fixture
def way(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> FakeWay:
    found = FakeWay(bus)
    monkeypatch.setitem(WAYS_IN, "fake", lambda *arguments: found)
    return found


async def test_without_a_native_lane_only_the_terminal_is_used(bus: Bus) -> None:
    for native in (make(bus, ""), make(bus, "/somewhere/s.sock", "generic")):
        others: list[Line] = []

        native.connected()
        native.take(Line(push="offer", lane=1), others.append)
        native.remember(())
        native.ended()
        await native.settle()
        native.clear()

        assert native.see(IDLE, OPEN) == (Word(state=AgentState.IDLE), OPEN)
        assert len(others) == 1
        assert native.is_at_rest
        assert native.outcomes == ()


async def test_nothing_is_typed_while_the_native_lane_reports_a_status(bus: Bus, way: FakeWay) -> None:
    native = make(bus, "/s.sock")
    way.word = Word(state=AgentState.ACTIVE, tool="Bash")

    word, gate = native.see(IDLE, OPEN)

    assert word == way.word
    assert (gate.is_open, gate.reason) == (False, "native")
    assert way.calls == ["start"]


async def test_native_lane_starts_only_after_the_screen_is_ready(bus: Bus, way: FakeWay) -> None:
    native = make(bus, "/s.sock")

    word, gate = native.see(Look(state=AgentState.STARTING), OPEN)

    assert (word.state, gate.is_open) == (AgentState.STARTING, False)
    assert way.calls == []


@pytest.mark.parametrize("word", [None, Word(state=AgentState.STARTING)])
async def test_startup_dialog_closes_the_gate_like_any_dialog(
    bus: Bus, way: FakeWay, word: Word | None
) -> None:
    native = make(bus, "/s.sock")
    way.word = word
    behind = Gate(is_open=False, reason="dialog")

    seen = native.see(Look(state=AgentState.BLOCKED, reason="hooks need review"), behind)

    assert seen == (Word(state=AgentState.BLOCKED, detail="hooks need review"), behind)


async def test_startup_dialog_is_reported_as_blocked(bus: Bus, way: FakeWay) -> None:
    native = make(bus, "/s.sock")

    word, gate = native.see(Look(state=AgentState.BLOCKED, reason="permission"), OPEN)

    assert (word.state, word.detail, gate.is_open) == (AgentState.BLOCKED, "permission", False)


@pytest.mark.parametrize("state", [AgentState.IDLE, AgentState.EXITED])
async def test_terminal_is_used_when_the_native_lane_has_ended(
    bus: Bus, way: FakeWay, state: AgentState
) -> None:
    native = make(bus, "/s.sock")
    way.is_over = state is AgentState.IDLE

    assert native.see(Look(state=state), OPEN) == (Word(state=state), OPEN)


async def test_outcomes_are_kept_and_the_socket_folder_is_removed(
    bus: Bus, way: FakeWay, tmp_path: Path
) -> None:
    (tmp_path / "codex-1").mkdir()
    native = make(bus, str(tmp_path / "codex-1" / "server.sock"))

    native.remember(
        (Outcome(messages=(3,), answer="seen"), Outcome(messages=(4,), answer="seen", name="luna_sub_1"))
    )
    native.ended()
    native.clear()

    assert [(one.name, one.messages) for one in native.outcomes] == [("", (3,)), ("luna_sub_1", (4,))]
    assert way.reach.lane.outcomes == (Outcome(messages=(3,), answer="seen"),)
    assert way.calls == ["close"]
    assert not (tmp_path / "codex-1").exists()
