"""The screen of Codex: its composer and its dialogs. The agent tests use recorded full screens."""

import pytest

from palaver.harness.base import View
from palaver.harness.codex.output import PROFILE, read_composer, read_dialog


def view(*lines: str, row: int, bright: tuple[str, ...] | None = None) -> View:
    return View(lines=lines, bright=bright or lines, row=row, column=2)


@pytest.mark.parametrize(
    ("lines", "row", "draft"),
    [
        (("› ", "", "  model · ~/demo"), 0, ""),
        (("› one", "  two", "", "  model · ~/demo"), 1, "one\ntwo"),
        (("› one", "", "  two", "", "  status"), 2, "one\n\ntwo"),
        (("› one", "  two", "", "  status"), 0, "one\ntwo"),
        (("• no prompt", "", "  status"), 1, None),
        (("› 1. Yes, proceed (y)", "  2. No"), 1, None),
        (("› one", "• an answer", ""), 2, None),
    ],
)
def test_composer_follows_the_bright_prompt(lines: tuple[str, ...], row: int, draft: str | None) -> None:
    assert read_composer(view(*lines, row=row)) == draft


def test_faint_prompt_is_a_sent_message() -> None:
    sent = view("› sent", "", row=1, bright=("  sent", ""))

    assert read_composer(sent) is None


def test_faint_hint_is_not_a_draft() -> None:
    hint = view("› Ask Codex to do anything", "", row=0, bright=("›", ""))

    assert read_composer(hint) == ""


@pytest.mark.parametrize(
    ("text", "is_dialog"),
    [
        ("› 1. Yes\n  2. No\n\n  Press enter to continue", True),
        ("  Press enter to confirm or esc to cancel", True),
        ("› 1. do this\n  2. and that\n\n• Would you like to run the tests?\n\n› \n\n  model", False),
    ],
)
def test_dialog_is_distinguished_from_conversation_text(text: str, is_dialog: bool) -> None:
    assert any(pattern.search(text) for pattern in PROFILE.dialogs) == is_dialog


def test_busy_codex_queues_a_message_with_tab() -> None:
    assert PROFILE.queue_key == b"\t"


REVIEW = (
    "",
    "  Hooks need review",
    "  10 hooks are new or changed.",
    "  Hooks can run outside the sandbox after you trust them.",
    "",
    "",
    "› 1. Review hooks",
    "  2. Trust all and continue",
    "  3. Continue without trusting (hooks won't run)",
    "",
    "  enter confirm · esc skip",
    "",
)
"""As version 0.166 drew it at its first start after `pal install codex`."""


@pytest.mark.parametrize("chosen", [6, 7, 8])
def test_hook_review_dialog_is_recognized_with_any_selection(chosen: int) -> None:
    plain = tuple(line.replace("› ", "  ") for line in REVIEW)
    shown = tuple(f"› {line[2:]}" if row == chosen else line for row, line in enumerate(plain))

    assert read_dialog(view(*shown, row=chosen)) == "hooks need review"


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("", ""),
        (*REVIEW, "› ", "", "  model · ~/demo"),
        ("• Hooks need review", "", "  enter confirm · esc skip"),
        ("  Hooks need review", "", "› "),
    ],
)
def test_text_about_hooks_is_not_a_dialog(lines: tuple[str, ...]) -> None:
    assert read_dialog(view(*lines, row=0)) is None
