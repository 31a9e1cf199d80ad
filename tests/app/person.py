"""A person at a terminal: send keys, and wait for output."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.daemon.stage import Home
from tests.processes import end_process

_SIZE = struct.Struct("HHHH")


class Person:
    """One terminal with a shell in it, whose parent is the first process."""

    def __init__(self, home: Home, *, cols: int = 80, rows: int = 24, term: str = "dumb") -> None:
        """On a dumb terminal agents are shown without the attach screen."""
        self._master, slave = pty.openpty()
        self.resize(cols, rows)
        self.shown = b""
        self._limit_s = home.limit_s
        starter = subprocess.Popen(
            ["setsid", "--fork", "--ctty", "bash", "--norc", "--noprofile"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=home.path.parent,
            env={**home.environment, "PS1": "", "HISTFILE": "", "TERM": term},
        )
        assert starter.wait(self._limit_s) == 0
        os.close(slave)
        self.is_open = True

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, _SIZE.pack(rows, cols, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def run(self, command: str) -> None:
        """Type a command, followed by an echo of its exit status."""
        self.press(f"{command}; echo stat''us $?\r".encode())

    def output_of(self, command: str) -> str:
        """Run a command and return its output. It must succeed."""
        self.shown = b""
        self.run(command)
        self.until(b"status ")
        self.until(b"\n")
        out, _, status = self.shown.decode().replace("\r\n", "\n").rpartition("status ")
        assert status.strip() == "0", self.shown
        return out

    def until(self, text: bytes) -> None:
        """Read until the terminal has shown a text."""
        self.until_count(text, 1)

    def until_count(self, text: bytes, count: int) -> None:
        """Read until the terminal has shown a text `count` times."""
        end = time.monotonic() + self._limit_s
        while self.shown.count(text) < count:
            ready, _, _ = select.select([self._master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} never came; there was {self.shown[-2000:]!r}"
            self.shown += os.read(self._master, 65536)

    def drain(self) -> None:
        """Read the available output without waiting: a terminal with unread output accepts no keys."""
        while self.is_open and select.select([self._master], [], [], 0)[0]:
            try:
                self.shown += os.read(self._master, 65536)
            except OSError:  # the program in it has closed it
                return

    def close(self) -> None:
        """Close the window: its programs receive a hangup."""
        if self.is_open:
            self.is_open = False
            os.close(self._master)


def holders_of(home: Path) -> list[int]:
    """Return every holder that serves a home, found by its command line and environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and b"palaver.holder.main" in (entry / "cmdline").read_bytes():
                environment = (entry / "environ").read_bytes().split(b"\0")
                if b"PALAVER_HOME=" + os.fsencode(home) in environment:
                    found.append(int(entry.name))
    return found


@contextmanager
def persons(home: Home) -> Iterator[list[Person]]:
    """Yield the list of persons at this home; end their terminals and all holders with the block."""
    here: list[Person] = []
    try:
        yield here
    finally:
        for person in here:
            person.close()
        for pid in holders_of(home.path):
            end_process(pid, signal.SIGKILL)
