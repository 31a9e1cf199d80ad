"""A real daemon whose clock moves only when the test advances it.

python -m tests.daemon.clocked HOME CLOCK READY_FD
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.stage import Home
from tests.fakes import START_MS

from palaver.config import load
from palaver.daemon.daemon import Daemon
from palaver.home import StartReport, lock_home, log_to, prepare_home

ROOT = Path(__file__).parents[2]


class FileClock:
    """A clock that shows the seconds written in a file, so that two processes share it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic_s() * 1000)

    def monotonic_s(self) -> float:
        return float(self._path.read_text())

    def set(self, seconds: float) -> None:
        """Set the clock. A reader sees either the old time or the new one."""
        new = self._path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._path)


class ClockedDaemon:
    """The daemon of one home, and its clock. It can be killed and started again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.spare_path()
        self._clock = FileClock(self._path)
        self._clock.set(0.0)
        self._process: subprocess.Popen[bytes] | None = None

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._clock.set(self._clock.monotonic_s() + seconds)

    def start(self) -> None:
        """Start the daemon, and wait until it listens."""
        reader, writer = os.pipe()
        command = (sys.executable, "-m", __name__, str(self._home.path), str(self._path), str(writer))
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._home.environment, pass_fds=[writer])
        os.close(writer)
        with open(reader, "rb") as ready:
            assert ready.read() == b"ok\n"

    def kill(self) -> None:
        """Kill the daemon, and wait until it has exited."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def clocked_daemon(home: Home) -> Iterator[ClockedDaemon]:
    """Run a daemon of a home for the length of a block."""
    daemon = ClockedDaemon(home)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()


def main(home: Path, clock: Path, ready: int) -> None:
    """Serve a home until the process is killed."""
    path = prepare_home(home)
    settings = load(path, {})
    lock = lock_home(path, lambda: False)
    assert lock is not None
    with lock:
        log_to(path, settings.settings, is_foreground=False)
        asyncio.run(Daemon(path, settings, FileClock(clock)).run(StartReport(ready, is_foreground=False)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
