"""What a holder says of a screen, beside what hooks have said."""

import pytest

from palaver.doors.lines_hold import is_before_dialog
from palaver.model.agent import Agent


def agent(state: str = "blocked", harness: str = "claude") -> Agent:
    return Agent(name="nova", base="nova", device="D", harness=harness, state=state, since=10_000)


@pytest.mark.parametrize(
    ("known", "state", "now_ms", "is_early"),
    [
        (agent(), "idle", 10_500, True),
        (agent(), "idle", 12_000, False),
        (agent(), "active", 10_500, False),
        (agent("active"), "idle", 10_500, False),
        (agent(harness="gemini"), "idle", 10_500, False),
    ],
)
def test_a_screen_from_before_a_dialog_says_nothing_for_a_moment(
    known: Agent, state: str, now_ms: int, is_early: bool
) -> None:
    assert is_before_dialog(known, state, now_ms) is is_early
