"""The screen of OpenCode: its composer and its dialogs. The agent tests use recorded full screens."""

import pytest

from palaver.harness.base import View
from palaver.harness.opencode.output import PROFILE, read_composer

EDGE = "  ╹" + "▀" * 20
AGENT = "  ┃  Build · Mock"


def view(*lines: str, row: int, column: int = 5) -> View:
    return View(lines=lines, bright=lines, row=row, column=column)


@pytest.mark.parametrize(
    ("lines", "row", "draft"),
    [
        (("  ┃", "  ┃", "  ┃", AGENT, EDGE), 1, ""),
        (("  ┃", "  ┃  one", "  ┃  two", "  ┃", AGENT, EDGE), 2, "one\ntwo"),
        (("  ┃", '  ┃  Ask anything… "What is this?"', "  ┃", AGENT, EDGE), 1, ""),
        (("  ┃", "  ┃  △ Permission required", "  ┃", "  ┃"), 1, None),
        (("  ┃", "  ┃", "  ┃", AGENT, EDGE), 3, None),
        (("  ┃", "  ┃", "  ┃", AGENT, EDGE), 0, None),
        (("", "", EDGE), 1, None),
    ],
)
def test_composer_is_the_block_above_the_edge(lines: tuple[str, ...], row: int, draft: str | None) -> None:
    assert read_composer(view(*lines, row=row)) == draft


def test_hint_text_typed_by_a_person_is_a_draft() -> None:
    typed = view("  ┃", "  ┃  Ask anything…", "  ┃", AGENT, EDGE, row=1, column=18)

    assert read_composer(typed) == "Ask anything…"


@pytest.mark.parametrize(
    ("text", "is_dialog"),
    [
        ("  ┃  △ Permission required\n  ┃   Allow once   Allow always   Reject", True),
        ("  ┃  △ Always allow", True),
        ("     Permission required? Allow once or Reject.", False),
    ],
)
def test_dialog_is_distinguished_from_conversation_text(text: str, is_dialog: bool) -> None:
    assert any(pattern.search(text) for pattern in PROFILE.dialogs) == is_dialog


def test_interrupt_is_two_presses_of_escape() -> None:
    assert (PROFILE.interrupt.keys, PROFILE.interrupt.presses, PROFILE.interrupt.most) == (b"\x1b", 2, 1)
