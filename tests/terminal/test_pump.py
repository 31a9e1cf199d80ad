"""Bytes between a terminal and the holder: in order, in both directions, and without blocking."""

import asyncio
import os
import tty
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.limits import LIMIT_S

from palaver.terminal.pty import Pty, TerminalPump


class Ends:
    """A terminal with its pump, and the program's end of it."""

    def __init__(self) -> None:
        self.pty, self.slave = Pty.open(80, 24)
        tty.setraw(self.slave)
        os.set_blocking(self.slave, False)
        self.output = b""
        self.news = asyncio.Event()
        self.hangups = 0
        self.drained = 0
        self.pump = TerminalPump(self.pty.master, self._take, self._hang_up, self._drain)

    def _take(self, data: bytes) -> None:
        self.output += data
        self.news.set()

    def _hang_up(self) -> None:
        self.hangups += 1
        self.news.set()

    def _drain(self) -> None:
        self.drained += 1
        self.news.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not self.output.endswith(text):
                self.news.clear()
                await self.news.wait()

    def read_keys(self) -> bytes:
        try:
            return os.read(self.slave, 65536)
        except BlockingIOError:
            return b""


@pytest_asyncio.fixture
async def ends() -> AsyncIterator[Ends]:
    made = Ends()
    yield made
    made.pump.close()
    made.pty.close()
    if made.slave >= 0:
        os.close(made.slave)


async def test_output_arrives_unchanged(ends: Ends) -> None:
    os.write(ends.slave, b"one ")
    os.write(ends.slave, b"\x1b[31mtwo\x00\xff")

    await ends.until(b"\xff")

    assert ends.output == b"one \x1b[31mtwo\x00\xff"


async def test_keys_are_written_at_once_when_there_is_room(ends: Ends) -> None:
    ends.pump.write(b"keys")

    assert ends.read_keys() == b"keys"
    assert ends.pump.unsent == 0
    assert ends.drained == 1


async def test_unread_keys_wait_in_order(ends: Ends) -> None:
    sent = b"".join(b"%06d" % number for number in range(20_000))

    ends.pump.write(sent[:60_000])
    ends.pump.write(sent[60_000:])
    assert ends.pump.unsent > 0

    read = b""
    async with asyncio.timeout(LIMIT_S):
        while len(read) < len(sent):
            read += ends.read_keys()
            await asyncio.sleep(0)
    assert read == sent
    assert (ends.pump.unsent, ends.drained) == (0, 1)


async def test_output_continues_while_keys_wait(ends: Ends) -> None:
    ends.pump.write(b"x" * 100_000)

    os.write(ends.slave, b"still talking")

    await ends.until(b"still talking")


async def test_pending_output_can_be_read_at_once(ends: Ends) -> None:
    os.write(ends.slave, b"last words")

    ends.pump.drain_output()

    assert ends.output == b"last words"


async def test_hangup_is_reported_once_and_later_keys_are_dropped(ends: Ends) -> None:
    os.write(ends.slave, b"bye")
    os.close(ends.slave)
    ends.slave = -1

    async with asyncio.timeout(LIMIT_S):
        while not ends.hangups:
            ends.news.clear()
            await ends.news.wait()
    ends.pump.write(b"too late")
    ends.pump.drain_output()

    assert (ends.output, ends.hangups, ends.pump.unsent) == (b"bye", 1, 0)


async def test_unsent_keys_are_returned_on_release(ends: Ends) -> None:
    ends.pump.write(b"y" * 100_000)
    unsent = ends.pump.unsent

    rest = ends.pump.release()

    assert rest == b"y" * unsent
    assert unsent > 0


async def test_empty_write_does_nothing(ends: Ends) -> None:
    ends.pump.write(b"")

    assert ends.drained == 0


async def test_unsent_keys_can_be_dropped(ends: Ends) -> None:
    ends.pump.write(b"x" * 1_000_000)
    assert ends.pump.unsent > 0

    ends.pump.drop_unsent()

    assert (ends.pump.unsent, ends.drained) == (0, 1)
    ends.pump.drop_unsent()
    assert ends.drained == 1


async def test_endless_output_is_read_in_bounded_amounts(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "read", lambda _fd, size: b"y" * min(size, 100))

    assert ends.pump.drain_output() is False

    monkeypatch.undo()
    assert ends.pump.drain_output() is True
