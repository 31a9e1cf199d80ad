"""A person's terminal: a pane of tmux on a socket of its own, with keys in and what is on the screen out."""

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
    """One pane. What is typed is typed as a person does; what is awaited is what the person would see."""

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
        """Start a script in a pane of this size; the pane stays when the script has ended."""
        self._tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), script)

    def type(self, text: str) -> None:
        """Press the keys of a text, as they are."""
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press keys that have names: Enter, Up, C-d."""
        self._tmux("send-keys", *keys)

    def say(self, line: str) -> None:
        """Type a line and send it off."""
        self.type(line)
        self.press("Enter")

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self, *, with_colours: bool = False) -> list[str]:
        """What stands there now, line by line."""
        shown = self._tmux("capture-pane", "-p", *(["-e"] if with_colours else []))
        return shown.rstrip("\n").split("\n")

    def shows(self, *texts: str) -> list[str]:
        """Look until all of these stand on the screen, each within one line; give the screen."""
        return self.becomes(
            lambda screen: all(any(text in line for line in screen) for text in texts), *texts
        )

    def becomes(self, is_so: Callable[[list[str]], bool], *words: str) -> list[str]:
        """Look until the screen is so, for a look may fall into the middle of a drawing; give the screen."""
        end = time.monotonic() + LIMIT_S
        while not is_so(screen := self.screen()):
            assert time.monotonic() < end, "\n".join([f"not so ({', '.join(words)}):", *screen])
        return screen

    def close(self) -> None:
        """End the server of this socket, which has this pane only."""
        self._tmux("kill-server")


@contextmanager
def pane(
    home: Home, script: str, *, columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
) -> Iterator[Pane]:
    """A script in a pane, at the person's own terminal."""
    environment = {**home.environment, "TERM": "xterm-256color", **(env or {})}
    made = Pane(home.spare_path(), environment)
    made.open(f"{script}; echo ended with $?; exec sleep 60", columns, rows)
    try:
        yield made
    finally:
        made.close()


def in_folder(folder: Path, *words: str) -> str:
    """A line of shell that runs `pal` in a folder."""
    return f"cd {shlex.quote(str(folder))} && pal {shlex.join(words)}"
