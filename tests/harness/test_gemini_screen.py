"""Reading a screen of Gemini CLI line by line. The agent tests use recorded full screens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.base import View
from palaver.harness.gemini.output import read_composer, read_dialog, read_limit

TOP, BOTTOM, RULE = "▄" * 30, "▀" * 30, "─" * 30
HINT = " >   Type your message or @path/to/file"
EDGE, END = f"╭{'─' * 40}╮", f"╰{'─' * 40}╯"


def view(*lines: str, row: int, column: int = 3) -> View:
    return View(lines=lines, bright=lines, row=row, column=column)


def below(*lines: str) -> View:
    """A screen with the cursor below all lines, as while a dialog is open."""
    return view(*lines, "", row=len(lines), column=0)


@pytest.mark.parametrize(
    ("lines", "row", "draft"),
    [
        ((TOP, HINT, BOTTOM), 1, ""),
        ((TOP, " >", BOTTOM), 1, ""),
        ((TOP, " > one", "   two", BOTTOM), 2, "one\ntwo"),
        ((TOP, " * one", BOTTOM), 1, "one"),
        ((TOP, " ! ls", BOTTOM), 1, "!\nls"),
        ((TOP, " >   Type your message or", "   @path/to/file", BOTTOM), 1, ""),
        ((TOP, " >   Press 'Esc' for NORMAL mode.", BOTTOM), 1, ""),
        ((TOP, " >   Press 'i' for INSERT mode.", BOTTOM), 1, None),
        ((TOP, " > sent", BOTTOM, "answer", TOP, HINT, BOTTOM), 5, ""),
        ((TOP, " > sent", BOTTOM, "answer", ""), 4, None),
        ((TOP, " > half", ""), 1, None),
        (("", " > half", BOTTOM), 1, None),
        ((TOP, "something", BOTTOM), 1, None),
        ((TOP, " > x", BOTTOM), 2, None),
        ((RULE, " Shift+Tab", RULE, HINT, RULE), 3, ""),
        ((RULE, " > one", "   ────────────", RULE), 1, "one\n────────────"),
        (("", HINT, ""), 1, ""),
        (("", " > one", "", "   two", ""), 3, "one\n\ntwo"),
        (("answer", " > one", ""), 1, None),
        (("", "answer", ""), 1, None),
        (("",), 0, None),
        ((), 0, None),
    ],
)
def test_composer_is_the_frame_around_the_cursor(lines: tuple[str, ...], row: int, draft: str | None) -> None:
    assert read_composer(view(*lines, row=row)) == draft


@pytest.mark.parametrize(
    ("lines", "draft"),
    [
        (("Model:  hello", ">    Type your message or @path/to/file"), ""),
        (("Model:  hello", ">  one", "two"), "one\ntwo"),
        (("Model:  hello", ">    Press 'i' for INSERT mode."), None),
        (("Model:  hello", "!  ls"), "!\nls"),
        (("Model:  hello", "User:  you"), None),
    ],
)
def test_composer_is_last_in_screen_reader_mode(lines: tuple[str, ...], draft: str | None) -> None:
    assert read_composer(view(*lines, row=len(lines) - 1, column=40)) == draft


def test_hint_text_typed_by_a_person_is_a_draft() -> None:
    assert read_composer(view(TOP, HINT, BOTTOM, row=1, column=37)) == HINT[3:]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (("│ Allow execution of [Shell]?    │", "│ ● 1. Allow once    │"), "permission"),
        ((" ● 1. Trust folder", "   2. Don't trust"), "dialog"),
        (("(checked) 1. Yes", "2. No"), "dialog"),
        (("Shall it be?", "(checked) 1. Yes", "2. No"), "dialog: Shall it be?"),
        (("✦ 1. Allow once", "  2. never"), None),
        ((EDGE, "│ ? Get started", "│ (Use Enter to select)", END), "dialog: Get started"),
        ((EDGE, "│ > Select Theme        Preview", "│ Esc to close", END), "dialog: Select Theme"),
        ((EDGE, "│ Why?", "│ ● 1. Yes", END, " Press Ctrl+O to show more lines"), "dialog: Why?"),
        ((EDGE, "│ ✓  Shell true", END), None),
        ((" Chat Sessions (1 total)", "", " ❯ #1 │ 3"), "dialog: Chat Sessions"),
        (("│ the top of it is gone", "│ Press Esc to exit.", END), "dialog: the top of it is gone"),
    ],
)
def test_dialog_is_named_and_distinguished_from_conversation_text(
    lines: tuple[str, ...], name: str | None
) -> None:
    assert read_dialog(below(*lines)) == name


def test_composer_means_that_no_dialog_is_open() -> None:
    reply = ("✦ choose:", " ● 1. Allow once", "   2. never")

    assert read_dialog(below(*reply)) is not None
    assert read_dialog(view(*reply, TOP, HINT, BOTTOM, row=4)) is None


def test_usage_limit_dialog_shows_its_reset_time_and_choices() -> None:
    lines = (
        *(EDGE, "│ Usage limit reached for all Pro models.", "│ Access resets at 3:00 PM UTC."),
        *("│ /model to switch models.", "│ ● 1. Switch to flash", "│   2. Stop", END),
    )

    assert read_dialog(below(*lines)) == (
        "usage limit: all Pro models; resets 3:00 PM UTC; Switch to flash / Stop?"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (("✕ [API Error: You have exhausted your daily quota.]",), "12am (America/Los_Angeles)"),
        (("✕ [API Error: over quota. Suggested retry", "  after 2400.5s.]"), "in 2401s"),
        (("✕ [API Error: over quota]",), None),
    ],
)
def test_turn_ended_by_a_usage_limit_shows_the_reset_time(
    error: tuple[str, ...], expected: str | None
) -> None:
    lines = (*error, "", "ℹ This request failed. Press F12", "  for more", RULE, TOP, HINT, BOTTOM)

    found = read_limit(view(*lines, row=len(lines) - 2))

    assert found == ("usage limit" if expected is None else f"usage limit, resets {expected}")


@pytest.mark.parametrize(
    "lines",
    [
        ("✕ [API Error: API key not valid]", TOP, HINT, BOTTOM),
        ("✕ [API Error: daily quota]", "✦ well again", TOP, HINT, BOTTOM),
        ("✕ [API Error: daily quota]", TOP, " > /model", BOTTOM, "", TOP, HINT, BOTTOM),
        ("✕ [API Error: daily quota]", "ℹ Model set", TOP, HINT, BOTTOM),
        ("✦ your daily quota", TOP, HINT, BOTTOM),
    ],
)
def test_other_errors_and_later_output_are_not_a_usage_limit(lines: tuple[str, ...]) -> None:
    assert read_limit(view(*lines, row=len(lines) - 2)) == ""


def test_no_usage_limit_is_reported_without_a_composer() -> None:
    assert read_limit(below("✕ [API Error: daily quota]")) == ""


PIECES = st.sampled_from(
    [
        TOP,
        BOTTOM,
        RULE,
        HINT,
        EDGE,
        END,
        "",
        " > a",
        "   b",
        ">  c",
        "│ ● 1. x",
        "│   2. y",
        "✕ quota",
        "✦ z",
        "Esc",
    ]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=12), st.integers(0, 12), st.integers(0, 40))
def test_any_screen_can_be_read_without_contradictions(lines: list[str], row: int, column: int) -> None:
    shown = view(*lines, row=row, column=column)

    composer, dialog, limit = read_composer(shown), read_dialog(shown), read_limit(shown)

    assert composer is None or dialog is None
    assert not limit or composer is not None or row < len(lines)
    assert dialog is None or "\n" not in dialog
