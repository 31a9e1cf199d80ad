"""A program's reports about itself: which one counts when several disagree."""

import pytest

from palaver.harness.registry import profile_of
from palaver.protocol.events import AgentState
from palaver.terminal.emulator import Status
from palaver.terminal.screen import ReportedState, Signals


@pytest.fixture
def signals() -> Signals:
    return Signals(profile_of("codex"))


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (Status("idle"), ReportedState(AgentState.IDLE)),
        (Status("done"), ReportedState(AgentState.IDLE)),
        (Status("working"), ReportedState(AgentState.ACTIVE)),
        (Status("blocked"), ReportedState(AgentState.BLOCKED, "permission")),
        (Status("blocked", "question"), ReportedState(AgentState.BLOCKED, "question")),
    ],
)
def test_status_becomes_a_state(signals: Signals, status: Status, word: ReportedState) -> None:
    signals.hear_status(status)

    assert signals.word == word


def test_unknown_status_means_nothing(signals: Signals) -> None:
    signals.hear_status(Status("dreaming"))

    assert signals.word is None


def test_title_counts_until_there_is_a_status(signals: Signals) -> None:
    signals.hear_title("⠇ demo")
    by_title = signals.word
    signals.hear_status(Status("idle"))
    signals.hear_title("⠇ demo")

    assert by_title == ReportedState(AgentState.ACTIVE)
    assert signals.word == ReportedState(AgentState.IDLE)


def test_title_without_a_rule_means_nothing() -> None:
    signals = Signals(profile_of("generic"))

    signals.hear_title("vim")

    assert signals.word is None


def test_hook_adds_the_reason_of_an_active_program(signals: Signals) -> None:
    signals.hear_hook("PreCompact")
    signals.hear_status(Status("working"))

    assert signals.word == ReportedState(AgentState.ACTIVE, "compacting")


def test_later_status_overrides_a_hook(signals: Signals) -> None:
    signals.hear_hook("PermissionRequest")
    blocked = signals.word
    signals.hear_status(Status("working"))

    assert blocked == ReportedState(AgentState.BLOCKED, "permission_review")
    assert signals.word == ReportedState(AgentState.ACTIVE)


def test_hook_of_another_session_is_ignored(signals: Signals) -> None:
    assert signals.hear_hook("SessionStart", session="one")

    assert not signals.hear_hook("UserPromptSubmit", session="two")
    assert signals.word == ReportedState(AgentState.IDLE)


def test_another_session_may_begin_after_one_has_ended(signals: Signals) -> None:
    signals.hear_hook("SessionStart", session="one")
    signals.hear_hook("SessionEnd", session="one")
    ended = signals.word

    assert ended == ReportedState(AgentState.EXITED, "session_end")
    assert signals.hear_hook("SessionStart", session="two")
    assert signals.word == ReportedState(AgentState.IDLE)


def test_hook_without_a_state_is_ignored(signals: Signals) -> None:
    assert not signals.hear_hook("FileChanged")
    assert signals.word is None


def test_interrupt_clears_an_active_state_from_a_hook(signals: Signals) -> None:
    signals.hear_hook("PreToolUse")
    signals.interrupt()
    after_work = signals.word
    signals.hear_hook("Stop")
    signals.interrupt()

    assert after_work is None
    assert signals.word == ReportedState(AgentState.IDLE)
