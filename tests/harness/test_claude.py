"""The screen of Claude Code: its composer and its dialogs. The agent tests use recorded full screens."""

import pytest

from palaver.harness.base import View
from palaver.harness.claude.output import PROFILE, read_composer

RULE = "─" * 30


def view(*lines: str, row: int, bright: tuple[str, ...] | None = None) -> View:
    return View(lines=lines, bright=bright or lines, row=row, column=2)


@pytest.mark.parametrize(
    ("lines", "row", "draft"),
    [
        ((RULE, "❯\u00a0", RULE, "  ? for shortcuts"), 1, ""),
        ((RULE, "❯", RULE), 1, ""),
        ((RULE, "❯ one", "  two", RULE), 2, "one\ntwo"),
        ((RULE, "! ls", RULE), 1, "!\nls"),
        ((RULE, "! ", RULE), 1, "!\n"),
        (("❯ sent before", RULE, "❯ ", RULE), 2, ""),
        (("─── name ───" + RULE, "❯ ", RULE), 1, None),
        ((RULE, "❯ ", "  footer"), 1, None),
        (("❯ ", RULE), 0, None),
        ((RULE, " Do you want to proceed?", " ❯ 1. Yes", RULE), 2, None),
        ((RULE, "❯ ", RULE), 0, None),
        ((RULE, "❯ ", RULE), 2, None),
    ],
)
def test_composer_is_the_text_between_the_rules(lines: tuple[str, ...], row: int, draft: str | None) -> None:
    assert read_composer(view(*lines, row=row)) == draft


def test_faint_hint_is_not_a_draft() -> None:
    hint = view(RULE, '❯ Try "fix the tests"', RULE, row=1, bright=(RULE, "❯", RULE))

    assert read_composer(hint) == ""


@pytest.mark.parametrize(
    ("text", "is_dialog"),
    [
        (" Do you want to proceed?\n ❯ 1. Yes\n   2. No\n\n Esc to cancel · Tab to amend", True),
        (" Esc to cancel · Tab to amend", True),
        ("❯ 1. first do this\n● Do you want to proceed?\n", False),
        ("● Press Esc to cancel\nmore", False),
    ],
)
def test_dialog_is_distinguished_from_conversation_text(text: str, is_dialog: bool) -> None:
    assert any(pattern.search(text) for pattern in PROFILE.dialogs) == is_dialog


@pytest.mark.parametrize("draft", ["[Pasted text #1 +60 lines]", "[Pasted text #2]"])
def test_folded_paste_is_recognized(draft: str) -> None:
    assert PROFILE.folded_paste is not None
    assert PROFILE.folded_paste.fullmatch(draft)


@pytest.mark.parametrize(
    ("text", "is_working"),
    [
        (
            f"{RULE}\n❯ \n{RULE}\n  manual mode on · esc to interrupt · ↓ to manage\n\n  ● main\n  ◯ look 4s",
            True,
        ),
        (f"✽ Manifesting… (4s · ↓ 47 tokens)\n{RULE}\n❯ \n{RULE}\n  a line of its user's\n\n  ● main", True),
        (f"● press esc to interrupt it\n{RULE}\n❯ \n{RULE}\n  ↓ to manage\n\n  ● main\n  ◯ look 4s", False),
        (f"✻ Waiting for 1 background agent to finish\n{RULE}\n❯ \n{RULE}\n  ↓ to manage", False),
        (f"✻ Baked for 0s · done 5:52 PM\n{RULE}\n❯ \n{RULE}\n  ↓ to manage", False),
    ],
)
def test_own_work_is_distinguished_from_sub_agent_work(text: str, is_working: bool) -> None:
    assert any(sign.search(text) for sign in PROFILE.own_work) == is_working
