"""A real bus in its own home, with ways to stop it."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.limits import LIMIT_S

import palaver

PAL = str(Path(sys.executable).with_name("pal"))


@dataclass(frozen=True, slots=True)
class Bus:
    """One home."""

    home: Path

    def connect(self, name: str = "", *, tag: str = "", role: str = "worker") -> palaver.Connection:
        return palaver.connect(name, tag=tag, role=role, home=self.home)

    @property
    def pid(self) -> int:
        """The daemon that has the lock."""
        return int((self.home / "daemon.lock").read_text())

    def kill(self) -> None:
        """End the daemon like a crash, and wait until it has exited."""
        with suppress(OSError, ValueError):
            self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> None:
        """Send the daemon a signal that ends it, and wait until it has exited."""
        daemon = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(daemon, number)
            ready, _, _ = select.select([daemon], [], [], LIMIT_S)
            assert ready
        finally:
            os.close(daemon)

    def pal(self, *words: str) -> str:
        """Run a command like a script and return its output."""
        done = subprocess.run(
            [PAL, *words],
            env={"PATH": os.environ["PATH"], "PALAVER_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=LIMIT_S,
            start_new_session=True,
        )
        return done.stdout.decode()
