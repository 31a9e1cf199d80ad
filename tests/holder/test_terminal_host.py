"""Test that a program which floods its terminal never waits for the parser. Uses a real pseudo-terminal."""

import asyncio
import contextlib
import os
import socket
import termios
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
import pytest_asyncio
from tests.fakes import FakeClock
from tests.limits import LIMIT_S

from palaver.errors import BadRequest
from palaver.harness.base import Gate
from palaver.harness.programs import GENERIC
from palaver.holder.terminal_host import _STEP_BYTES, TerminalHost
from palaver.protocol.agent_socket import ViewerFrameReader
from palaver.terminal.pty import Pty, TerminalPump
from palaver.terminal.screen import KEPT_BYTES

LINES = 20_000
FLOOD = b"".join(b"line %05d of an endless build\r\n" % number for number in range(LINES))
BURST = 100 * 1024
"""Enough to be a flood."""
STEPS = 60
"""Enough steps to parse a burst twice."""


@dataclass
class Flooded:
    """A terminal host, the program's end of its terminal, and the clock of both."""

    host: TerminalHost
    pty: Pty
    program: int
    clock: FakeClock
    gates: list[Gate]
    """The reported gates, the newest last."""

    async def write(self, data: bytes) -> None:
        """Write like a program: wait whenever the terminal is full."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LIMIT_S):
            await loop.run_in_executor(None, _write_all, self.program, data)

    async def write_in_bursts(self, data: bytes) -> None:
        """Write bursts that are read at once, and give the host time to parse after each one."""
        os.set_blocking(self.program, False)
        while data:
            burst, data = data[:BURST], data[BURST:]
            while burst:
                with contextlib.suppress(BlockingIOError):
                    burst = burst[os.write(self.program, burst) :]
                self.host.is_current()
            for _ in range(STEPS):
                await asyncio.sleep(0)

    def write_without_pause(self) -> None:
        """Write now, and from now on once more after each read: there is always unread output."""

        def write_again(data: bytes) -> None:
            self.host.screen.feed(data, self.host.now_ms())
            os.write(self.program, b"more output\r\n")

        self.host.pump.close()
        self.host.pump = TerminalPump(self.pty.master, write_again, lambda: None, lambda: None)
        os.write(self.program, b"some output\r\n")

    async def until(self, text: str) -> None:
        """Wait until the last line of output on the screen contains the text."""
        async with asyncio.timeout(LIMIT_S):
            while text not in self.host.screen.terminal.grid.display[-2]:  # noqa: ASYNC110 - the loop parses
                await asyncio.sleep(0)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@pytest_asyncio.fixture
async def flooded() -> AsyncIterator[Flooded]:
    pty, program = Pty.open(80, 24)
    clock = FakeClock()
    gates: list[Gate] = []
    host = TerminalHost(
        pty,
        os.getpid(),
        GENERIC,
        clock=clock,
        on_level=lambda _look, gate: gates.append(gate),
        on_hangup=lambda: None,
        on_typed=lambda *_: None,
        on_size=lambda _cols, _rows: None,
        on_stop=lambda: None,
    )
    yield Flooded(host, pty, program, clock, gates)
    host.close()
    os.close(program)
    pty.close()


async def test_flood_is_read_in_full_and_parsed_only_when_it_has_ended(flooded: Flooded) -> None:
    grid = flooded.host.screen._terminal.grid  # the public view would parse everything first

    await flooded.write_in_bursts(FLOOD)

    # A screen for each time that output was skipped, which is more often on a busy machine.
    assert grid.scrolled < LINES // 2
    assert flooded.host.is_flooded

    flooded.clock.advance(1)
    await flooded.until(f"line {LINES - 1:05d}")
    assert not flooded.host.is_flooded


async def test_viewer_that_missed_output_sees_the_newest_screen_in_a_flood(flooded: Flooded) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    flooded.host.viewers.adopt(ours)
    await flooded.write(FLOOD)
    shown = ViewerFrameReader()
    received = b""

    async def read_until(text: bytes) -> None:
        nonlocal received
        async with asyncio.timeout(LIMIT_S):
            while text not in received:
                data = await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
                received = received[-100_000:] + b"".join(payload for _, payload in shown.feed(data))

    reading = asyncio.create_task(read_until(b"line 19999"))
    for _ in range(6):
        flooded.clock.advance(0.3)
        await flooded.write(FLOOD)
        flooded.clock.advance(0.001)

    await reading
    theirs.close()


@pytest.mark.parametrize("priority", ["interrupt", "idle"])
async def test_hidden_line_is_refused_while_the_program_writes_without_pause(
    flooded: Flooded, priority: str
) -> None:
    ours, theirs = socket.socketpair()
    viewer = flooded.host.viewers.adopt(ours)
    settings = termios.tcgetattr(flooded.program)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(flooded.program, termios.TCSANOW, settings)
    flooded.write_without_pause()
    assert not flooded.host.is_current()

    with theirs, pytest.raises(BadRequest, match="asks for a secret"):
        flooded.host.on_control(viewer, {"type": "input", "text": "hunter2", "priority": priority})


async def test_level_is_checked_after_waiting_output_was_parsed_in_pieces(flooded: Flooded) -> None:
    host = flooded.host
    host.check_level()
    flooded.gates.clear()
    host._on_output(FLOOD[: 8 * _STEP_BYTES])
    waiting: list[int] = []

    host.changed()
    async with asyncio.timeout(LIMIT_S):
        while not flooded.gates:
            waiting.append(host.screen.waiting_bytes)
            await asyncio.sleep(0)

    pieces = {before - after for before, after in pairwise([*waiting, host.screen.waiting_bytes])}
    assert pieces <= {0, _STEP_BYTES}
    assert waiting[-1] == 0


async def test_level_is_checked_in_an_endless_flood(flooded: Flooded) -> None:
    host = flooded.host
    host.check_level()
    flooded.gates.clear()
    burst = FLOOD[:BURST]
    host._on_output(burst)
    host.changed()

    async with asyncio.timeout(LIMIT_S):
        while not host._is_check_due:
            assert not flooded.gates
            await asyncio.sleep(0)
    waiting = host.screen.waiting_bytes
    host._on_output(burst)
    left = host.screen.waiting_bytes
    async with asyncio.timeout(LIMIT_S):
        while not flooded.gates:  # noqa: ASYNC110 - the loop checks
            await asyncio.sleep(0)

    assert host.is_flooded
    assert waiting == BURST
    assert left <= KEPT_BYTES


async def test_viewer_that_queues_lines_but_never_reads_is_closed(flooded: Flooded) -> None:
    ours, theirs = socket.socketpair()
    viewer = flooded.host.viewers.adopt(ours)

    with theirs:
        while not viewer.is_waiting:
            flooded.host.viewers.show(b"x" * 65536)
        for _ in range(1000):
            flooded.host.on_control(viewer, {"type": "input", "text": "hello", "priority": "idle"})

    assert not viewer.is_open


async def test_closed_terminal_is_not_checked_again(flooded: Flooded) -> None:
    is_later = asyncio.Event()
    flooded.host.close()
    flooded.gates.clear()

    flooded.host.on_viewers()
    asyncio.get_running_loop().call_later(0, is_later.set)
    async with asyncio.timeout(LIMIT_S):
        await is_later.wait()

    assert flooded.gates == []


async def test_impossible_size_of_a_viewer_is_ignored(flooded: Flooded) -> None:
    ours, theirs = socket.socketpair()
    viewer = flooded.host.viewers.adopt(ours)

    with theirs:
        for cols, rows in ((100, 30), (0, 30), ("9", 9), (None, None)):
            flooded.host.on_control(viewer, {"type": "resize", "cols": cols, "rows": rows})

    assert (viewer.size, flooded.host.screen.size) == ((100, 30), (100, 30))


@pytest.mark.parametrize("leaves_first", ["pasting", "watching"])
async def test_paste_of_a_viewer_that_left_is_ended(
    flooded: Flooded, leaves_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[bytes] = []
    monkeypatch.setattr(flooded.host.pump, "write", keys.append)
    ours, theirs = socket.socketpair()
    watched, watching = socket.socketpair()
    pasting, other = flooded.host.viewers.adopt(ours), flooded.host.viewers.adopt(watched)
    flooded.host.screen.feed(b"\x1b[?2004h", 0)
    flooded.host.on_keys(pasting, b"\x1b[200~begun")

    with theirs, watching:
        (pasting if leaves_first == "pasting" else other).close()

    is_ended = leaves_first == "pasting"
    assert flooded.host.look().is_pasting is not is_ended
    assert b"".join(keys) == b"\x1b[200~begun" + b"\x1b[201~" * is_ended
