"""The wire: complete lines from any pieces, paused reading, and foreign protocols detected."""

import asyncio
import errno
import fcntl
import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fake import FakeDaemon, FakePeer

from palaver.client import start
from palaver.client.wire import ReplyLine, Wire, default_home, open_wire
from palaver.errors import Disconnected, UnknownRecipient


class Heard:
    def __init__(self) -> None:
        self.lines: list[ReplyLine] = []
        self.lost: list[Wire] = []
        self.has_line = asyncio.Event()

    def on_line(self, line: ReplyLine) -> None:
        self.lines.append(line)
        self.has_line.set()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def ends(fake: FakeDaemon, home: Path, heard: Heard) -> tuple[Wire, FakePeer]:
    """Return both ends of one connection."""
    wire = await open_wire(str(home), heard.on_line, heard.lost.append)
    return wire, await fake.accept()


@given(st.lists(st.text(), max_size=5), st.lists(st.integers(1, 40)))
def test_lines_are_complete_wherever_the_pieces_end(texts: list[str], cuts: list[int]) -> None:
    async def read() -> list[ReplyLine]:
        lines: list[ReplyLine] = []
        wire = Wire(lines.append, lambda _: None)
        data = b"".join(json.dumps({"req": 1, "error": text}).encode() + b"\n" for text in texts)
        for cut in [*cuts, len(data)]:
            wire.data_received(data[:cut])
            data = data[cut:]
        return lines

    lines = asyncio.run(read())

    assert [line.error for line in lines] == texts


async def test_lines_written_together_leave_in_order_and_complete(ends: tuple[Wire, FakePeer]) -> None:
    wire, peer = ends

    for number in range(3):
        wire.write(b'{"req":%d}' % number)

    assert [(await peer.next())["req"] for _ in range(3)] == [0, 1, 2]
    wire.close()
    await wire.wait_closed()


async def test_written_lines_leave_before_the_close(ends: tuple[Wire, FakePeer], heard: Heard) -> None:
    wire, peer = ends
    wire.write(b"{}")

    wire.close()
    await wire.wait_closed()

    assert await peer.at_end() == b"{}\n"
    assert heard.lost == [wire]


async def test_reading_can_be_paused(ends: tuple[Wire, FakePeer], heard: Heard) -> None:
    wire, peer = ends
    wire.pause_reading()
    peer.say(req=1, ok=None)
    wire.write(b'{"are you there":0}')
    await peer.next()
    assert heard.lines == []

    wire.resume_reading()
    await heard.has_line.wait()

    assert [line.req for line in heard.lines] == [1]
    wire.close()
    await wire.wait_closed()


async def test_loss_is_reported_once_with_its_reason(ends: tuple[Wire, FakePeer], heard: Heard) -> None:
    wire, peer = ends

    peer.close()
    await wire.wait_closed()
    wire.write(b"{}")
    wire.close()

    assert heard.lost == [wire]
    assert isinstance(wire.error, Disconnected)


async def test_invalid_line_ends_the_connection(ends: tuple[Wire, FakePeer], heard: Heard) -> None:
    wire, peer = ends

    peer.say_raw(b'{"req":1}\n[]\n{"req":2}\n')
    await wire.wait_closed()

    assert [line.req for line in heard.lines] == [1]
    assert "not a Palaver daemon" in str(wire.error)


def test_refusal_becomes_its_error_class() -> None:
    line = ReplyLine(error="unknown_recipient", message=_raw("…"), details={"unmatched": {"@nov": ["nova"]}})

    refusal = line.refusal

    assert isinstance(refusal, UnknownRecipient)
    assert refusal.unmatched == {"@nov": ["nova"]}


async def test_home_that_is_not_a_directory_is_an_error(tmp_path: Path, heard: Heard) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Disconnected, match="Not a directory"):
        await open_wire(str(tmp_path / "file"), heard.on_line, heard.lost.append)


async def test_daemon_lost_right_after_its_start_is_an_error(
    home: Path, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho ok >&3\n")
    python.chmod(0o755)
    monkeypatch.setenv("PALAVER_PYTHON", str(python))

    with pytest.raises(Disconnected, match="right after its start"):
        await open_wire(str(home), heard.on_line, heard.lost.append)


async def test_cancelled_open_leaves_no_connection(home: Path, heard: Heard) -> None:
    lock = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)  # like a process that is starting the daemon
    opening = asyncio.ensure_future(open_wire(str(home), heard.on_line, heard.lost.append))
    asyncio.get_running_loop().call_soon(opening.cancel)
    with pytest.raises(asyncio.CancelledError):
        await opening

    daemon = FakeDaemon(home)
    await daemon.open()
    os.close(lock)

    assert await (await daemon.accept()).at_end() == b""
    await daemon.close()


def test_default_home_is_that_of_pal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_HOME", raising=False)
    assert default_home() == str(tmp_path / ".palaver")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_HOME", "here")

    assert default_home() == str(tmp_path / "here")


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(text).encode())


def test_daemon_that_cannot_be_forked_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, fork = os.getpid(), os.fork

    def fork_once() -> int:
        if os.getpid() != caller:
            raise BlockingIOError(errno.EAGAIN, "no more processes")
        return fork()

    monkeypatch.setattr(os, "fork", fork_once)

    assert start.spawn(str(home), "python3") == ": cannot run python3: no more processes"
