"""Agents and their receipts in text for people."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.doors.cli.agents import long_table, receipt_line, short_table, state_words
from palaver.protocol.display import Paint, display_width
from palaver.services.results import AgentDetails, RecentMessage

PLAIN = Paint(colour=False, is_for_person=True)
NOW = 10_000_000


def agent(**fields: Any) -> AgentDetails:
    usual: dict[str, Any] = {
        "name": "luna",
        "base": "luna",
        "tag": None,
        "role": "worker",
        "harness": None,
        "state": "idle",
        "detail": None,
        "since": NOW - 120_000,
        "joined": 0,
        "present": True,
        "unread": 0,
        "device": "BOXE",
        "last_sent": None,
        "recent": (),
    }
    return AgentDetails(**usual | fields)


def sent(*read_by: str, text: str = "hello", total: int = 3) -> RecentMessage:
    return RecentMessage(seq=42, ts=NOW - 120_000, text=text, read_by=read_by, total=total)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "idle"),
        ({"present": False}, "idle (away)"),
        ({"present": False, "left": True, "state": "exited"}, "exited"),
        ({"state": "active", "stale": True}, "active (stale 2m)"),
        ({"paused": True}, "idle (paused)"),
        ({"asleep": True}, "idle (asleep)"),
        ({"present": False, "paused": True}, "idle (away, paused)"),
        ({"state": "active", "stale": True, "paused": True}, "active (stale 2m, paused)"),
    ],
)
def test_status_shows_away_stale_paused_and_asleep(fields: dict[str, object], words: str) -> None:
    assert state_words(agent(**fields), NOW) == words


def test_short_table_has_a_line_for_each_agent_and_no_empty_columns() -> None:
    views = [agent(unread=2), agent(name="nova", harness="claude")]

    lines = short_table(views, NOW, width=80, paint=PLAIN)

    assert lines == [
        "NAME  STATUS  FOR  UNREAD  HARNESS",
        "luna  idle     2m       2",
        "nova  idle     2m          claude",
    ]


def test_short_table_shows_what_each_agent_does_and_where() -> None:
    folder = f"{Path.home()}/shop"
    views = [
        agent(state="active", tool="Bash", detail="Bash: make test", cwd=folder, rooms=("shop-x7",)),
        agent(name="nova", state="active", detail="thinking", cwd="/srv/" + "deep/" * 9 + "end"),
        agent(name="kira", role="operator", cwd=str(Path.home())),
    ]

    lines = short_table(views, NOW, width=None, paint=PLAIN)

    assert lines == [
        "NAME  STATUS  FOR  UNREAD  ROLE      DOING                  FOLDER                          ROOM",
        "luna  active   2m                    tool: Bash: make test  ~/shop                          shop-x7",
        "nova  active   2m                    thinking               …/deep/deep/deep/deep/deep/end",
        "kira  idle     2m          operator                         ~",
    ]


def test_table_fits_a_narrow_terminal() -> None:
    views = [
        agent(
            state="active",
            tool="Bash",
            detail="Bash: " + "x" * 99,
            cwd="/a/long/folder",
            rooms=("shop-x7",),
        )
    ]

    lines = short_table(views, NOW, width=60, paint=PLAIN)

    assert max(map(display_width, lines)) <= 60
    assert "tool: Bash:" in lines[1]
    assert short_table(views, NOW, width=40, paint=PLAIN)[0] == "NAME  STATUS  FOR  UNREAD  DOING"
    assert short_table(views, NOW, width=20, paint=PLAIN)[0] == "NAME  STATUS  FOR"


def test_long_table_shows_receipts_of_agents_and_of_the_caller() -> None:
    views = [
        agent(recent=(sent("nova", "kira"), sent(text="more")), pid=7, detail="tests"),
        agent(name="nova"),
    ]

    lines = long_table(views, [sent("luna", total=1)], NOW, name="human", width=80, paint=PLAIN)

    assert lines == [
        "NAME   STATUS  UNREAD  RECENT MESSAGES",
        'luna   idle         0  #42(2m): "hello" read by nova, kira [2/3]',
        '                       #42(2m): "more" read by none [0/3]',
        "                       for 2m, worker, process 7, tests",
        "nova   idle         0  for 2m, worker",
        'human  (you)           #42(2m): "hello" read by luna [1/1]',
    ]


def test_caller_without_messages_has_no_line() -> None:
    lines = long_table([agent()], [], NOW, name="human", width=None, paint=PLAIN)

    assert len(lines) == 2


def test_long_text_is_cut_at_thirty_characters_and_kept_on_one_line() -> None:
    line = receipt_line(sent("nova", text="one\ntwo\x1b[2J " + "x" * 50), NOW, None, PLAIN)

    assert line == '#42(2m): "one two␛[2J ' + "x" * 17 + '…" read by nova [1/3]'


def test_many_readers_are_counted() -> None:
    names = [f"agent{number}" for number in range(50)]

    line = receipt_line(sent(*names, total=60), NOW, None, PLAIN)

    assert line.endswith(f"read by {', '.join(names[:10])} and 40 more [50/60]")


def test_narrow_receipt_cuts_text_then_names_but_never_the_count() -> None:
    receipt = sent("nova", "kira", text="can you review this")

    assert receipt_line(receipt, NOW, 46, PLAIN) == '#42(2m): "can you r…" read by nova, kira [2/3]'
    assert receipt_line(receipt, NOW, 40, PLAIN) == '#42(2m): "can you…" read by nova,… [2/3]'


@given(
    st.integers(60, 120),
    st.lists(st.text(max_size=20), max_size=9),
    st.text(max_size=60),
    st.integers(0, 999),
)
def test_receipts_fit_their_width_and_keep_their_count(
    room: int, names: list[str], text: str, total: int
) -> None:
    line = receipt_line(sent(*names, text=text, total=total), NOW, room, PLAIN)

    assert line.endswith(f" [{len(names)}/{total}]")
    assert display_width(line) <= room
    assert not any(char < " " for char in line)


def test_stale_status_and_count_are_complete_at_eighty_columns() -> None:
    view = agent(
        name="api-nova",
        state="active",
        stale=True,
        pid=123456,
        harness="claude",
        detail="x" * 60,
        recent=(sent("luna", "kira", text="can you review this, please?"),),
    )

    lines = long_table([view], [], NOW, name="human", width=80, paint=PLAIN)

    assert "active (stale 2m)" in lines[1]
    assert lines[1].endswith("[2/3]")
    assert all(display_width(line) <= 80 for line in lines)


def test_blocked_agent_shows_its_question() -> None:
    views = [agent(state="blocked", detail="permission: Bash: rm \x1bx"), agent(state="blocked", detail=None)]

    _, asking, silent = short_table(views, NOW, width=120, paint=PLAIN)

    assert asking.endswith("permission: Bash: rm ␛x")
    assert "\x1b" not in asking
    assert "permission" not in silent


def test_sub_agent_below_an_unrelated_agent_is_not_indented() -> None:
    views = [
        agent(),
        agent(name="nova"),
        agent(name="luna_x_2", parent="luna"),
        agent(name="kira"),
        agent(name="kira_x_1", parent="kira"),
        agent(name="kira_x_2", parent="kira"),
    ]

    lines = short_table(views, NOW, width=None, paint=PLAIN)

    shown = [line.split(" idle")[0].rstrip() for line in lines[1:]]
    assert shown == ["luna", "nova", "luna_x_2", "kira", "└ kira_x_1", "└ kira_x_2"]


def test_sub_agents_are_indented_after_their_parents() -> None:
    views = [
        agent(),
        agent(name="luna_x_1", parent="luna"),
        agent(name="luna_x_1_y_1", parent="luna_x_1"),
        agent(name="nova"),
        agent(name="kira_x_1", parent="kira"),
    ]
    expected = ["luna", "└ luna_x_1", "  └ luna_x_1_y_1", "nova", "kira_x_1"]

    short = short_table(views, NOW, width=None, paint=PLAIN)
    long = long_table(views, [], NOW, name="luna", width=None, paint=PLAIN)

    for lines in (short, long):
        assert [line.split(" idle")[0].rstrip() for line in lines[1:]] == expected
