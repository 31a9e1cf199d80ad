"""The child process of a holder: its environment, and that it never starts without its holder."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.harness.marks import MARKS
from palaver.holder.launch import (
    SESSION_VARIABLES,
    WINDOW_VARIABLES,
    Program,
    clean_environment,
    failure_from_bytes,
    let_go,
    prepare,
)
from palaver.terminal.pty import Exit, Pty

NAMES = st.sampled_from(
    [
        *sorted(SESSION_VARIABLES | WINDOW_VARIABLES),
        "PALAVER_SEAT",
        "PALAVER_X",
        "PATH",
        "TERM",
        "COLUMNS",
        "EDITOR",
    ]
)


@given(st.dictionaries(NAMES, st.text(max_size=5)))
def test_environment_of_another_agent_session_or_window_is_removed(environment: dict[str, str]) -> None:
    kept = clean_environment(environment, "/home/x/.palaver")

    assert {name for name in kept if name.startswith("PALAVER_")} == {"PALAVER_HOME"}
    assert kept["PALAVER_HOME"] == "/home/x/.palaver"
    assert not (SESSION_VARIABLES | WINDOW_VARIABLES) & set(kept)
    assert kept.get("EDITOR") == environment.get("EDITOR")
    assert kept.get("PATH") == environment.get("PATH")


def test_every_mark_of_a_harness_is_a_session_variable() -> None:
    assert set(MARKS) <= SESSION_VARIABLES


def test_window_variables_of_the_caller_are_removed() -> None:
    outer = {"TMUX": "/tmp/tmux", "TMUX_PANE": "%1", "TERM_PROGRAM": "x", "AI_AGENT": "y", "CODEX_HOME": "/c"}

    assert set(clean_environment(outer, "/h")) == {"CODEX_HOME", "PALAVER_HOME", "TERM"}


@pytest.mark.parametrize(("term", "expected"), [("screen", "screen"), ("dumb", "xterm-256color")])
def test_terminal_type_is_inherited_unless_it_is_dumb(term: str, expected: str) -> None:
    assert clean_environment({"TERM": term}, "/x")["TERM"] == expected


def exit_of(status: int) -> Exit:
    """Convert the wait status of an ended process."""
    code = os.waitstatus_to_exitcode(status)
    return Exit(None, -code) if code < 0 else Exit(code)


def run(program: Program, seat: str | None) -> tuple[bytes, Exit, bytes]:
    """Start a child, release it or not, and return its output, its exit and its failure report."""
    pty, slave = Pty.open(80, 24)
    waiting = prepare(program, slave)
    os.close(slave)
    if seat is None:
        os.close(waiting.go)
    else:
        let_go(waiting, seat)
    with open(waiting.failure, "rb") as file:
        failure = file.read()
    _, status = os.waitpid(waiting.pid, 0)
    os.set_blocking(pty.master, True)
    output = b""
    try:
        while piece := os.read(pty.master, 4096):
            output += piece
    except OSError:
        pass
    pty.close()
    return output, exit_of(status), failure


def program(*words: str, cwd: Path = Path("/")) -> Program:
    return Program(
        argv=tuple(map(os.fsencode, words)),
        cwd=os.fsencode(cwd),
        environment=(b"PATH=/usr/bin:/bin", b"A=b=c", b"odd"),
    )


def test_released_child_has_its_seat() -> None:
    output, ended, failure = run(program("sh", "-c", "echo $PALAVER_SEAT $A; exit 3"), "mark")

    assert output == b"mark b=c\r\n"
    assert ended == Exit(3)
    assert failure == b""
    assert failure_from_bytes(failure) is None


def test_child_without_a_holder_never_starts(tmp_path: Path) -> None:
    output, ended, _ = run(program("touch", str(tmp_path / "started")), None)

    assert output == b""
    assert ended == Exit(126)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("words", "number", "status"),
    [(("/no/such/thing",), errno.ENOENT, 127), (("/etc/passwd",), errno.EACCES, 126)],
)
def test_program_that_cannot_run_reports_the_error(words: tuple[str, ...], number: int, status: int) -> None:
    _, ended, failure = run(program(*words), "mark")

    assert ended == Exit(status)
    found = failure_from_bytes(failure)
    assert found is not None
    assert found.errno == number


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    _, _, failure = run(program("true", cwd=tmp_path / "gone"), "mark")

    assert str(failure_from_bytes(failure)) == f"[Errno {errno.ENOENT}] No such file or directory"


def test_child_killed_while_waiting_can_still_be_released() -> None:
    pty, slave = Pty.open(80, 24)
    waiting = prepare(program("true"), slave)
    os.close(slave)
    os.kill(waiting.pid, 9)
    _, status = os.waitpid(waiting.pid, 0)

    let_go(waiting, "mark")

    assert exit_of(status) == Exit(None, 9)
    os.close(waiting.failure)
    pty.close()
