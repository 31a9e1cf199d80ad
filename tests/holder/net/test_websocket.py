"""A WebSocket on a Unix socket: complete texts, answered pings, and one notification of its end."""

import asyncio
from pathlib import Path

import pytest
from tests.holder.codex_fake import FakeCodex, fake_codex
from tests.limits import LIMIT_S

from palaver.errors import Disconnected
from palaver.holder.websocket import CLOSE, PING, TEXT, Frame, WebSocket, frame_to_bytes, open_websocket


class Ear:
    """Collects the callbacks of a connection."""

    def __init__(self) -> None:
        self.texts: asyncio.Queue[bytes] = asyncio.Queue()
        self.ends: asyncio.Queue[Disconnected] = asyncio.Queue()

    async def open(self, server: FakeCodex) -> WebSocket:
        return await open_websocket(server.path, self.texts.put_nowait, self.ends.put_nowait)


async def test_texts_arrive_complete_however_they_are_split(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)
        data = frame_to_bytes(Frame(TEXT, b"x" * 70_000))

        server.send_raw(data[:3])
        await asyncio.sleep(0)
        server.send_raw(data[3:])

        assert await ear.texts.get() == b"x" * 70_000


async def test_texts_are_sent_in_order(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        websocket = await Ear().open(server)

        websocket.send(b'{"method": "one"}')
        websocket.send(b'{"method": "two"}')
        await server.heard("two")

        assert [one["method"] for one in server.said] == ["one", "two"]


async def test_ping_is_answered_and_not_passed_on(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        server.send_raw(frame_to_bytes(Frame(PING, b"?")) + frame_to_bytes(Frame(TEXT, b"after")))

        assert await ear.texts.get() == b"after"


@pytest.mark.parametrize("end", [frame_to_bytes(Frame(CLOSE, b"")), b"\xff\xff\xff"])
async def test_end_is_notified_once(tmp_path: Path, end: bytes) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        websocket = await ear.open(server)

        server.send_raw(end)

        assert isinstance(await ear.ends.get(), Disconnected)
        websocket.close()
        assert ear.ends.empty()


async def test_connection_to_a_dead_server_is_lost(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        await server.close()

        assert isinstance(await ear.ends.get(), Disconnected)


async def test_missing_server_raises_disconnected(tmp_path: Path) -> None:
    with pytest.raises(Disconnected, match="no process listens"):
        await open_websocket(tmp_path / "none.sock", lambda text: None, lambda error: None)


async def test_server_of_another_protocol_is_refused(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "other.sock"))
    try:
        with pytest.raises(Disconnected, match="does not speak WebSocket"):
            await open_websocket(tmp_path / "other.sock", lambda text: None, lambda error: None)
    finally:
        server.close()
