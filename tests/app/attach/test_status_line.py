"""The status line of an agent: it fits every width."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.app.attach.screen import WAITS, AgentStatus, role_and_folder, status_line, why_waiting
from palaver.protocol.display import display_width
from palaver.terminal.gates import REASONS

STANDINGS = st.builds(
    AgentStatus,
    name=st.text(max_size=12),
    state=st.sampled_from(["starting", "active", "idle", "blocked", "exited"]),
    detail=st.text(max_size=12),
    keyboard=st.sampled_from(["free", "own", "other"]),
    queue=st.dictionaries(st.sampled_from(["interrupt", "normal", "held"]), st.integers(0, 99)),
    is_paused=st.booleans(),
    is_away=st.booleans(),
    gate=st.sampled_from(["", "dialog", "native", "something\x1bnew"]),
    lanes=st.dictionaries(st.sampled_from(["native", "hook"]), st.sampled_from(["", "closed"])),
    role_and_folder=st.sampled_from(["", "worker in ~/src"]),
)
BUSY = AgentStatus(
    "luna", "blocked", "permission", queue={"interrupt": 1, "normal": 0, "idle": 2, "held": 1}, is_paused=True
)


@given(
    STANDINGS,
    st.sampled_from(["input", "passthrough, queue paused"]),
    st.text(max_size=40),
    st.integers(1, 120),
)
def test_line_is_never_wider_than_the_terminal_and_has_no_controls(
    standing: AgentStatus, mode: str, notice: str, width: int
) -> None:
    line = status_line(standing, mode, notice, width, "a hint")

    assert display_width(line) <= width
    assert not any(sign in line for sign in "\x1b\x9b\r\n")


def test_wide_line_contains_everything() -> None:
    line = status_line(BUSY, "input", "", 100, "Ctrl-\\ menu")

    assert line.startswith(
        " luna | blocked: permission | paused | queue 4: 1 interrupt, 2 idle, 1 held | input"
    )
    assert line.endswith("Ctrl-\\ menu ")


def test_narrow_line_drops_hint_then_counts_then_reason_then_queue() -> None:
    widths = (80, 52, 40, 21, 12)

    lines = [status_line(BUSY, "passthrough, queue paused", "", width, "Ctrl-\\ menu") for width in widths]

    assert lines == [
        " luna | blocked: permission | paused | queue 4 | passthrough, queue paused",
        " luna | blocked | paused | queue 4 | passthrough",
        " luna | blocked | paused | passthrough",
        " luna | blocked",
        "luna",
    ]


def test_line_shows_how_many_entries_wait_for_the_person() -> None:
    one, two = (AgentStatus("luna", "idle", attention=number) for number in (1, 2))

    assert status_line(one, "input", "", 80) == " luna | idle | 1 needs you | input"
    assert status_line(two, "input", "", 80) == " luna | idle | 2 need you | input"
    assert "need" not in status_line(replace(two, is_away=True), "input", "", 80)


def test_notice_has_precedence() -> None:
    assert status_line(BUSY, "input", "no", 80) == " luna | blocked: permission | paused | ! no"
    assert status_line(BUSY, "input", "this is not possible now", 30) == " ! this is not possible now"
    assert status_line(BUSY, "input", "this is not possible now", 10) == "! this is…"


def test_unknown_values_are_left_out() -> None:
    assert status_line(AgentStatus("luna"), "input", "", 80) == " luna | starting | input"


def test_missing_bus_and_taken_keyboard_are_shown() -> None:
    standing = AgentStatus("luna", "idle", keyboard="other", is_away=True, queue={"normal": 0})

    assert (
        status_line(standing, "input", "", 80)
        == " luna | idle | bus away | keyboard elsewhere | queue 0 | input"
    )


WAITING = {"normal": 1}


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        (AgentStatus("luna", "idle", gate="dialog"), ""),
        (AgentStatus("luna", "idle", gate="dialog", queue=WAITING), "a dialog is open"),
        (AgentStatus("luna", "idle", gate="odd", queue=WAITING), "odd"),
        (AgentStatus("luna", "idle", gate="dialog", queue=WAITING, is_away=True), ""),
        (AgentStatus("luna", "idle", gate="dialog", queue=WAITING, is_paused=True), ""),
        (AgentStatus("luna", "active", queue=WAITING), ""),
        (AgentStatus("luna", "active", queue={"idle": 1, "held": 1}), "until it is idle"),
        (AgentStatus("luna", "idle", queue={"idle": 1}), ""),
        (AgentStatus("luna", "idle", queue={"held": 1}), "'pal receipts' says why"),
        (AgentStatus("luna", "idle", gate="native", queue=WAITING, lanes={"native": ""}), ""),
        (AgentStatus("luna", "idle", gate="native", queue=WAITING, lanes={"native": "paced"}), "paced"),
        (AgentStatus("luna", "idle", gate="draft", queue=WAITING, lanes={"native": "x"}), WAITS["draft"]),
        (AgentStatus("luna", "idle", gate="native", queue=WAITING), WAITS["native"]),
        (AgentStatus("luna", gate="passthrough", queue=WAITING, keyboard="own"), "you have the keyboard"),
        (AgentStatus("luna", gate="passthrough", queue=WAITING, keyboard="other"), WAITS["passthrough"]),
    ],
)
def test_line_says_why_messages_wait(standing: AgentStatus, why: str) -> None:
    assert why_waiting(standing) == why
    assert (f"(waits: {why})" in status_line(standing, "input", "", 120)) is bool(why)


def test_every_reason_of_a_gate_has_words() -> None:
    assert WAITS.keys() == {*REASONS, "native"}


def test_reason_is_kept_longer_than_the_counts() -> None:
    standing = AgentStatus("luna", "blocked", queue={"interrupt": 1, "idle": 2}, gate="dialog")

    assert (
        status_line(standing, "input", "", 60)
        == " luna | blocked | queue 3 (waits: a dialog is open) | input"
    )
    assert status_line(standing, "input", "", 40) == " luna | blocked | queue 3 | input"


def test_role_and_folder_are_dropped_before_the_hint() -> None:
    standing = AgentStatus("luna", "idle", queue={"normal": 0}, role_and_folder="worker in ~/src")

    wide = status_line(standing, "input", "", 80, "Ctrl-\\ menu")
    narrow = status_line(standing, "input", "", 50, "Ctrl-\\ menu")

    assert wide.startswith(" luna | idle | queue 0 | input | worker in ~/src ")
    assert wide.endswith("Ctrl-\\ menu ")
    assert narrow == " luna | idle | queue 0 | input        Ctrl-\\ menu "


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("", "worker"),
        ("/home/ana", "worker in ~"),
        ("/home/ana/src", "worker in ~/src"),
        ("/home/anabel/src", "worker in /home/anabel/src"),
        ("/srv/a long folder name/and another/project", "worker in …/and another/project"),
        ("/srv/a\x1b[2J", "worker in /srv/a␛[2J"),
        (f"/{'x' * 40}", f"worker in /{'x' * 40}"),
    ],
)
def test_folder_is_shown_shortly(folder: str, expected: str) -> None:
    assert role_and_folder("worker", folder, "/home/ana") == expected
