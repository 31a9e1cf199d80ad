"""Handoffs: built from options, and shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.cli.rooms import STICK_COMMANDS, handoff_from, handoff_from_json, handoff_lines
from palaver.doors.cli.spec import Command, build_table, parse
from palaver.errors import InvalidHandoff
from palaver.protocol.display import Paint, display_width

TABLE = build_table(Command(path=(), summary="x", is_group=True), STICK_COMMANDS)


def made(*words: str) -> dict[str, object]:
    return handoff_from(parse(TABLE, ["stick", "release", *words]), None)


def shown(handoff: dict[str, object], width: int | None = 80) -> list[str]:
    return list(handoff_lines(handoff, width=width, paint=Paint(colour=False, is_for_person=True)))


def test_options_make_a_handoff() -> None:
    handoff = made(
        "--status",
        "tests pass",
        "--next=review",
        "--artifact",
        "src/a.ts:3",
        "--artifact",
        "src/b.ts:10-80",
        "--artifact",
        "README.md",
        "--artifact",
        "C:/x",
        "--question",
        "strict?",
        "--do-not",
        "publish",
    )

    assert handoff == {
        "status": "tests pass",
        "next_action": "review",
        "artifacts": [
            {"path": "src/a.ts", "lines": [3]},
            {"path": "src/b.ts", "lines": "10-80"},
            {"path": "README.md"},
            {"path": "C:/x"},
        ],
        "open_questions": ["strict?"],
        "do_not": ["publish"],
    }


def test_artifact_with_thousands_of_digits_is_a_path() -> None:
    written = f"a.py:{'9' * 5000}"

    assert made("--artifact", written) == {"artifacts": [{"path": written}]}


def test_missing_options_are_not_in_the_handoff() -> None:
    assert made("--status", "s") == {"status": "s"}
    assert made() == {}


def test_json_is_used_unchanged() -> None:
    assert handoff_from(parse(TABLE, ["stick", "release"]), '{"status": "s", "mood": [1]}') == {
        "status": "s",
        "mood": [1],
    }


@pytest.mark.parametrize("text", ["", "[]", "3", "{", '"x"', "[" * 5000, '{"a": \ud800}'])
def test_handoff_that_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidHandoff, match="content must be one JSON object"):
        handoff_from_json(text)


def test_handoff_is_shown_by_parts_with_unknown_parts_by_key() -> None:
    handoff: dict[str, object] = {
        "mood": {"good": True},
        "do_not": ["publish", "touch the lexer"],
        "status": "tests pass",
        "next_action": "review",
        "artifacts": [
            {"path": "src/a.ts", "lines": [3, "10-12"], "note": "the bug"},
            "README",
            {"odd": 1},
            {"path": "b", "lines": 7},
        ],
        "open_questions": [],
    }

    assert shown(handoff) == [
        "  status:    tests pass",
        "  next:      review",
        "  artifacts: src/a.ts:3,10-12 (the bug)",
        "             README",
        '             {"odd":1}',
        "             b:7",
        "  do not:    publish",
        "             touch the lexer",
        '  mood:      {"good":true}',
    ]


def test_long_lines_wrap_only_at_the_width_of_the_terminal() -> None:
    words = "one two three four five six seven eight nine ten"

    assert shown({"status": words}, width=40) == [
        "  status:    one two three four five six",
        "             seven eight nine ten",
    ]
    assert shown({"status": words * 5}, width=None) == [f"  status:    {words * 5}"]


def test_multiline_text_is_aligned_and_cannot_control_the_terminal() -> None:
    assert shown({"status": "a\n  \n\x1b[2Jb"}) == ["  status:    a", "", "             ␛[2Jb"]


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=5,
)
keys = st.sampled_from(["status", "next_action", "artifacts", "open_questions", "do_not"]) | st.text(
    max_size=9
)


@given(st.dictionaries(keys, values, max_size=5), st.integers(40, 120))
def test_any_handoff_is_shown_on_lines_that_fit(handoff: dict[str, object], width: int) -> None:
    for line in shown(handoff, width):
        assert "\x1b" not in line
        assert len(line) <= width or display_width(line) > len(line)
