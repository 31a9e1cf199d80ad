"""One connection to the daemon: lines out, lines in, each answer to its request. Does not reconnect by itself."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from palaver.errors import Disconnected

Line = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode


class Refused(Exception):
    """The daemon said no: its code, its sentence and its details."""

    def __init__(self, code: str, message: str, details: Mapping[str, object]) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details)


class Wire(asyncio.Protocol):
    """Requests of one loop turn leave in one write; a daemon that does not read makes `ask` wait."""

    def __init__(self, on_push: Callable[[Line], None], on_lost: Callable[[], None]) -> None:
        self._on_push = on_push
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._out: list[bytes] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._loop = asyncio.get_running_loop()
        self._ends: list[Callable[[], None]] = []
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_line(_decode(line))

    def _on_line(self, line: Line) -> None:
        if "push" in line:
            self._on_push(line)
            return
        waiting = self._waiting.pop(line["req"], None)
        if waiting is None or waiting.done():
            return
        if "error" in line:
            waiting.set_exception(Refused(line["error"], line["message"], line.get("details", {})))
        else:
            waiting.set_result(line["ok"])

    async def ask(self, number: int, request: Line) -> Any:
        """Send one request and wait for its answer; raises Disconnected when the daemon is lost first."""
        if self.is_lost:
            raise Disconnected("the daemon is gone")
        await self._room.wait()
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(_encode({"req": number, **request}))
        waiting = self._waiting[number] = self._loop.create_future()
        return await waiting

    def _flush(self) -> None:
        if self._transport is not None and not self.is_lost:
            self._out.append(b"")
            self._transport.write(b"\n".join(self._out))
        self._out.clear()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._room.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Disconnected("the daemon is gone"))
        self._waiting.clear()
        for end in self._ends:
            end()
        self._on_lost()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call back when the connection is lost; at once when it is already."""
        if self.is_lost:
            callback()
        else:
            self._ends.append(callback)

    def close(self) -> None:
        """Let go of the connection, behind what was sent."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
