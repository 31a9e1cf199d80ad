"""A fake daemon on a real socket; the test sends every line."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.limits import LIMIT_S


class FakePeer:
    """The daemon's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def next(self) -> dict[str, Any]:
        """Return the next line of the client."""
        async with asyncio.timeout(LIMIT_S):
            line = await self._reader.readuntil(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    async def at_end(self) -> bytes:
        """Return everything until the client closes; empty if it closed without reading everything."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def say(self, **line: object) -> None:
        self.say_raw(json.dumps(line).encode() + b"\n")

    def say_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def answer(self, asked: dict[str, Any], **ok: object) -> None:
        self.say(req=asked["req"], ok=ok)

    def answer_send(self, asked: dict[str, Any], seq: int) -> None:
        self.answer(asked, seq=seq, id=asked["id"], to=asked["to"], delivered_to=[])

    def refuse(self, asked: dict[str, Any], code: str, sentence: str, **details: object) -> None:
        self.say(req=asked["req"], error=code, message=sentence, details=details)

    def push_message(self, seq: int, text: str = "hello") -> None:
        message = {"seq": seq, "id": "01", "ts": 1, "from": "nova", "text": text, "to": ["luna"]}
        self.say(push="message", name="luna", message=message)

    async def welcome(self, name: str = "luna") -> dict[str, Any]:
        """Accept a join and return the request."""
        asked = await self.next()
        assert asked["op"] == "join"
        self.answer(asked, name=name, secret=asked["secret"], device="BOXE")
        return asked

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not read yet."""
        return self._writer.transport.get_write_buffer_size()

    async def drained(self, left_bytes: int) -> None:
        """Wait until the client has read all but `left_bytes`."""
        self._writer.transport.set_write_buffer_limits(high=left_bytes, low=left_bytes)
        async with asyncio.timeout(LIMIT_S):
            await self._writer.drain()

    def close(self) -> None:
        """Close the connection after all written lines."""
        self._writer.close()


class FakeDaemon:
    """Listens in a home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._callers: asyncio.Queue[FakePeer] = asyncio.Queue()
        self._peers: list[FakePeer] = []

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._meet, self._home / "daemon.sock", limit=2**24)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers.put_nowait(FakePeer(reader, writer))

    async def accept(self) -> FakePeer:
        """Accept the next client."""
        async with asyncio.timeout(LIMIT_S):
            peer = await self._callers.get()
        self._peers.append(peer)
        return peer

    @property
    def is_idle(self) -> bool:
        """Whether every client was accepted."""
        return self._callers.empty()

    async def close(self) -> None:
        self._server.close()
        for peer in self._peers:
            peer.close()
