"""Measure agents in terminals: typing latency, memory of holders, start time, output speed.

Both buses type into the same scripted program. hcom types a mark, `<hcom>`, and its hook returns the text
when the mark is submitted; Palaver types the text. The times to the first byte and to Enter are measured for
both.
"""

import os
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from bench.contests import Pair
from bench.figures import Amount, Figure
from bench.flood import OUTPUT_BYTES
from bench.home import Home
from bench.measure import Rounds, Sample
from bench.palaver_home import PalaverHome
from bench.seat import Seat

_PROGRAM = Path(__file__).with_name("terminal_agent.py")
_FLOOD = Path(__file__).with_name("flood.py")
_FLOOD_ROUNDS = 5
_FLOOD_LIMITS = {"detached": 1.5, "attached": 2.0}
_START_ROUNDS = 9
_START_LIMIT_MS = 500
_FIRST_LINE = (
    "import os,signal,sys,time; os.write(os.open(sys.argv[1], os.O_WRONLY), b'%d\\n' % time.monotonic_ns())"
)
_LIMIT_S = 30.0
_SETTLE_S = 2.0  # until both consider the agent idle: hcom waits longer after recent output
_NS_PER_MS = 1_000_000
_HOLDER_LIMIT_MB = 35
_OUTPUT_BYTES = 1_000_000


class Typewriter:
    """The reports of the scripted program in a terminal of one bus."""

    def __init__(self, home: Home, sender: Seat, folder: Path) -> None:
        self._home = home
        self._sender = sender
        self._path = folder / f"{home.bus}.keys"
        os.mkfifo(self._path)
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self._name = home.run_in_terminal((sys.executable, "-I", "-S", str(_PROGRAM), str(self._path)))
        self._until("ready")

    def time(self, text: str) -> tuple[float, float]:
        """Send once. Return the milliseconds to the first byte in the terminal, and to Enter."""
        sent = self._sender.time(self._home.send(self._name, text))
        first_ns = self._until("key")
        enter_ns = self._until("enter")
        self._until("ready")
        return (first_ns - sent.started_ns) / _NS_PER_MS, (enter_ns - sent.started_ns) / _NS_PER_MS

    def close(self) -> None:
        """Close the pipe. The terminal ends together with the home."""
        os.close(self._pipe)

    def _until(self, word: str) -> int:
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if not found:
                if not select.select([self._pipe], [], [], _LIMIT_S)[0]:
                    raise RuntimeError(f"nothing was typed into the terminal of {self._home.bus}")
                self._rest += os.read(self._pipe, 65536)
                continue
            self._rest = rest
            at_ns, said = line.decode().split(" ")
            if said == word:
                return int(at_ns)


def typing(small: Pair, folder: Path, rounds: Rounds) -> list[Figure]:
    """Measure from the spawn of a send to the bytes in the terminal of an idle agent, both in turn."""
    writers = {
        "palaver": Typewriter(small.palaver.home, small.palaver.sender, folder),
        "hcom": Typewriter(small.hcom.home, small.hcom.sender, folder),
    }
    first: dict[str, list[float]] = {key: [] for key in writers}
    enter: dict[str, list[float]] = {key: [] for key in writers}
    for number in range(rounds.warm_up + rounds.typed):
        time.sleep(_SETTLE_S)
        for key, writer in writers.items():
            to_first, to_enter = writer.time(f"typed-mark-{number}-end")
            if number >= rounds.warm_up:
                first[key].append(to_first)
                enter[key].append(to_enter)
    for writer in writers.values():
        writer.close()
    begins, ends = _samples(first), _samples(enter)
    return [
        _figure("send to the first byte in an idle agent's terminal, p50", begins),
        _figure("send to the first byte in an idle agent's terminal, p99", begins, p99=True),
        _figure("send to Enter in an idle agent's terminal, p50", ends),
    ]


def holder_memory(small: Pair) -> list[Amount]:
    """Return the memory of a holder, fresh and after much output."""
    home = small.palaver.home
    flood = f"head -c {_OUTPUT_BYTES * 3 // 4} /dev/urandom | base64; echo flooded; exec sleep 86400"
    rows = []
    for name, command, shown in (
        ("fresh", ("cat",), ""),
        ("after 1 MB of output", ("/bin/sh", "-c", flood), "flooded"),
    ):
        held = home.run_in_terminal(command)
        resident_mb, own_mb = home.holder_mb(held, shown)
        rows.append(Amount(f"resident memory of a holder, {name}", "MB", resident_mb, _HOLDER_LIMIT_MB))
        rows.append(Amount(f"its share of that (PSS), {name}", "MB", own_mb, _HOLDER_LIMIT_MB))
    return rows


def starts(home: PalaverHome, folder: Path) -> list[Amount]:
    """Measure how much later the first line of a program runs when `pal run` starts it."""
    path = folder / "starts"
    os.mkfifo(path)
    argv = (sys.executable, "-I", "-S", "-c", f"{_FIRST_LINE}; signal.pause()", str(path))
    taken: dict[str, list[float]] = {"alone": [], "pal": []}
    with os.fdopen(os.open(path, os.O_RDWR)) as lines:
        for _ in range(_START_ROUNDS):
            began_ns = time.monotonic_ns()
            alone = subprocess.Popen(argv)
            taken["alone"].append((int(lines.readline()) - began_ns) / _NS_PER_MS)
            alone.kill()
            alone.wait()
            began_ns = time.monotonic_ns()
            home.run_in_terminal(argv)
            taken["pal"].append((int(lines.readline()) - began_ns) / _NS_PER_MS)
    extra_ms = statistics.median(taken["pal"]) - statistics.median(taken["alone"])
    return [Amount("start of a program with `pal run`, later than without", "ms", extra_ms, _START_LIMIT_MS)]


def flood(home: PalaverHome, folder: Path) -> list[Amount]:
    """Compare how fast a program can write two megabytes: in tmux, detached in Palaver, and attached.

    The attached terminal is itself in tmux. Returns an empty list if tmux is not installed.
    """
    tmux = shutil.which("tmux")
    if tmux is None:
        return []
    server = (tmux, "-S", str(folder / "flood.tmux"), "-f", "/dev/null")
    taken: dict[str, list[float]] = {"tmux": [], "detached": [], "attached": []}
    for number in range(_FLOOD_ROUNDS):
        for way, times in taken.items():
            times.append(_time_flood(home, server, way, folder / f"flood.{way}.{number}"))
    subprocess.run([*server, "kill-server"], check=False, capture_output=True)
    theirs = statistics.median(taken["tmux"])
    return [
        Amount(
            f"time to print {OUTPUT_BYTES / 1e6:.0f} MB, {way}, as a multiple of tmux ({theirs:.0f} ms)",
            "times",
            statistics.median(taken[way]) / theirs,
            limit,
        )
        for way, limit in _FLOOD_LIMITS.items()
    ]


def _time_flood(home: PalaverHome, server: Sequence[str], way: str, path: Path) -> float:
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR)
    argv = (sys.executable, "-I", "-S", str(_FLOOD), str(path))
    window = (*server, "new-session", "-d", "-x", "80", "-y", "24")
    if way == "tmux":
        subprocess.run([*window, *argv], check=True)
    else:
        name = home.run_in_terminal(argv)
        if way == "attached":
            subprocess.run([*window, "env", "-i", *home.attach(name)], check=True)
    with os.fdopen(pipe) as reports:
        _expect(reports, "ready")
        time.sleep(_SETTLE_S)
        path.with_name(f"{path.name}.go").touch()
        return float(reports.readline())


def _expect(reports: TextIO, word: str) -> None:
    if (line := reports.readline().strip()) != word:
        raise RuntimeError(f"the program wrote {line!r} instead of {word!r}")


def _samples(taken: Mapping[str, list[float]]) -> dict[str, Sample]:
    return {key: Sample(values=tuple(values)) for key, values in taken.items()}


def _figure(name: str, samples: dict[str, Sample], *, p99: bool = False) -> Figure:
    ours, theirs = samples["palaver"], samples["hcom"]
    values = (ours.p99, theirs.p99) if p99 else (ours.median, theirs.median)
    return Figure(name, "ms", ours.n, *values)
