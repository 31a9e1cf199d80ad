"""The example of `make run`: it uses a temporary home and leaves nothing.

At a terminal it runs until Ctrl-C.
"""

import fcntl
import os
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_exchange.py"


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of a user who has a bus already: its files must stay as they are."""
    folder = tmp_path_factory.mktemp("user")
    (folder / ".palaver").mkdir()
    (folder / ".palaver/config.toml").write_text("hints = 'mine'\n")
    (folder / "tmp").mkdir()
    return folder


def environment(home: Path) -> dict[str, str]:
    path = os.defpath  # without harnesses
    return {"PATH": path, "HOME": str(home), "TMPDIR": str(home / "tmp"), "TERM": "dumb", "LANG": "C.UTF-8"}


def files(home: Path) -> dict[str, bytes]:
    paths = [path for path in home.rglob("*") if path.is_file() or path.is_socket()]
    return {str(path.relative_to(home)): path.read_bytes() if path.is_file() else b"" for path in paths}


def exchange_unwatched(home: Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=4 * LIMIT_S,
        check=True,
    )
    return done.stdout.decode()


def test_example_ends_and_shows_the_answers(home: Path) -> None:
    out = exchange_unwatched(home)

    asked = re.search(r"(demo-\w+) asks in #(\d+)", out)
    answered = re.search(r"(demo-\w+) answers in #(\d+): looked at it: 20 characters", out)
    assert asked
    assert answered
    assert re.search(rf"{answered[1]} +answered .*answered in #{answered[2]}", out)
    assert re.search(rf"{asked[1]} +seen .*sdk, acked", out)


def test_second_agent_gets_the_stick_with_the_handoff_of_the_first(home: Path) -> None:
    out = exchange_unwatched(home)

    passed = re.search(r"(demo-\w+) has the stick, turn 1; (demo-\w+) waits", out)
    assert passed
    assert f"{passed[2]} has it, turn 2, and reads the handoff:\n    status: parser done" in out
    assert re.search(rf"{passed[2]} owns the stick: turn 2", out)


def test_files_of_the_user_are_unchanged_and_nothing_is_left(home: Path) -> None:
    before = files(home)

    out = exchange_unwatched(home)

    used = re.search(r"home (\S+/tmp/pal-demo-\S+)\)", out)
    assert used
    assert files(home) == before
    assert list((home / "tmp").iterdir()) == []


def test_last_line_can_be_pasted(home: Path) -> None:
    last = exchange_unwatched(home).splitlines()[-1]

    pasted = subprocess.run(
        ["bash", "-c", last], env=environment(home), stdout=subprocess.PIPE, timeout=LIMIT_S, check=True
    )

    assert b"Usage: pal COMMAND" in pasted.stdout


def test_last_line_starts_a_harness_that_is_there(home: Path) -> None:
    folder = home / "bin"
    folder.mkdir()
    (folder / "codex").write_text("#!/bin/sh\n")
    (folder / "codex").chmod(0o755)

    done = subprocess.run(
        [sys.executable, EXAMPLE],
        env={**environment(home), "PATH": f"{folder}:{os.defpath}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=4 * LIMIT_S,
        check=True,
    )

    assert done.stdout.endswith(b":$PATH && pal codex\n")


class Terminal:
    """The screen and keyboard of a person."""

    def __init__(self, home: Path, *command: str) -> None:
        self._ours, theirs = os.openpty()
        self.seen = ""

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
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
            self.seen += os.read(self._ours, 65536).decode(errors="replace").replace("\r\n", "\n")

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal(home: Path) -> Iterator[Terminal]:
    made = Terminal(home, sys.executable, str(EXAMPLE))
    yield made
    made.close()


def test_at_a_terminal_the_example_shows_live_events_until_ctrl_c(home: Path, terminal: Terminal) -> None:
    before = files(home)
    terminal.read_until("Ctrl-C ends the demo")
    pasted = re.search(r"^  (PALAVER_HOME=.*)$", terminal.seen, re.MULTILINE)
    assert pasted
    other = Terminal(home, "bash", "-c", pasted[1])
    other.read_until("sent #")
    other.close()
    terminal.read_until("looked at it: 5 char")

    terminal.type(b"\x03")
    terminal.read_until("&& pal help\n")

    assert terminal.process.wait(LIMIT_S) == 0
    assert files(home) == {name: before[name] for name in before if not name.startswith("tmp/")}
