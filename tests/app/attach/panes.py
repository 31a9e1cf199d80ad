"""A person at a terminal, played by tmux: keys go in, the visible screen comes out."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.daemon.stage import Home, wait_until
from tests.limits import LIMIT_S


class Pane:
    """One terminal with a shell in it."""

    def __init__(self, home: Home, cols: int = 80, rows: int = 24) -> None:
        self.home = home
        self._socket = home.path.parent / "tmux.sock"
        size = ["-x", str(cols), "-y", str(rows)]
        environment = {**home.environment, "TERM": "xterm-256color"}
        self._environment = environment
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "bash --norc --noprofile")
        self._tmux("set", "-g", "status", "off")
        self._tmux("resize-window", *size)
        self.type("PS1='$ '; clear; echo at the shell")
        self.keys("Enter")
        self.until("at the shell\n$")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self._socket), *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, timeout=LIMIT_S, check=True, text=True
        )
        return done.stdout

    def keys(self, *keys: str) -> None:
        """Press keys by name, or type words."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type a text literally."""
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """Paste a text like a terminal: bracketed if the program requested it."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, cols: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def take_clipboard(self) -> None:
        """Accept a text for the clipboard from programs in the terminal."""
        self._tmux("set", "-g", "set-clipboard", "on")

    @property
    def clipboard(self) -> str:
        """The text that a program has put on the clipboard; empty without one."""
        return self._tmux("show-buffer") if self._tmux("list-buffers") else ""

    @property
    def lines(self) -> list[str]:
        """Return the visible rows."""
        return self._tmux("capture-pane", "-p").split("\n")[:-1]

    def flag(self, word: str) -> str:
        """Return a tmux variable of the terminal: `alternate_on`, `mouse_any_flag`, `cursor_y`."""
        return self._tmux("display", "-p", f"#{{{word}}}").strip()

    def until(self, *texts: str) -> list[str]:
        """Poll until all of these texts are visible; return the rows."""
        lines: list[str] = []

        def are_shown() -> bool:
            lines[:] = self.lines
            return all(text in "\n".join(lines) for text in texts)

        try:
            wait_until(are_shown)
        except AssertionError:
            pytest.fail(f"{texts} was not to be seen in:\n" + "\n".join(lines))
        return lines

    def until_row(self, row: int, text: str) -> None:
        """Poll until a row begins with this text; a negative row is counted from the end."""
        try:
            wait_until(lambda: self.lines[row].startswith(text))
        except AssertionError:
            pytest.fail(f"{text!r} did not begin row {row} of:\n" + "\n".join(self.lines))

    def run(self, *words: str, then: str = "") -> None:
        """Have the shell run a command."""
        self.type(f"clear; {shlex.join(words)}{then}")
        self.keys("Enter")

    def close(self) -> None:
        with open(os.devnull, "w") as nowhere:
            subprocess.run(
                ["tmux", "-S", str(self._socket), "kill-server"], stderr=nowhere, timeout=LIMIT_S, check=False
            )


@contextmanager
def open_pane(home: Home, cols: int = 80, rows: int = 24) -> Iterator[Pane]:
    """Yield a terminal; without tmux, skip the test with a conspicuous message."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing: NOBODY HAS LOOKED AT THE ATTACH SCREEN in this run")
    pane = Pane(home, cols, rows)
    try:
        yield pane
    finally:
        pane.close()


PROGRAMS = Path(__file__).parents[2] / "holder" / "programs"
