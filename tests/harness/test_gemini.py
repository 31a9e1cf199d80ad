"""The terminal of Gemini CLI apart from its screen: titles and signs of work."""

import pytest

from palaver.harness.gemini.output import PROFILE
from palaver.protocol.events import AgentState


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
def test_title_shows_the_state(title: str, state: AgentState | None) -> None:
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
def test_compression_is_distinguished_from_text_about_it(line: str, is_compacting: bool) -> None:
    assert any(pattern.search(line) for pattern in PROFILE.compacting) == is_compacting
