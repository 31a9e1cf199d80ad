"""When a key may be written: only with proof; each closed gate has its reason."""

from dataclasses import replace

import pytest

from palaver.harness.base import OPEN, Gate, Prompt
from palaver.protocol.events import AgentState
from palaver.terminal.gates import (
    PASSING,
    REASONS,
    Foreground,
    GateFacts,
    ProgramNames,
    check,
    check_raw,
    judge_foreground,
)
from palaver.terminal.keyboard import HUMAN_QUIET_MS, HUMAN_SHOWN_MS
from palaver.terminal.screen import Composer, ScreenState

FACTS = GateFacts(now_ms=10_000, foreground=Foreground.AGENT)
READY = ScreenState(state=AgentState.IDLE, composer=Composer.EMPTY, has_composer_rule=True)


LINE = replace(READY, has_composer_rule=False)


@pytest.mark.parametrize("state", [AgentState.IDLE, AgentState.ACTIVE])
def test_empty_composer_of_the_agent_may_be_typed_into(state: AgentState) -> None:
    assert check(replace(READY, state=state), FACTS) == OPEN


@pytest.mark.parametrize(
    ("look", "facts", "reason"),
    [
        (replace(READY, state=AgentState.EXITED, reason="exited with 0"), FACTS, "exited"),
        (replace(READY, state=AgentState.EXITED, reason="session_end"), FACTS, "exited"),
        (READY, replace(FACTS, foreground=Foreground.GONE), "gone"),
        (READY, replace(FACTS, foreground=Foreground.SHELL), "shell"),
        (READY, replace(FACTS, foreground=Foreground.OTHER), "foreground"),
        (READY, replace(FACTS, has_tool=True), "tool"),
        (READY, replace(FACTS, is_unproven=True), "tool"),
        (replace(READY, is_named_prompt=True), replace(FACTS, has_tool=True), "tool"),
        (READY, replace(FACTS, is_secret=True), "secret"),
        (replace(READY, is_readable=False), FACTS, "unreadable"),
        (replace(READY, has_dialog=True), FACTS, "dialog"),
        (replace(READY, state=AgentState.BLOCKED), FACTS, "dialog"),
        (replace(READY, state=AgentState.ACTIVE, reason="compacting"), FACTS, "compacting"),
        (replace(READY, state=AgentState.STARTING), FACTS, "starting"),
        (replace(READY, has_started=False), FACTS, "starting"),
        (READY, replace(FACTS, has_unread=True), "deaf"),
        (READY, replace(FACTS, is_reading=False), "deaf"),
        (replace(READY, has_started=False), replace(FACTS, is_reading=False), "deaf"),
        (READY, replace(FACTS, is_passthrough=True), "passthrough"),
        (replace(READY, human_key_ms=10_000 - HUMAN_QUIET_MS + 1, output_ms=10_000), FACTS, "human"),
        (replace(READY, human_key_ms=10_000 - HUMAN_SHOWN_MS + 1, output_ms=4_000), FACTS, "human"),
        (replace(READY, composer=Composer.DRAFT), FACTS, "draft"),
        (replace(READY, composer=Composer.UNKNOWN), FACTS, "composer"),
        (READY, replace(FACTS, takes_commands=True), "composer"),
        (LINE, FACTS, "prompt"),
        (replace(LINE, has_paste_mode=True), replace(FACTS, is_raw=True), "prompt"),
        (replace(LINE, prompt=Prompt.PLAIN), FACTS, "prompt"),
        (replace(LINE, prompt=Prompt.PLAIN, has_paste_mode=True), FACTS, "prompt"),
        (replace(LINE, prompt=Prompt.KNOWN), replace(FACTS, is_raw=True), "prompt"),
    ],
)
def test_every_uncertainty_closes_the_gate_and_has_its_word(
    look: ScreenState, facts: GateFacts, reason: str
) -> None:
    assert check(look, facts) == Gate(is_open=False, reason=reason)


def test_every_reason_has_a_case_above_including_the_passing_ones() -> None:
    cases = test_every_uncertainty_closes_the_gate_and_has_its_word.pytestmark[0].args[1]  # type: ignore[attr-defined]  # set by pytest

    assert list(dict.fromkeys(reason for _, _, reason in cases)) == list(REASONS)
    assert set(REASONS) >= PASSING


def test_person_who_paused_for_half_a_second_is_not_disturbed() -> None:
    shown_ms = 10_000 - HUMAN_QUIET_MS

    assert check(replace(READY, human_key_ms=shown_ms, output_ms=shown_ms), FACTS) == OPEN
    assert check(replace(READY, human_key_ms=10_000 - HUMAN_SHOWN_MS), FACTS) == OPEN


def test_stalled_paste_of_a_person_closes_the_gate_however_long_it_stalls() -> None:
    pasting = replace(READY, human_key_ms=0, output_ms=0, is_pasting=True)

    assert check(pasting, FACTS).reason == "human"
    assert check(pasting, FACTS, ours=True).reason == "human"
    assert check(replace(pasting, is_pasting=False), FACTS) == OPEN


def test_terminal_keys_need_no_reader_but_no_unread_input() -> None:
    assert check(READY, replace(FACTS, is_reading=False), needs_reader=False) == OPEN
    assert check(READY, replace(FACTS, has_unread=True), needs_reader=False).reason == "deaf"


@pytest.mark.parametrize(
    ("look", "facts"),
    [
        (replace(LINE, prompt=Prompt.KNOWN), FACTS),
        (replace(LINE, prompt=Prompt.KNOWN), replace(FACTS, is_raw=True, edits_lines=True)),
        (replace(LINE, prompt=Prompt.KNOWN, has_paste_mode=True), replace(FACTS, is_raw=True)),
        (replace(LINE, prompt=Prompt.PLAIN, has_paste_mode=True), replace(FACTS, is_raw=True)),
    ],
)
def test_proven_prompt_may_be_typed_into(look: ScreenState, facts: GateFacts) -> None:
    assert check(look, facts) == OPEN


def test_named_prompt_opens_the_gate_for_a_first_reader() -> None:
    named = replace(LINE, prompt=Prompt.KNOWN, is_named_prompt=True)

    assert check(named, replace(FACTS, is_unproven=True)) == OPEN


def test_terminal_keys_need_no_prompt_unless_single_keys_are_read() -> None:
    assert check(LINE, FACTS, needs_reader=False) == OPEN
    assert check(LINE, replace(FACTS, is_raw=True), needs_reader=False).reason == "prompt"


def test_own_text_is_sent_however_the_program_wraps_it() -> None:
    pasted = replace(LINE, composer=Composer.DRAFT, prompt_line="│ ours", has_paste_mode=True)

    assert check(pasted, replace(FACTS, is_raw=True), ours=True) == OPEN
    assert check(replace(LINE, prompt_line=""), FACTS, ours=True) == OPEN
    assert check(replace(LINE, prompt_line="Name:"), FACTS, ours=True).reason == "prompt"


def test_own_draft_may_be_sent() -> None:
    draft = replace(READY, composer=Composer.DRAFT)

    assert check(draft, FACTS, ours=True) == OPEN
    assert check(replace(draft, composer=Composer.UNKNOWN), FACTS, ours=True).reason == "composer"


def test_raw_bytes_need_only_the_process_of_the_agent() -> None:
    busy_dialog = replace(READY, state=AgentState.BLOCKED, has_dialog=True, is_readable=False)

    assert check_raw(busy_dialog, FACTS) == OPEN
    assert check_raw(READY, replace(FACTS, takes_commands=True)) == OPEN
    assert check_raw(READY, replace(FACTS, has_tool=True)) == OPEN
    assert check_raw(READY, replace(FACTS, foreground=Foreground.SHELL)).reason == "shell"
    assert check_raw(replace(READY, state=AgentState.EXITED), FACTS).reason == "exited"
    assert check_raw(replace(READY, state=AgentState.EXITED, reason="session_end"), FACTS) == OPEN


@pytest.mark.parametrize(
    ("foreground", "members", "judgement"),
    [
        (7, [["claude"]], Foreground.AGENT),
        (7, [["node", "gemini"], ["node", "gemini"]], Foreground.AGENT),
        (9, [["vim"]], Foreground.OTHER),
        (7, [["sh", "-c", "agent; sh"], ["sh"]], Foreground.SHELL),
        (7, [["tmux", "new", "claude"]], Foreground.SHELL),
        (9, [["bash"]], Foreground.SHELL),
        (7, [], Foreground.GONE),
        (None, [["claude"]], Foreground.GONE),
    ],
)
def test_foreground_group_determines_the_reader_of_the_terminal(
    foreground: int | None, members: list[list[str]], judgement: Foreground
) -> None:
    processes = [ProgramNames(argv=tuple(argv)) for argv in members]

    assert judge_foreground(7, foreground, processes) is judgement
