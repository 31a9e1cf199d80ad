"""The processes that read a terminal, and the descendants of a process, from real programs."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.daemon.stage import wait_until
from tests.limits import LIMIT_S

from palaver.terminal.gates import Foreground
from palaver.terminal.processes import Readers, children, descendants, read_readers
from palaver.terminal.pty import Pty

TAKE = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "


@contextmanager
def in_terminal(*command: str) -> Iterator[tuple[Pty, int]]:
    """Run a program in a terminal; yield the terminal and the process id."""
    pty, slave = Pty.open(80, 24)
    words = [sys.executable, "-I", "-c", f"{TAKE}import os; os.execvp(sys.argv[1], sys.argv[1:])", *command]
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        wait_until(lambda: pty.foreground() == process.pid)
        yield pty, process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)
        pty.close()


def test_started_program_is_the_reader() -> None:
    with in_terminal("cat") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.AGENT)


def test_plain_shell_is_recognised() -> None:
    with in_terminal("bash", "--norc", "--noprofile", "-i") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.SHELL)


def test_another_foreground_group_is_another_program() -> None:
    with in_terminal("bash", "--norc", "--noprofile", "-i") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.SHELL)

        os.write(pty.master, b"cat\r")

        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.OTHER)


def test_stopped_program_is_not_a_reader() -> None:
    with in_terminal("cat") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.AGENT)

        os.kill(pid, signal.SIGSTOP)

        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.GONE)


def test_program_that_takes_keys_as_commands_is_recognised() -> None:
    with in_terminal("bash", "-c", "exec -a more cat") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid).takes_commands)

        assert not read_readers(pty, pid, is_asked=False).takes_commands


def test_terminal_without_processes_has_no_reader() -> None:
    pty, slave = Pty.open(80, 24)
    os.close(slave)

    assert read_readers(pty, 1, is_asked=False).foreground is Foreground.GONE
    pty.close()


def test_descendants_of_a_process_are_found() -> None:
    with subprocess.Popen(["sh", "-c", "cat; true"], stdin=subprocess.PIPE) as shell:
        wait_until(lambda: bool(children(shell.pid)))

        (below,) = children(shell.pid)

        assert {shell.pid, below} <= set(descendants(os.getpid()))
        assert children(below) == []


def test_ended_process_has_no_children() -> None:
    assert children(2**22 + 1) == []


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "exec -a claude bash --norc --noprofile"],
        ["bash", "--norc", "--noprofile", "-xO", "extglob"],
        ["bash", "--norc", "--noprofile", "-eo", "pipefail"],
        ["script", "-q", "/dev/null"],
    ],
)
def test_shell_in_any_form_is_a_shell(command: list[str]) -> None:
    with in_terminal(*command) as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.SHELL)


def test_waiting_is_reported_only_for_the_agent_and_on_request() -> None:
    with in_terminal("cat") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid).is_waiting is True)

        assert read_readers(pty, pid, is_asked=False).is_waiting is None
        assert read_readers(pty, pid + 1) == Readers(Foreground.OTHER, is_waiting=None)


def test_sleeping_process_does_not_wait_for_input() -> None:
    with in_terminal("sleep", "99") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid).is_waiting is False)


SPAWN = "import pty, sys; pty.spawn(sys.argv[1:])"


@pytest.mark.parametrize("is_asked", [True, False])
def test_shell_in_an_inner_terminal_of_the_front_program_is_a_shell(is_asked: bool) -> None:
    with in_terminal(sys.executable, "-I", "-c", SPAWN, "bash", "--norc", "--noprofile") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=is_asked).foreground is Foreground.SHELL)


def test_one_command_in_an_inner_terminal_is_a_tool() -> None:
    with in_terminal(sys.executable, "-I", "-c", SPAWN, "bash", "-c", "sleep 99; true") as (pty, pid):
        wait_until(lambda: any(map(children, children(pid))))

        assert read_readers(pty, pid, is_asked=False).foreground is Foreground.AGENT


TOOL = "import subprocess as s; p = s.Popen(['bash', '-i'], stdin=s.PIPE, start_new_session=True); input()"


def test_shell_of_a_tool_without_a_terminal_does_not_matter() -> None:
    with in_terminal(sys.executable, "-I", "-c", TOOL) as (pty, pid):
        wait_until(lambda: bool(children(pid)))

        assert read_readers(pty, pid).foreground is Foreground.AGENT


def test_shell_in_an_unrelated_terminal_does_not_matter() -> None:
    shell = ("bash", "--norc", "--noprofile", "-i")
    with in_terminal(*shell) as (other, other_pid), in_terminal("cat") as (pty, pid):
        wait_until(lambda: read_readers(other, other_pid).foreground is Foreground.SHELL)

        wait_until(lambda: read_readers(pty, pid).foreground is Foreground.AGENT)


def test_copy_of_a_shell_is_a_shell_whatever_its_name(tmp_path: Path) -> None:
    copy = shutil.copy(Path("/bin/bash"), tmp_path / "mysh")

    with in_terminal(str(copy), "--norc", "--noprofile") as (pty, pid):
        wait_until(lambda: read_readers(pty, pid, is_asked=False).foreground is Foreground.SHELL)
