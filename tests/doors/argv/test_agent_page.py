"""Agents and their receipts as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.argv.agent_page import agent_table, recent_lines, state_words
from palaver.doors.argv.style import Paint, display_width

PLAIN = Paint(colour=False)
NOW = 10_000_000


def agent(**fields: object) -> dict[str, object]:
    view: dict[str, object] = {
        "name": "luna",
        "state": "idle",
        "since": NOW - 120_000,
        "present": True,
        "unread": 0,
        "role": "worker",
        "harness": None,
        "detail": None,
        "recent": [],
    }
    return {**view, **fields}


def sent(*read_by: str, text: str = "hello", total: int = 3) -> dict[str, object]:
    return {"seq": 42, "ts": NOW - 120_000, "text": text, "read_by": list(read_by), "total": total}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "idle"),
        ({"present": False}, "idle (away)"),
        ({"present": False, "left": True, "state": "exited"}, "exited"),
        ({"state": "active", "stale": True}, "active (stale 2m)"),
    ],
)
def test_a_state_says_what_lets_one_doubt_it(fields: dict[str, object], words: str) -> None:
    assert state_words(agent(**fields), NOW) == words


def test_a_short_table_has_a_line_for_each_agent_and_no_receipts() -> None:
    views = [agent(recent=[sent("nova")], unread=2), agent(name="nova", harness="claude")]

    lines = agent_table(views, NOW, is_verbose=False, width=80, paint=PLAIN)

    assert lines == [
        "NAME  STATUS  FOR  UNREAD  ROLE    HARNESS",
        "luna  idle     2m       2  worker",
        "nova  idle     2m          worker  claude",
    ]


def test_a_verbose_table_has_below_each_agent_who_has_read_what_it_wrote() -> None:
    views = [agent(recent=[sent("nova", "kira")], pid=7, detail="tests"), agent(name="nova")]

    lines = agent_table(views, NOW, is_verbose=True, width=80, paint=PLAIN)

    assert lines == [
        "NAME  STATUS  FOR  UNREAD  ROLE    HARNESS  PID  DETAIL",
        "luna  idle     2m          worker             7  tests",
        '    #42(2m): "hello" read by nova, kira [2/3]',
        "nova  idle     2m          worker",
    ]


def test_what_nobody_has_read_says_so() -> None:
    assert recent_lines([sent()], NOW, width=80, paint=PLAIN) == ['    #42(2m): "hello" read by nobody [0/3]']


def test_a_long_text_is_cut_at_thirty_characters_and_stands_on_one_line() -> None:
    (line,) = recent_lines([sent("nova", text="one\ntwo\x1b[2J " + "x" * 50)], NOW, width=None, paint=PLAIN)

    assert line == '    #42(2m): "one two␛[2J ' + "x" * 17 + '…" read by nova [1/3]'


@given(
    st.integers(40, 120),
    st.lists(st.text(max_size=20), max_size=9),
    st.text(max_size=60),
    st.integers(0, 10**6),
)
def test_receipts_fit_the_terminal_and_keep_their_count(
    width: int, names: list[str], text: str, total: int
) -> None:
    (line,) = recent_lines([sent(*names, text=text, total=total)], NOW, width=width, paint=PLAIN)

    assert line.endswith(f" [{len(names)}/{total}]")
    assert display_width(line) <= max(width, 80)
    assert not any(char < " " for char in line)


def test_at_eighty_columns_a_stale_state_is_whole() -> None:
    view = agent(name="api-nova", state="active", stale=True, pid=123456, harness="claude", detail="x" * 60)

    lines = agent_table([view], NOW, is_verbose=True, width=80, paint=PLAIN)

    assert "active (stale 2m)" in lines[1]
    assert all(display_width(line) <= 80 for line in lines)
