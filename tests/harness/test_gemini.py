"""How Gemini CLI looks: its composer and its dialogs. Whole screens are recorded, in the agents' tests."""

import pytest

from palaver.harness.gemini import PROFILE, read_composer
from palaver.harness.profile import View

TOP, BOTTOM = "▄" * 30, "▀" * 30
HINT = " >   Type your message or @path/to/file"


def view(*lines: str, row: int, column: int = 3) -> View:
    return View(lines=lines, bright=lines, row=row, column=column)


@pytest.mark.parametrize(
    ("lines", "row", "draft"),
    [
        ((TOP, HINT, BOTTOM), 1, ""),
        ((TOP, " >", BOTTOM), 1, ""),
        ((TOP, " > one", "   two", BOTTOM), 2, "one\ntwo"),
        ((TOP, " * one", BOTTOM), 1, "one"),
        ((TOP, " ! ls", BOTTOM), 1, "!\nls"),
        ((TOP, " > sent", BOTTOM, "answer", TOP, HINT, BOTTOM), 5, ""),
        ((TOP, " > sent", BOTTOM, "answer", ""), 4, None),
        ((TOP, " > half", ""), 1, None),
        (("", " > half", BOTTOM), 1, None),
        ((TOP, "something", BOTTOM), 1, None),
        ((TOP, " > x", BOTTOM), 2, None),
    ],
)
def test_the_composer_is_the_frame_around_the_cursor(
    lines: tuple[str, ...], row: int, draft: str | None
) -> None:
    assert read_composer(view(*lines, row=row)) == draft


def test_the_words_of_the_hint_typed_by_a_person_are_a_draft() -> None:
    assert read_composer(view(TOP, HINT, BOTTOM, row=1, column=37)) == HINT[3:]


@pytest.mark.parametrize(
    ("text", "is_dialog"),
    [
        ("│ Allow execution of [Shell]?    │\n│ ● 1. Allow once    │", True),
        (" ● 1. Trust folder\n   2. Don't trust", True),
        ("✦ 1. Allow once\n  2. never", False),
    ],
)
def test_a_dialog_is_told_from_what_was_said(text: str, is_dialog: bool) -> None:
    assert any(pattern.search(text) for pattern in PROFILE.dialogs) == is_dialog
