"""Measure `pal ui` in a terminal: keys, news, memory and processor time at rest."""

import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.drawn import DrawnProgram, cpu_s, memory_bytes, open_program, p95, plain
from bench.figures import Amount
from bench.filled import agent_name
from bench.palaver_home import PalaverHome
from bench.sender import PacedSender

_KEY_LIMIT_MS = 50.0
_JUMP_LIMIT_MS = 500.0
_VISIBLE_LIMIT_MS = 100.0
_MEMORY_LIMIT_MB = 80.0
_REST_LIMIT_PERCENT = 1.0
_PAUSE_S = 0.05
"""Between two measurements, for what is still drawn."""
_SETTLE_S = 1.0
_LOAD_S = 5.0
"""Until all agents are read."""

_HOME, _END, _PAGE_UP, _PAGE_DOWN = b"\x1b[H", b"\x1b[F", b"\x1b[5~", b"\x1b[6~"
_KEYS = (b"j", b"j", _PAGE_DOWN, b"k", _PAGE_DOWN, _END, b"k", _PAGE_UP, _PAGE_UP, _HOME)
"""They begin and end at the first row."""
_CURSOR = re.compile(rb">[ *]((?:#[0-9]+|[a-z][a-z0-9_]*) )")
"""The row with the cursor: an event or an agent."""


@dataclass(frozen=True, slots=True)
class ScreenRounds:
    """How often each thing is measured in the dashboard."""

    keys: int = 8
    """Times that all keys are pressed, on each of two screens."""
    jumps: int = 20
    requests: int = 10
    """Requests to the person; all of them must fit into one screen."""
    messages: int = 30
    rest_s: float = 10.0


def open_dashboard(home: PalaverHome, folder: Path) -> DrawnProgram:
    """Start `pal ui` in a home with many agents, and wait until it has read all of them."""
    program = open_program(home, folder, ("ui",))
    program.until(b"bus up")
    program.press(b"2")
    program.until(agent_name(0).encode())
    program.record(_LOAD_S)
    return program


def dashboard_amounts(
    home: PalaverHome, folder: Path, sender: PacedSender, rounds: ScreenRounds, size: str
) -> list[Amount]:
    """Measure one dashboard. `size` names the content of the home."""
    program = open_dashboard(home, folder)
    try:
        agents_ms = _keys_ms(program, rounds.keys)
        program.press(b"5")
        program.record(_SETTLE_S)
        jumps_ms, pages_ms = _jumps_and_pages_ms(program, rounds.jumps)
        log_ms = [*pages_ms, *_keys_ms(program, rounds.keys)]
        visible_ms = _visible_ms(program, sender, rounds)
        program.press(b"1")
        program.record(_SETTLE_S)
        before_s = cpu_s(program.pid)
        program.record(rounds.rest_s)
        rest = (cpu_s(program.pid) - before_s) / rounds.rest_s * 100
        memory_mb = memory_bytes(program.pid) / 1e6
    finally:
        program.close()
    return [
        Amount(f"key to redraw in Agents, p95, {size}", "ms", p95(agents_ms), _KEY_LIMIT_MS),
        Amount(f"key to redraw in Log, p95, {size}", "ms", p95(log_ms), _KEY_LIMIT_MS),
        Amount(
            f"jump to any event in `pal ui`, slowest of {rounds.jumps}, {size}",
            "ms",
            max(jumps_ms),
            _JUMP_LIMIT_MS,
        ),
        Amount("commit to visible in `pal ui`, p95", "ms", p95(visible_ms), _VISIBLE_LIMIT_MS),
        Amount(f"resident memory of `pal ui`, {size}", "MB", memory_mb, _MEMORY_LIMIT_MB),
        Amount("CPU of `pal ui` at rest", "% of a core", rest, _REST_LIMIT_PERCENT),
    ]


def _keys_ms(program: DrawnProgram, rounds: int) -> list[float]:
    """Press all keys once to see where the cursor goes, then again to measure how long that takes."""
    program.press(_HOME)
    program.record(_SETTLE_S)
    places = [_place_after(program, key) for key in _KEYS]
    times = []
    for _ in range(rounds):
        for key, place in zip(_KEYS, places, strict=True):
            times.append(program.key_ms(key, b"> " + place))
            program.record(_PAUSE_S)
    return times


def _place_after(program: DrawnProgram, key: bytes) -> bytes:
    """Return the beginning of the row with the cursor after a key."""
    program.press(key)
    drawn = b"".join(data for _, data in program.record(_SETTLE_S / 2))
    found: Sequence[bytes] = _CURSOR.findall(plain(drawn))
    if not found:
        raise RuntimeError(f"no row with a cursor was drawn after {key!r}: {drawn[-2000:]!r}")
    return found[-1]


def _jumps_and_pages_ms(program: DrawnProgram, count: int) -> tuple[list[float], list[float]]:
    """Go to random events, and page through their surroundings, which were not read before.

    A jump begins with Enter after the typed seq. Both end when the event with the cursor is drawn.
    """
    last = int(_place_after(program, _END)[1:])
    page = last - int(_place_after(program, _PAGE_UP)[1:])
    jumps, pages = [], []
    for _ in range(count):
        seq = random.randint(1 + 2 * page, last - 2 * page)
        program.press(b"t")
        program.record(_PAUSE_S)
        program.press(str(seq).encode())
        program.record(_PAUSE_S)
        jumps.append(program.key_ms(b"\r", _event(seq)))
        for key, step in ((_PAGE_UP, -1), (_PAGE_UP, -2), (_PAGE_DOWN, -1), (_PAGE_DOWN, 0)):
            program.record(_PAUSE_S * 2)
            pages.append(program.key_ms(key, _event(seq + step * page)))
        program.record(_PAUSE_S)
    return jumps, pages


def _event(seq: int) -> bytes:
    """Return the beginning of the row with the cursor if it is on an event."""
    return f"> #{seq} ".encode()


def _visible_ms(program: DrawnProgram, sender: PacedSender, rounds: ScreenRounds) -> list[float]:
    """Measure news in Log, at its end, and then requests to the person in Now."""
    times = []
    program.press(_END)
    program.record(_SETTLE_S)
    for number in range(rounds.messages):
        times.append(_drawn_ms(program, sender, agent_name(number), f"drawn in Log {number:03}", ""))
    program.press(b"1")
    program.record(_SETTLE_S)
    for number in range(rounds.requests):
        times.append(_drawn_ms(program, sender, "human", f"drawn in Now {number:03}?", "request"))
    return times


def _drawn_ms(program: DrawnProgram, sender: PacedSender, to: str, text: str, intent: str) -> float:
    began_s = sender.send(f"@{to}", text, intent)
    program.until(text.encode())
    drawn_ms = (time.time() - began_s) * 1000
    program.record(_PAUSE_S)
    return drawn_ms
