"""A WebSocket on a Unix socket: complete texts, answered pings, and one notification of its end."""

import asyncio
from pathlib import Path

import pytest
from tests.holder.codex_fake import FakeCodex, fake_codex, frame
from tests.limits import LIMIT_S
from websockets.frames import Opcode

from palaver.errors import Disconnected
from palaver.holder.websocket import LIMIT_MESSAGE_BYTES, WebSocket, open_websocket


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
        data = frame(b"x" * 70_000)

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

        server.send_raw(frame(b"?", Opcode.PING) + frame(b"after"))

        assert await ear.texts.get() == b"after"
        assert await server.pongs.get() == b"?"


async def test_pieces_of_a_text_are_joined_around_a_ping(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        server.send_raw(frame(b"one", is_last=False) + frame(b"!", Opcode.PING) + frame(b"two", Opcode.CONT))

        assert await ear.texts.get() == b"onetwo"


async def test_binary_message_is_skipped(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        server.send_raw(frame(b"\0", Opcode.BINARY) + frame(b"after"))

        assert await ear.texts.get() == b"after"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (frame(b"", Opcode.CLOSE), "the other end has closed"),
        (b"\xff\xff\xff", "cannot be read"),
        (frame(b"x", Opcode.CONT), "cannot be read"),
        (frame(b"x", is_last=False) + frame(b"y"), "cannot be read"),
        (b"\xc1\x00", "cannot be read"),
        (b"\x83\x00", "cannot be read"),
        (b"\x81\x7f" + (LIMIT_MESSAGE_BYTES + 1).to_bytes(8, "big"), "cannot be read"),
    ],
    ids=["close", "garbage", "stray piece", "missing piece", "extension", "unknown kind", "too large"],
)
async def test_end_is_notified_once(tmp_path: Path, end: bytes, reason: str) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        websocket = await ear.open(server)

        server.send_raw(end + frame(b"too late"))

        assert reason in str(await ear.ends.get())
        websocket.send(b"{}")
        websocket.close()
        assert ear.ends.empty()
        assert ear.texts.empty()


async def test_closed_connection_is_lost_and_takes_no_text(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        websocket = await ear.open(server)
        websocket.send(b'{"method": "last"}')

        websocket.close()
        websocket.send(b'{"method": "too late"}')
        await ear.ends.get()

        await server.heard("last")
        assert [one["method"] for one in server.said] == ["last"]


async def test_connection_to_a_dead_server_is_lost(tmp_path: Path) -> None:
    async with fake_codex(tmp_path) as server, asyncio.timeout(LIMIT_S):
        ear = Ear()
        await ear.open(server)

        await server.close()

        assert isinstance(await ear.ends.get(), Disconnected)


async def test_missing_server_raises_disconnected(tmp_path: Path) -> None:
    with pytest.raises(Disconnected, match="no process listens"):
        await open_websocket(tmp_path / "none.sock", lambda text: None, lambda error: None)


@pytest.mark.parametrize(
    "reply",
    [
        b"220 mail.example.org\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: another\r\n\r\n",
        b"x" * 20_000,
    ],
    ids=["mail", "no upgrade", "another key", "no line end"],
)
async def test_server_of_another_protocol_is_refused(tmp_path: Path, reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(tmp_path / "other.sock"))
    try:
        with pytest.raises(Disconnected, match="does not speak WebSocket"):
            await open_websocket(tmp_path / "other.sock", lambda text: None, lambda error: None)
    finally:
        server.close()
