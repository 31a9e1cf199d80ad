"""The example of `make run`: without a terminal it ends and leaves nothing; at a terminal it runs until
Ctrl-C.
"""

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_exchange.py"
PAL = str(Path(sys.executable).with_name("pal"))


@pytest.fixture
def home() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="pal-"))
    yield directory
    with suppress(OSError, ValueError):
        os.kill(daemon_of(directory), signal.SIGKILL)
    wait_until_gone(directory)
    shutil.rmtree(directory, ignore_errors=True)  # an ending process may still write there


def daemon_of(home: Path) -> int:
    return int((home / "daemon.lock").read_text())


def wait_until_gone(home: Path) -> None:
    with suppress(ProcessLookupError, FileNotFoundError):
        daemon = os.pidfd_open(daemon_of(home))
        ready, _, _ = select.select([daemon], [], [], LIMIT_S)
        os.close(daemon)
        assert ready


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PALAVER_HOME": str(home), "TERM": "dumb"}


def exchange_unwatched(home: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=2 * LIMIT_S,
        check=True,
    )
    return done.stdout.decode()


def test_without_a_terminal_the_example_ends_and_leaves_nothing(home: Path) -> None:
    out = exchange_unwatched(home)

    asked = re.search(r"(demo-\w+) asks in #(\d+)", out)
    answered = re.search(r"(demo-\w+) answers in #(\d+): looked at it: 20 characters", out)
    assert asked
    assert answered
    assert re.search(rf"{answered[1]} +answered .*answered in #{answered[2]}", out)
    assert re.search(rf"{asked[1]} +seen .*sdk, acked", out)
    assert not (home / "down").exists()
    wait_until_gone(home)


def test_second_agent_gets_the_stick_with_the_handoff_of_the_first(home: Path) -> None:
    out = exchange_unwatched(home)

    passed = re.search(r"(demo-\w+) has the stick, turn 1; (demo-\w+) waits", out)
    assert passed
    assert f"{passed[2]} has it, turn 2, and reads the hand-over:\n    status: parser done" in out
    assert re.search(rf"{passed[2]} holds the stick: turn 2", out)


def test_example_can_run_again_in_the_same_home(home: Path) -> None:
    exchange_unwatched(home)

    assert "answers in" in exchange_unwatched(home)


def test_running_bus_is_left_running(home: Path) -> None:
    subprocess.run([PAL, "up"], env=environment(home), check=True, timeout=LIMIT_S)
    before = daemon_of(home)

    out = exchange_unwatched(home)

    assert "$ pal up" in out
    assert daemon_of(home) == before
    os.kill(before, 0)


class Terminal:
    """The screen and keyboard of a person."""

    def __init__(self, home: Path) -> None:
        self._ours, theirs = os.openpty()
        self.seen = ""

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, EXAMPLE],
            env=environment(home),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            ready, _, _ = select.select([self._ours], [], [], 2 * LIMIT_S)
            assert ready, self.seen
            self.seen += os.read(self._ours, 65536).decode(errors="replace")

    def read_what_is_there(self) -> None:
        while select.select([self._ours], [], [], 0)[0]:
            self.seen += os.read(self._ours, 65536).decode(errors="replace")

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    made = Terminal(home)
    yield made
    made.close()


def test_at_a_terminal_the_example_shows_live_events_until_ctrl_c(home: Path, terminal: Terminal) -> None:
    terminal.read_until("answers in")
    terminal.read_until("Ctrl-C ends this")
    command = [PAL, "send", "@human", "--", "are you watching?"]
    while "are you watching?" not in terminal.seen:  # messages sent before it follows are not shown
        subprocess.run(command, env=environment(home), stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
        terminal.read_what_is_there()

    terminal.type(b"\x03")

    assert terminal.process.wait(LIMIT_S) == 0
    os.kill(daemon_of(home), 0)
