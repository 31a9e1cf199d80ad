"""The screen of GitHub Copilot CLI 1.0, as recorded: its composer and its dialogs."""

import pytest

from palaver.harness.base import View
from palaver.harness.programs import COPILOT, read_copilot_composer

TOP, BOTTOM = "╻" + "▄" * 60, "╹" + "▀" * 60
BELOW = " ← open sidebar · Interactive · Manual Approval · / commands · ? help · tab next tab"
SHELL = " ← open sidebar · Shell · Manual Approval · / commands · tab next tab"


def view(*lines: str, row: int) -> View:
    return View(lines=lines, bright=lines, row=row, column=2)


@pytest.mark.parametrize(
    ("rows", "below", "draft"),
    [
        (("┃",), BELOW, ""),
        (("┃ hello world",), BELOW, "hello world"),
        (
            ("┃ [pal message #42 from: luna] please", "┃ look again"),
            BELOW,
            "[pal message #42 from: luna] please\nlook again",
        ),
        (("┃ ls",), " Shell · Manual Approval", "!\nls"),
        (("┃ Execute shell command",), SHELL, "!\nExecute shell command"),
    ],
)
def test_composer_is_the_frame_around_the_cursor(rows: tuple[str, ...], below: str, draft: str) -> None:
    assert read_copilot_composer(view(" ~/w", TOP, *rows, BOTTOM, below, row=2)) == draft


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        (("┃ a", BOTTOM), 0),
        ((TOP, "┃ a"), 1),
        ((TOP, "┃ a", BOTTOM), 0),
        (("text", "┃ a", BOTTOM), 1),
        ((TOP, "┃ a", "text"), 1),
    ],
)
def test_incomplete_frame_is_not_a_composer(lines: tuple[str, ...], row: int) -> None:
    assert read_copilot_composer(view(*lines, row=row)) is None


def test_frame_at_the_lower_edge_is_a_composer() -> None:
    assert read_copilot_composer(view(TOP, "┃", BOTTOM, row=1)) == ""


def test_dialog_is_recognized() -> None:
    for line in ("│ ❯ 1. Yes        │", "│ ↑/↓ to navigate · enter to select · esc to cancel │"):
        assert any(rule.search(f"text\n{line}") for rule in COPILOT.dialogs)
