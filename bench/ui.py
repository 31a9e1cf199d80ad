"""Measure the dashboard in a terminal: first screen, keys, messages, memory, CPU at rest.

The program runs in a pseudo-terminal of 120x40. A time ends when the awaited text has been written there. The
chat of an earlier version can be measured too: `python -m bench.ui --before PAL`.
"""

import argparse
import asyncio
import fcntl
import os
import pty
import re
import secrets
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import Amount
from bench.palaver_home import PalaverHome

from palaver.clock import SystemClock
from palaver.ids import UlidSource, ulid_ms
from palaver.log.api import Decide
from palaver.log.sqlite import SqliteLog
from palaver.protocol.envelope import Draft
from palaver.state.fold import apply

_COLUMNS, _ROWS = 120, 40
_LIMIT_S = 60.0
_STARTS = 10
_KEYS = 60
_MESSAGES = 20
_REST_S = 10.0
_AT_ONCE = 500
_AGENTS = 10_000
_CHAT_MS = 340.0
"""The first screen of `pal chat` before the dashboard, if no earlier version is measured."""
_START_RATIO = 1.5
_KEY_LIMIT_MS = 50.0
_VISIBLE_LIMIT_MS = 100.0
_MEMORY_LIMIT_MB = 80.0
_REST_LIMIT_PERCENT = 1.0
_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07")


class DrawnProgram:
    """A program in a terminal whose output is read here."""

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

    def press(self, keys: bytes) -> None:
        """Press keys, and forget what was drawn before."""
        self._seen = b""
        os.write(self._master, keys)

    def until(self, *texts: bytes) -> float:
        """Wait until all texts were drawn, and return the time."""
        end = time.perf_counter() + _LIMIT_S
        while not all(text in _ESCAPES.sub(b"", self._seen) for text in texts):
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.perf_counter()))
            if not ready:
                raise TimeoutError(f"{texts} was never drawn; there was {self._seen[-2000:]!r}")
            self._seen += os.read(self._master, 1 << 16)
        return time.perf_counter()

    def drain(self, for_s: float) -> None:
        """Read everything that is drawn in a time."""
        end = time.perf_counter() + for_s
        while (left := end - time.perf_counter()) > 0:
            if select.select([self._master], [], [], left)[0]:
                os.read(self._master, 1 << 16)
        self._seen = b""

    def close(self) -> None:
        """End the program and its terminal."""
        self._process.send_signal(signal.SIGTERM)
        end = time.perf_counter() + _LIMIT_S
        while self._process.poll() is None and time.perf_counter() < end:
            if select.select([self._master], [], [], 0.01)[0]:
                try:
                    os.read(self._master, 1 << 16)
                except OSError:
                    break
        self._process.wait(_LIMIT_S)
        os.close(self._master)


def dashboard(home: PalaverHome, folder: Path, before: PalaverHome | None = None) -> list[Amount]:
    """Measure the dashboard of a home, which gets 10,000 agents. `before` has an earlier version of `pal`."""
    limit_ms = _START_RATIO * _CHAT_MS
    if before is not None:
        open_room(before, folder)
        limit_ms = _START_RATIO * first_screen_ms(before, folder, ("chat",), (b"no messages yet",))
    open_room(home, folder)
    amounts = [
        Amount(
            "first full screen of `pal ui`",
            "ms",
            first_screen_ms(home, folder, ("ui",), (b"bus up",)),
            limit_ms,
        ),
        Amount(
            "first full screen of `pal chat`",
            "ms",
            first_screen_ms(home, folder, ("chat",), (b"bus up",)),
            limit_ms,
        ),
    ]
    add_agents(home, _AGENTS)
    return amounts + with_many_agents(home, folder)


def open_room(home: PalaverHome, folder: Path) -> None:
    """Create the room of a folder, for the chat."""
    with home.seat("luna") as seat:
        seat.time(home.command("room", "join", str(folder)))


def first_screen_ms(home: PalaverHome, folder: Path, words: Sequence[str], texts: Sequence[bytes]) -> float:
    """Return the median time from the start to the first screen with all these texts."""
    times = []
    for _ in range(_STARTS):
        program = open_program(home, folder, words)
        times.append((program.until(*texts) - program.began_s) * 1000)
        program.close()
    return statistics.median(times)


def with_many_agents(home: PalaverHome, folder: Path) -> list[Amount]:
    """Measure one dashboard that shows many agents."""
    program = open_program(home, folder, ("ui",))
    try:
        program.until(b"bus up")
        program.press(b"2")
        program.until(b"agent00000")
        program.drain(5.0)  # until all agents are read
        keys_ms = p95(_KEYS, lambda number: _key_ms(program, number))
        program.press(b"1")
        program.drain(1.0)
        visible_ms = p95(_MESSAGES, lambda number: _visible_ms(home, program, number))
        program.drain(1.0)
        before_s = _cpu_s(program.pid)
        program.drain(_REST_S)
        rest = (_cpu_s(program.pid) - before_s) / _REST_S * 100
        return [
            Amount(f"key to redraw with {_AGENTS:,} agents, p95", "ms", keys_ms, _KEY_LIMIT_MS),
            Amount("message sent to visible in `pal ui`, p95", "ms", visible_ms, _VISIBLE_LIMIT_MS),
            Amount(
                f"resident memory of `pal ui`, {_AGENTS:,} agents",
                "MB",
                _memory_mb(program.pid),
                _MEMORY_LIMIT_MB,
            ),
            Amount("CPU of `pal ui` at rest", "%", rest, _REST_LIMIT_PERCENT),
        ]
    finally:
        program.close()


def open_program(home: PalaverHome, folder: Path, words: Sequence[str]) -> DrawnProgram:
    """Start a command of `pal` in a terminal."""
    command = home.command(*words)
    return DrawnProgram(command.argv, dict(command.env), folder)


def p95(count: int, measure: Callable[[int], float]) -> float:
    """Return the 95th percentile of some measurements."""
    times = sorted(measure(number) for number in range(count))
    return times[min(int(len(times) * 0.95), len(times) - 1)]


def _key_ms(program: DrawnProgram, number: int) -> float:
    began = time.perf_counter()
    program.press(b"j")
    drawn_ms = (program.until(f"> agent{number + 1:05}".encode()) - began) * 1000
    program.drain(0.05)
    return drawn_ms


def _visible_ms(home: PalaverHome, program: DrawnProgram, number: int) -> float:
    began = time.perf_counter()
    home.command("send", "@human", "--intent", "request", "--", f"visible {number:03}?").run()
    drawn_ms = (program.until(f"visible {number:03}?".encode()) - began) * 1000
    program.drain(0.05)
    return drawn_ms


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS"))


def add_agents(home: PalaverHome, count: int) -> None:
    """Let many agents join. The daemon is stopped meanwhile: through it they would take minutes."""
    home.command("down").run()
    asyncio.run(_fill(home.home, count))
    home.command("up").run()


async def _fill(folder: Path, count: int) -> None:
    log = await SqliteLog.open(folder, apply=apply, clock=SystemClock())
    try:
        ids = UlidSource(SystemClock(), secrets.token_bytes)
        ids.start_above(log.largest_id())
        for begin in range(0, count, _AT_ONCE):
            drafts = [_hello(ids, number) for number in range(begin, min(begin + _AT_ONCE, count))]
            await log.commit_all([(None, _always(draft)) for draft in drafts])
    finally:
        await log.close()


def _hello(ids: UlidSource, number: int) -> Draft:
    made, name = ids.next(), f"agent{number:05}"
    agent = {
        "name": name,
        "base": name,
        "harness": "claude",
        "runtime": "claude",
        "by": "script",
        "cwd": f"/src/project{number % 100}",
    }
    payload: dict[str, object] = {"runtime": "claude", "version": "1", "agent": agent}
    return Draft(type="agent.hello", id=made, sender=name, ts=ulid_ms(made), payload=payload)


def _always(draft: Draft) -> Decide:
    return lambda rows: draft


def main(arguments: Sequence[str]) -> int:
    """Measure only the dashboard, and print the amounts."""
    parser = argparse.ArgumentParser(prog="python -m bench.ui", description="Measure the dashboard.")
    root = Path(__file__).resolve().parents[1]
    parser.add_argument(
        "--pal", type=Path, default=root / ".venv" / "bin" / "pal", help="the client to measure"
    )
    parser.add_argument("--before", type=Path, help="the client of an earlier version, for its chat")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        for name in ("now", "before", "work"):
            (Path(folder) / name).mkdir()
        home = PalaverHome(Path(folder) / "now", options.pal)
        before = PalaverHome(Path(folder) / "before", options.before) if options.before else None
        try:
            amounts = dashboard(home, work, before)
        finally:
            home.stop()
            if before is not None:
                before.stop()
    for amount in amounts:
        verdict = "" if amount.value <= amount.limit else "  MISSED"
        print(f"{amount.name}: {amount.value:.1f} {amount.unit}, at most {amount.limit:.1f}{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
