"""What is known of Gemini CLI's terminal beside its screen: titles, signs of work, keys."""

import pytest

from palaver.harness.gemini import PROFILE
from palaver.model.delivery import AgentState


@pytest.mark.parametrize(
    ("title", "state"),
    [
        ("◇  Ready (x)", AgentState.IDLE),
        ("✦  Working… (x)", AgentState.ACTIVE),
        ("⏲  Working… (x)", AgentState.ACTIVE),
        ("✋  Action Required (x)", AgentState.BLOCKED),
        ("a shell", None),
    ],
)
def test_its_title_says_what_it_is_doing(title: str, state: AgentState | None) -> None:
    found = [rule.state for rule in PROFILE.titles if rule.pattern.search(title)]

    assert found == ([] if state is None else [state])


@pytest.mark.parametrize(
    ("line", "is_compacting"),
    [
        ("⠼ Compressing chat history", True),
        (" ⠼ Compressing chat history (esc to cancel, 3s)", True),
        ("✦ Compressing chat history", False),
    ],
)
def test_compressing_is_told_from_what_is_said_about_it(line: str, is_compacting: bool) -> None:
    assert any(pattern.search(line) for pattern in PROFILE.compacting) == is_compacting
