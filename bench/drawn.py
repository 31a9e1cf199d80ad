"""A program in a pseudo-terminal of 120x40, whose output is read and timed here."""

import fcntl
import math
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from bench.palaver_home import PalaverHome

_COLUMNS, _ROWS = 120, 40
_LIMIT_S = 60.0
_READ_BYTES = 1 << 16
_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07")


class DrawnProgram:
    """A program in a terminal. A time ends when the awaited text has been written there."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._master = master
        self._seen = b""
        self.began_s = time.perf_counter()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": "xterm-256color"},
            cwd=cwd,
        )
        os.close(slave)

    @property
    def pid(self) -> int:
        """The process of the program itself."""
        return self._process.pid

    @property
    def shown(self) -> bytes:
        """What was drawn since the last key, without escape sequences."""
        return plain(self._seen)

    def press(self, keys: bytes) -> None:
        """Press keys, and forget what was drawn before."""
        self._seen = b""
        os.write(self._master, keys)

    def until(self, *texts: bytes) -> float:
        """Wait until all texts were drawn, and return the time."""
        end = time.perf_counter() + _LIMIT_S
        while not all(text in self.shown for text in texts):
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.perf_counter()))
            if not ready:
                raise TimeoutError(f"{texts} was never drawn; there was {self._seen[-2000:]!r}")
            self._seen += os.read(self._master, _READ_BYTES)
        return time.perf_counter()

    def key_ms(self, key: bytes, text: bytes) -> float:
        """Press a key and return the milliseconds until a text was drawn."""
        began_s = time.perf_counter()
        self.press(key)
        return (self.until(text) - began_s) * 1000

    def record(self, for_s: float) -> list[tuple[float, bytes]]:
        """Return everything that is drawn in a time, each write with its wall-clock time."""
        found = []
        end = time.perf_counter() + for_s
        while (left := end - time.perf_counter()) > 0:
            if select.select([self._master], [], [], left)[0]:
                data = os.read(self._master, _READ_BYTES)
                found.append((time.time(), data))
        self._seen = b""
        return found

    def close(self) -> None:
        """End the program and its terminal."""
        self._process.send_signal(signal.SIGTERM)
        end = time.perf_counter() + _LIMIT_S
        while self._process.poll() is None and time.perf_counter() < end:
            if select.select([self._master], [], [], 0.01)[0]:
                try:
                    os.read(self._master, _READ_BYTES)
                except OSError:
                    break
        self._process.wait(_LIMIT_S)
        os.close(self._master)


def open_program(home: PalaverHome, folder: Path, words: Sequence[str]) -> DrawnProgram:
    """Start a command of `pal` in a terminal."""
    command = home.command(*words)
    return DrawnProgram(command.argv, dict(command.env), folder)


def plain(drawn: bytes) -> bytes:
    """Return drawn text without escape sequences."""
    return _ESCAPES.sub(b"", drawn)


def p95(values: Sequence[float]) -> float:
    """Return the smallest value that 95 in 100 do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int, field: str = "VmRSS") -> int:
    """Return the resident memory of a process; with the field `VmHWM` its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def forget_peak(pid: int) -> None:
    """Let the peak of the resident memory begin again at its value of now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
