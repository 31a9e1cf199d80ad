"""A WebSocket on a Unix socket: whole texts, pings answered, and one end that is told once."""

import asyncio
from pathlib import Path

import pytest
from tests.agents.codex_fake import FakeCodex, fake_codex
from tests.limits import LIMIT_S

from palaver.agents.net.websocket import WebSocket, open_websocket
from palaver.agents.net.websocket_wire import CLOSE, PING, TEXT, Frame, frame_to_bytes
from palaver.errors import Disconnected


class Ear:
    """What a connection tells its owner."""

    def __init__(self) -> None:
        self.texts: asyncio.Queue[bytes] = asyncio.Queue()
        self.ends: asyncio.Queue[Disconnected] = asyncio.Queue()

    async def open(self, server: FakeCodex) -> WebSocket:
        return await open_websocket(server.path, self.texts.put_nowait, self.ends.put_nowait)


async def test_texts_come_whole_however_they_are_cut(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)
        data = frame_to_bytes(Frame(TEXT, b"x" * 70_000))

        server.send_raw(data[:3])
        await asyncio.sleep(0)
        server.send_raw(data[3:])

        assert await ear.texts.get() == b"x" * 70_000


async def test_what_is_sent_is_heard_in_order(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        websocket = await Ear().open(server)

        websocket.send(b'{"method": "one"}')
        websocket.send(b'{"method": "two"}')
        await server.heard("two")

        assert [one["method"] for one in server.said] == ["one", "two"]


async def test_a_ping_is_answered_and_nobody_hears_of_it(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        server.send_raw(frame_to_bytes(Frame(PING, b"?")) + frame_to_bytes(Frame(TEXT, b"after")))

        assert await ear.texts.get() == b"after"


@pytest.mark.parametrize("end", [frame_to_bytes(Frame(CLOSE, b"")), b"\xff\xff\xff"])
async def test_the_end_is_told_once(tmp_path: Path, end: bytes) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        websocket = await ear.open(server)

        server.send_raw(end)

        assert isinstance(await ear.ends.get(), Disconnected)
        websocket.close()
        assert ear.ends.empty()


async def test_a_server_that_dies_is_lost(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        await server.close()

        assert isinstance(await ear.ends.get(), Disconnected)


async def test_nobody_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Disconnected, match="nobody listens"):
        await open_websocket(tmp_path / "none.sock", lambda text: None, lambda error: None)


async def test_who_speaks_something_else_is_not_talked_to(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "other.sock"))
    try:
        with pytest.raises(Disconnected, match="does not speak WebSocket"):
            await open_websocket(tmp_path / "other.sock", lambda text: None, lambda error: None)
    finally:
        server.close()
