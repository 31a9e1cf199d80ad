"""Transcript entries as shown to a person."""

from datetime import UTC

import pytest

from palaver.app.transcript import entry_text
from palaver.protocol.display import Paint
from palaver.protocol.transcript import Detail, ToolCall, TranscriptEntry

ENTRY = TranscriptEntry(
    role="assistant",
    text="two\nlines\x1b[31m\n",
    tools=(
        ToolCall(name="Bash", input={"command": "ls"}, output="a\nb\n"),
        ToolCall(name="Read", input="x" * 300, output="no", is_error=True),
        ToolCall(name=""),
    ),
    whole={},
    ts=1794743066054,
)


def shown(level: Detail, *, is_terminal: bool = False, entry: TranscriptEntry = ENTRY) -> str:
    return entry_text(entry, 3, level, paint=Paint(False, is_for_person=is_terminal), zone=UTC)


def test_text_is_shown_below_its_role_and_time() -> None:
    assert shown(Detail.NORMAL) == "[3] assistant  2026-11-15 11:44:26\ntwo\nlines\\u{1b}[31m\n\n"


def test_text_cannot_control_the_terminal() -> None:
    assert "lines␛[31m" in shown(Detail.NORMAL, is_terminal=True)


def test_tools_are_listed_below_on_one_line_each() -> None:
    assert shown(Detail.DETAILED, is_terminal=True).splitlines()[3:] == [
        '    Bash {"command": "ls"}',
        "    → a b",
        "    Read " + "x" * 199 + "…",
        "    ✗ no",
        "    answer",
        "",
    ]


def test_full_level_shows_everything() -> None:
    lines = shown(Detail.FULL).splitlines()

    assert lines[4:6] == ["    → a", "      b"]
    assert "    Read " + "x" * 300 in lines


@pytest.mark.parametrize(("ts", "head"), [(0, "[3] user\n"), (1 << 52, "[3] user  ?\n")])
def test_invalid_time_is_not_shown(ts: int, head: str) -> None:
    entry = TranscriptEntry(role="user", text="", whole={}, ts=ts)

    assert shown(Detail.NORMAL, entry=entry).startswith(head)


def test_role_has_its_colour() -> None:
    text = entry_text(ENTRY, 1, Detail.NORMAL, paint=Paint(True, is_for_person=True), zone=UTC)

    assert text.startswith("\x1b[36m[1] assistant\x1b[0m")
