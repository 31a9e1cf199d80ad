"""Bytes between a terminal and those around it: in order, both ways, and nobody waits for anybody."""

import asyncio
import os
import tty
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.limits import LIMIT_S

from palaver.agents.terminal.pty import Pty
from palaver.agents.terminal.pump import Pump


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
        self.pump = Pump(self.pty.master, self._take, self._hang_up, self._drain)

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


async def test_output_comes_as_it_was_written(ends: Ends) -> None:
    os.write(ends.slave, b"one ")
    os.write(ends.slave, b"\x1b[31mtwo\x00\xff")

    await ends.until(b"\xff")

    assert ends.output == b"one \x1b[31mtwo\x00\xff"


async def test_keys_are_written_at_once_when_there_is_room(ends: Ends) -> None:
    ends.pump.write(b"keys")

    assert ends.read_keys() == b"keys"
    assert ends.pump.unsent == 0
    assert ends.drained == 1


async def test_keys_that_nobody_reads_wait_in_order(ends: Ends) -> None:
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


async def test_output_goes_on_while_keys_wait(ends: Ends) -> None:
    ends.pump.write(b"x" * 100_000)

    os.write(ends.slave, b"still talking")

    await ends.until(b"still talking")


async def test_what_was_written_until_now_can_be_read_now(ends: Ends) -> None:
    os.write(ends.slave, b"last words")

    ends.pump.drain_output()

    assert ends.output == b"last words"


async def test_the_end_is_told_once_and_keys_go_nowhere(ends: Ends) -> None:
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


async def test_what_was_not_taken_is_given_to_whoever_takes_over(ends: Ends) -> None:
    ends.pump.write(b"y" * 100_000)
    unsent = ends.pump.unsent

    rest = ends.pump.release()

    assert rest == b"y" * unsent
    assert unsent > 0


async def test_nothing_is_written_for_no_keys(ends: Ends) -> None:
    ends.pump.write(b"")

    assert ends.drained == 0


async def test_keys_that_nobody_reads_can_be_let_go(ends: Ends) -> None:
    ends.pump.write(b"x" * 1_000_000)
    assert ends.pump.unsent > 0

    ends.pump.drop_unsent()

    assert (ends.pump.unsent, ends.drained) == (0, 1)
    ends.pump.drop_unsent()
    assert ends.drained == 1


async def test_output_without_an_end_is_taken_in_a_bounded_amount_at_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "read", lambda _fd, size: b"y" * min(size, 100))

    assert ends.pump.drain_output() is False

    monkeypatch.undo()
    assert ends.pump.drain_output() is True
