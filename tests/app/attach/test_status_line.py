"""The status line of an agent: it fits every width."""

from hypothesis import given
from hypothesis import strategies as st

from palaver.app.attach.screen import AgentStatus, status_line
from palaver.protocol.display import display_width

STANDINGS = st.builds(
    AgentStatus,
    name=st.text(max_size=12),
    state=st.sampled_from(["starting", "active", "idle", "blocked", "exited"]),
    detail=st.text(max_size=12),
    keyboard=st.sampled_from(["free", "own", "other"]),
    queue=st.dictionaries(st.sampled_from(["interrupt", "normal", "held"]), st.integers(0, 99)),
    is_paused=st.booleans(),
    is_away=st.booleans(),
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
