"""The screen of Qwen Code 0.15, as recorded: its composer and its dialogs."""

import pytest

from palaver.harness.base import View
from palaver.harness.programs import QWEN, read_qwen_composer

RULE = "─" * 60
MESSAGE = "[pal message #42 from: luna] please look at the parser"


def view(*lines: str) -> View:
    return View(lines=lines, bright=lines, row=len(lines) - 1, column=0)


def composer(*rows: str) -> View:
    return view("  ✦ made", "", RULE, *rows, RULE, "  ? for shortcuts", "")


@pytest.mark.parametrize(
    ("rows", "draft"),
    [
        ((">   Type your message or @path/to/file",), ""),
        (("*   Type your message or @path/to/file",), ""),
        (("> hello",), "hello"),
        ((f"> {MESSAGE}", "  again"), f"{MESSAGE}\nagain"),
        (("! ls",), "!\nls"),
        (("!   Type your message or @path/to/file",), "!\n"),
        (("> Press 'i' for INSERT mode and 'Esc' for NORMAL mode.",), None),
        (("what",), None),
        ((), None),
    ],
)
def test_composer_is_between_the_last_two_rules(rows: tuple[str, ...], draft: str | None) -> None:
    assert read_qwen_composer(composer(*rows)) == draft


def test_screen_without_rules_has_no_composer() -> None:
    assert read_qwen_composer(view("  > make it", "", "  ✦ I will make it.")) is None


def test_dialog_is_distinguished_from_a_busy_line() -> None:
    dialog = "  │ Allow execution of: 'touch'?   │\n  │ › 1. Yes, allow once   │\n  │   2. Always allow   │"
    busy = "  ⠹ Loading the next great idea... (1s · ↓ 4 tokens · esc to cancel)"

    assert any(rule.search(dialog) for rule in QWEN.dialogs)
    assert any(rule.search("  ⠏ Waiting for user confirmation...") for rule in QWEN.dialogs)
    assert any(rule.search(busy) for rule in QWEN.busy)
    assert not any(rule.search(busy) for rule in QWEN.dialogs)
