"""What a program says of itself: which word holds when several disagree."""

import pytest

from palaver.agents.terminal.signals import Signals, Word
from palaver.agents.terminal.terminal import Status
from palaver.harness.profiles import profile_of
from palaver.model.delivery import AgentState


@pytest.fixture
def signals() -> Signals:
    return Signals(profile_of("codex"))


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (Status("idle"), Word(AgentState.IDLE)),
        (Status("done"), Word(AgentState.IDLE)),
        (Status("working"), Word(AgentState.ACTIVE)),
        (Status("blocked"), Word(AgentState.BLOCKED, "permission")),
        (Status("blocked", "question"), Word(AgentState.BLOCKED, "question")),
    ],
)
def test_a_status_is_a_word(signals: Signals, status: Status, word: Word) -> None:
    signals.hear_status(status)

    assert signals.word == word


def test_a_status_that_nobody_knows_says_nothing(signals: Signals) -> None:
    signals.hear_status(Status("dreaming"))

    assert signals.word is None


def test_titles_count_until_there_is_a_status(signals: Signals) -> None:
    signals.hear_title("⠇ demo")
    by_title = signals.word
    signals.hear_status(Status("idle"))
    signals.hear_title("⠇ demo")

    assert by_title == Word(AgentState.ACTIVE)
    assert signals.word == Word(AgentState.IDLE)


def test_a_title_without_a_rule_says_nothing() -> None:
    signals = Signals(profile_of("generic"))

    signals.hear_title("vim")

    assert signals.word is None


def test_a_hook_knows_better_what_an_active_program_is_at(signals: Signals) -> None:
    signals.hear_hook("PreCompact")
    signals.hear_status(Status("working"))

    assert signals.word == Word(AgentState.ACTIVE, "compacting")


def test_a_later_status_ends_what_a_hook_said(signals: Signals) -> None:
    signals.hear_hook("PermissionRequest")
    blocked = signals.word
    signals.hear_status(Status("working"))

    assert blocked == Word(AgentState.BLOCKED, "permission_review")
    assert signals.word == Word(AgentState.ACTIVE)


def test_a_hook_of_another_session_is_ignored(signals: Signals) -> None:
    assert signals.hear_hook("SessionStart", session="one")

    assert not signals.hear_hook("UserPromptSubmit", session="two")
    assert signals.word == Word(AgentState.IDLE)


def test_after_a_session_has_ended_another_may_begin(signals: Signals) -> None:
    signals.hear_hook("SessionStart", session="one")
    signals.hear_hook("SessionEnd", session="one")
    ended = signals.word

    assert ended == Word(AgentState.EXITED, "session_end")
    assert signals.hear_hook("SessionStart", session="two")
    assert signals.word == Word(AgentState.IDLE)


def test_a_hook_that_is_not_about_the_state_says_nothing(signals: Signals) -> None:
    assert not signals.hear_hook("FileChanged")
    assert signals.word is None


def test_an_interrupt_ends_what_a_hook_said_of_the_work(signals: Signals) -> None:
    signals.hear_hook("PreToolUse")
    signals.interrupt()
    after_work = signals.word
    signals.hear_hook("Stop")
    signals.interrupt()

    assert after_work is None
    assert signals.word == Word(AgentState.IDLE)
