"""A person's terminal: a tmux pane on its own socket, with keys as input and the screen as output."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.stage import Home
from tests.limits import LIMIT_S

HAS_TMUX = shutil.which("tmux") is not None


class Pane:
    """One pane. Keys are typed as a person types them, and waits look at the visible screen."""

    def __init__(self, socket: Path, environment: Mapping[str, str]) -> None:
        self._socket = socket
        self._environment = dict(environment)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), "-f", "/dev/null", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=LIMIT_S,
        )
        return done.stdout.decode()

    def open(self, script: str, columns: int, rows: int) -> None:
        """Start a script in a pane of this size; the pane stays after the script has ended."""
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), script)

    def type(self, text: str) -> None:
        """Press the keys of a text literally."""
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press named keys: Enter, Up, C-d."""
        self._tmux("send-keys", *keys)

    def say(self, line: str) -> None:
        """Type a line and press Enter."""
        self.type(line)
        self.press("Enter")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self, *, with_colours: bool = False) -> list[str]:
        """Return the current screen, line by line; with colours also the blanks at the ends of lines."""
        shown = self._tmux("capture-pane", "-p", *(["-e", "-N"] if with_colours else []))
        return shown.rstrip("\n").split("\n")

    def shows(self, *texts: str) -> list[str]:
        """Wait until every text is on the screen, each within one line. Return the screen."""
        return self.becomes(
            lambda screen: all(any(text in line for line in screen) for text in texts), *texts
        )

    def becomes(self, is_so: Callable[[list[str]], bool], *words: str) -> list[str]:
        """Wait until the screen meets a condition, since a capture may be partial. Return the screen."""
        end = time.monotonic() + LIMIT_S
        while not is_so(screen := self.screen()):
            assert time.monotonic() < end, "\n".join([f"not so ({', '.join(words)}):", *screen])
        return screen

    def close(self) -> None:
        """End the server of this socket, which has only this pane."""
        self._tmux("kill-server")


@contextmanager
def pane(
    home: Home, script: str, *, columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
) -> Iterator[Pane]:
    """Run a script in a pane, at the person's own terminal."""
    environment = {**home.environment, "TERM": "xterm-256color", **(env or {})}
    made = Pane(home.spare_path(), environment)
    made.open(f"{script}; echo ended with $?; exec sleep 60", columns, rows)
    try:
        yield made
    finally:
        made.close()


def in_folder(folder: Path, *words: str) -> str:
    """Return a line of shell that runs `pal` in a folder."""
    return f"cd {shlex.quote(str(folder))} && pal {shlex.join(words)}"
