"""Whether a process waits for its terminal: real programs, in every system call they may wait in."""

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.daemon.stage import wait_until
from tests.terminal.test_foreground import in_terminal

from palaver.terminal import processes as waiting
from palaver.terminal.processes import is_waiting, read_readers

PYTHON = (sys.executable, "-I", "-c")


@pytest.mark.parametrize(
    "script",
    [
        "import os; os.read(0, 1)",
        "import os; os.read(os.open('/dev/tty', os.O_RDWR), 1)",
        "import select; select.select([0], [], [])",
        "import select; select.select([0, 1], [], [1], 0)\nwhile 1: select.select([0], [], [], 1)",
        "import select\np = select.poll(); p.register(0, select.POLLIN); p.poll()",
        "import select\np = select.epoll(); p.register(0, select.EPOLLIN); p.poll()",
        "import asyncio, sys\nl = asyncio.new_event_loop(); l.add_reader(0, print); l.run_forever()",
        "import os, threading, time\nthreading.Thread(target=os.read, args=(0, 1)).start(); time.sleep(99)",
        "import os\nos.readv(0, [bytearray(1)])",
    ],
)
def test_process_that_reads_or_polls_its_terminal_waits(script: str) -> None:
    with in_terminal(*PYTHON, script) as (pty, pid):
        wait_until(lambda: is_waiting(pid, pty.path) is True)


@pytest.mark.parametrize(
    "script",
    [
        "import time; time.sleep(99)",
        "import asyncio; asyncio.run(asyncio.sleep(99))",
        "import select, os; r, w = os.pipe(); select.select([r], [], [])",
        "import select, os\nr, w = os.pipe(); p = select.poll(); p.register(r, 1); p.register(0, 4); p.poll()"
        "\nwhile 1: p.unregister(0) or p.poll()",
        "import os; r, w = os.pipe(); os.read(r, 1)",
        "import signal; signal.pause()",
    ],
)
def test_process_that_waits_for_something_else_does_not_wait(script: str) -> None:
    with in_terminal(*PYTHON, f"import sys; sys.stdout.write('on'); sys.stdout.flush()\n{script}") as (
        pty,
        pid,
    ):
        wait_until(lambda: _has_shown(pty.master))
        wait_until(lambda: _state(pid) == "S")

        assert is_waiting(pid, pty.path) is False


def test_process_that_reads_another_terminal_does_not_wait_for_this_one() -> None:
    with in_terminal("cat") as (pty, pid):
        wait_until(lambda: is_waiting(pid, pty.path) is True)

        assert is_waiting(pid, "/dev/pts/999999") is False


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import select\np = select.poll(); p.register(0, select.POLLIN); p.poll()", None),
        ("import os; os.read(0, 1)", True),
    ],
)
def test_poll_of_a_process_that_was_stopped_cannot_be_judged(script: str, *, expected: bool | None) -> None:
    with in_terminal(*PYTHON, script) as (pty, pid):
        wait_until(lambda: is_waiting(pid, pty.path) is True)
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _state(pid) == "T")

        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: _state(pid) == "S")
        readers = read_readers(pty, pid)

        assert is_waiting(pid, pty.path) is expected
        assert readers.is_waiting is expected
        # An unknown process counts as one that may read: as a tool, it still closes the gate.
        assert {one for one, _ in readers.waiting | readers.hidden} == {pid}


def test_ended_process_does_not_wait() -> None:
    assert is_waiting(2**22 + 1, "/dev/pts/0") is False


def test_result_is_unknown_if_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_terminal("cat") as (pty, pid):
        monkeypatch.setattr(waiting, "_read_or_none", lambda _path: None)

        assert is_waiting(pid, pty.path) is None
        monkeypatch.setattr(waiting, "_CALLS", {})
        assert is_waiting(pid, pty.path) is None


def _has_shown(master: int) -> bool:
    try:
        return bool(os.read(master, 100))
    except BlockingIOError:
        return False


def _state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(") ")[2][0]
