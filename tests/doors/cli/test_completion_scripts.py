"""Completion scripts in real shells, typed on a real terminal.

The `pal` of these tests serves `__complete` with the real table and fixed names. For any other call it writes
its arguments into a pipe, so a test sees the command that the shell would have run.
"""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

from palaver.doors.cli.completion import SHELLS, completion_script

PAL = """#!/bin/sh
"exec" "{python}" "$0" "$@"
import json, os, sys
sys.path.insert(0, {src!r})
if sys.argv[1:3] == ["__complete", "--"]:
    from palaver.doors.cli.completion import complete
    from palaver.doors.cli.run import TABLE
    if os.path.exists({down!r}):
        sys.exit("pal: the bus is not running")
    names = {{"agents": ["luna\\tclaude, idle", "api-nova"], "threads": ["pr-123", "$(touch$IFS$9x)"]}}
    print(*complete(TABLE, sys.argv[3:], lambda kind: names.get(kind, [])), sep="\\n")
else:
    with open({answers!r}, "w") as answers:
        answers.write(json.dumps(sys.argv[1:]) + "\\n")
"""

START = {
    "bash": ("dumb", ["bash", "--norc", "--noprofile", "-i"]),
    "zsh": ("dumb", ["zsh", "-f", "-i"]),
    "fish": ("xterm", ["fish", "--no-config", "-i"]),
}
# The prompt is assembled from two pieces, so that the echo of this line does not match it.
PREPARE = {
    "bash": "PS1='pal-is-'; PS1+='ready '; source ./script",
    "zsh": "autoload -Uz compinit && compinit -u -d ./dump; PS1='pal-is-'; PS1+='ready '; source ./script",
    "fish": "function fish_prompt; echo -n pal-is-; echo -n 'ready '; end; source ./script",
}
# pty.fork is unsafe here: a process with threads must not fork and continue in Python.
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
KILL_LINE = "\x15"


class Terminal:
    """One interactive shell on a pseudo-terminal, with the completion script loaded."""

    def __init__(self, shell: str, folder: Path) -> None:
        term, argv = START[shell]
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": term,
            "LANG": "C.UTF-8",
        }
        self.down = folder / "down"
        self.screen = b""
        self._answers = os.open(folder / "answers", os.O_RDWR)
        self._terminal, inner = pty.openpty()
        self._shell = subprocess.Popen(
            [sys.executable, "-I", "-c", OWN_TERMINAL, *argv],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(inner)
        self._type(PREPARE[shell] + "\r")
        self._read_until(self._terminal, b"pal-is-ready")

    def run(self, keys: str) -> list[str]:
        """Type keys and Enter, and return the arguments with which the shell called pal."""
        self.screen = b""
        self._type(KILL_LINE + keys + "\r")
        found: object = json.loads(self._read_until(self._answers, b"\n"))
        assert isinstance(found, list)
        return found

    def close(self) -> None:
        os.close(self._answers)
        os.close(self._terminal)
        self._shell.kill()
        self._shell.wait(LIMIT_S)

    def _type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def _read_until(self, source: int, end: bytes) -> bytes:
        seen = b""
        while end not in seen:
            ready, _, _ = select.select({source, self._terminal}, [], [], LIMIT_S)
            assert ready, f"the shell said nothing more than {self.screen[-2000:]!r}"
            for one in ready:
                data = os.read(one, 65536)
                self.screen += data if one == self._terminal else b""
                seen += data if one == source else b""
        return seen


@pytest.fixture(scope="module", params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Open each shell in turn; all must behave the same."""
    shell: str = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completion script is NOT tested here")
    folder = tmp_path_factory.mktemp(shell)
    os.mkfifo(folder / "answers")
    (folder / "notes.txt").touch()
    (folder / "folder").mkdir()
    program = folder / "pal"
    program.write_text(
        PAL.format(
            python=sys.executable,
            src=str(Path(__file__).resolve().parents[3] / "src"),
            answers=str(folder / "answers"),
            down=str(folder / "down"),
        )
    )
    program.chmod(0o755)
    (folder / "script").write_text(completion_script(shell))
    opened = Terminal(shell, folder)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("keys", "argv"),
    [
        ("pal doc\t", ["doctor"]),
        ("pal status se\tidle", ["status", "set", "idle"]),
        ("pal send @lu\thello", ["send", "@luna", "hello"]),
        ("pal send @api-n\thello", ["send", "@api-nova", "hello"]),
        ("pal send lu\thello", ["send", "luna", "hello"]),
        ("pal send --inten\trequ\t@lu\thi", ["send", "--intent", "request", "@luna", "hi"]),
        ("pal send --thread=pr\t@luna hi", ["send", "--thread=pr-123", "@luna", "hi"]),
        ("pal send --as=lu\t@human hi", ["send", "--as=luna", "@human", "hi"]),
        ("pal send 'two words' @lu\thi", ["send", "two words", "@luna", "hi"]),
        ("pal --json rece\t42", ["--json", "receipts", "42"]),
        ("pal completion ba\t", ["completion", "bash"]),
        ("pal send @luna --file no\thi", ["send", "@luna", "--file", "notes.txt", "hi"]),
        ("pal send @luna --file=no\thi", ["send", "@luna", "--file=notes.txt", "hi"]),
        ("pal --home fol\t\b list", ["--home", "folder", "list"]),
    ],
)
def test_tab_completes_the_word_at_the_cursor(terminal: Terminal, keys: str, argv: list[str]) -> None:
    assert terminal.run(keys) == argv


def test_thread_that_a_shell_would_expand_is_not_offered(terminal: Terminal) -> None:
    assert terminal.run("pal send --thread \t@luna hi") == ["send", "--thread", "pr-123", "@luna", "hi"]


def test_text_after_a_double_dash_is_not_completed(terminal: Terminal) -> None:
    assert terminal.run("pal send @luna -- @ap\t") == ["send", "@luna", "--", "@ap"]


def test_tab_does_nothing_and_prints_nothing_without_the_daemon(terminal: Terminal) -> None:
    terminal.down.touch()

    argv = terminal.run("pal doc\t")
    terminal.down.unlink()

    assert argv == ["doc"]
    assert b"not running" not in terminal.screen
