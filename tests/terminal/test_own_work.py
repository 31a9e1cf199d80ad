"""A program with active sub-agents: its screen shows whether it works itself."""

import pytest

from palaver.harness.programs import GENERIC
from palaver.harness.registry import profile_of
from palaver.protocol.events import AgentState
from palaver.terminal.screen import QUIET_MS, OwnWork, ReportedState, Screen

ACTIVE, IDLE = ReportedState(AgentState.ACTIVE), ReportedState(AgentState.IDLE)
BLOCKED = ReportedState(AgentState.BLOCKED, "permission")
SIGN = "✽ Manifesting… (4s · ↓ 47 tokens)"
CLAUDE = profile_of("claude")
WORKING = b"\x1b]7501;state=working:app=claude-code\x07"
WORKER = b"\x1b]7501;state=working:app=claude-code:id=a1:title=bG9vaw==\x07"


def test_without_a_sign_of_work_the_program_is_idle_after_a_pause() -> None:
    own = OwnWork(CLAUDE)

    found = [own.judge(ACTIVE, {"a1"}, "", "", now) for now in (0, QUIET_MS - 1, QUIET_MS)]

    assert found == [ACTIVE, ACTIVE, IDLE]
    assert own.change_ms == QUIET_MS


def test_sign_of_work_restarts_the_pause() -> None:
    own = OwnWork(CLAUDE)
    own.judge(ACTIVE, {"a1"}, "", "", 0)

    shown = own.judge(ACTIVE, {"a1"}, "", SIGN, 500)
    after = own.judge(ACTIVE, {"a1"}, "", "", QUIET_MS)

    assert (shown, after, own.change_ms) == (ACTIVE, ACTIVE, 2 * QUIET_MS)


@pytest.mark.parametrize(
    ("word", "others", "draft"),
    [(None, {"a1"}, ""), (BLOCKED, {"a1"}, ""), (IDLE, {"a1"}, ""), (ACTIVE, (), ""), (ACTIVE, {"a1"}, None)],
    ids=["silent", "blocked", "idle", "alone", "unseen"],
)
def test_unambiguous_status_is_trusted(
    word: ReportedState | None, others: tuple[str, ...], draft: str | None
) -> None:
    own = OwnWork(CLAUDE)

    found = [own.judge(word, others, draft, "", now) for now in (0, QUIET_MS)]

    assert found == [word, word]
    assert own.change_ms is None


def test_status_is_trusted_if_the_harness_has_no_known_sign() -> None:
    own = OwnWork(GENERIC)

    assert [own.judge(ACTIVE, {"a1"}, "", "", now) for now in (0, QUIET_MS)] == [ACTIVE, ACTIVE]


def test_stopped_turn_is_over_while_a_subagent_continues() -> None:
    screen = Screen(80, 8, CLAUDE, started_ms=0)
    rule = "─" * 80
    footer = "  ⏸ manual mode on{}\r\n\r\n  ● main\r\n  ◯ general-purpose  look"

    def draw(sign: str, at_ms: int) -> None:
        drawn = f"\x1b[2J\x1b[H{rule}❯ \r\n{rule}{footer.format(sign)}\x1b[2;3H"
        screen.feed(b"\x1b[?2004h" + drawn.encode(), at_ms)

    screen.feed(WORKING + WORKER, 0)
    draw(" · esc to interrupt · ↓ to manage", 0)
    working = [screen.look(now).state for now in (0, 5_000)]
    draw(" · ↓ to manage", 6_000)
    screen.feed(WORKING, 6_000)
    begun = screen.look(6_000).state
    again_ms = screen.next_change_ms(6_000)

    assert working == [AgentState.ACTIVE, AgentState.ACTIVE]
    assert (begun, again_ms) == (AgentState.ACTIVE, 7_000)
    assert screen.look(7_000).state == AgentState.IDLE
