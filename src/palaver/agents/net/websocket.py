"""A WebSocket client on a Unix socket: sends and receives whole texts. It does not reconnect."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from palaver.agents.net.websocket_wire import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    Frame,
    FrameReader,
    frame_to_bytes,
    handshake,
    split_answer,
)
from palaver.errors import BadRequest, Disconnected
from palaver.home import connect_socket

_OPEN_LIMIT_S: Final = 10.0
_GONE: Final = "the other end has closed"


class WebSocket(asyncio.Protocol):
    """One connection. `on_lost` is called once, whichever side ended it; no text follows it."""

    def __init__(self, on_text: Callable[[bytes], None], on_lost: Callable[[Disconnected], None]) -> None:
        self._on_text = on_text
        self._on_lost = on_lost
        self._key = os.urandom(16)
        self._head: bytes | None = b""
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._error: Disconnected | None = None
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done after the handshake; raises if the handshake failed."""

    def send(self, text: bytes) -> None:
        """Send one text, after all earlier ones. It is lost if the connection is lost."""
        self._write(Frame(TEXT, text))

    def close(self) -> None:
        """Close the connection after the sent texts."""
        if self._transport is not None and not self._transport.is_closing():
            self._write(Frame(CLOSE, b"\x03\xe8"))
            self._transport.close()

    def _write(self, frame: Frame) -> None:
        assert self._transport is not None
        self._transport.write(frame_to_bytes(frame, os.urandom(4)))

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(handshake(self._key))

    def data_received(self, data: bytes) -> None:
        try:
            if self._head is not None:
                rest = split_answer(self._head + data, self._key)
                if rest is None:
                    self._head += data
                    return
                self._head, data = None, rest
                self.is_open.set_result(None)
            for frame in self._frames.feed(data):
                self._take(frame)
        except BadRequest as error:
            self._give_up(str(error))

    def _take(self, frame: Frame) -> None:
        if frame.kind == TEXT:
            self._on_text(frame.data)
        elif frame.kind == PING:
            self._write(Frame(PONG, frame.data))
        elif frame.kind == CLOSE:
            self._give_up(_GONE)

    def _give_up(self, reason: str) -> None:
        assert self._transport is not None
        self._error = self._error or Disconnected(reason)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        error = self._error or Disconnected(_GONE)
        if self.is_open.done():
            self._on_lost(error)
        else:
            self.is_open.set_exception(error)


async def open_websocket(
    path: Path, on_text: Callable[[bytes], None], on_lost: Callable[[Disconnected], None]
) -> WebSocket:
    """Connect to a socket, with a path of any length; raises Disconnected if the server has no WebSocket."""
    loop = asyncio.get_running_loop()
    try:
        plain = connect_socket(path, can_wait=False)
    except OSError as error:
        raise Disconnected(f"no process listens at {path}: {error.strerror}") from error
    _, websocket = await loop.create_unix_connection(lambda: WebSocket(on_text, on_lost), sock=plain)
    try:
        async with asyncio.timeout(_OPEN_LIMIT_S):
            await asyncio.shield(websocket.is_open)
    except TimeoutError:
        websocket.is_open.add_done_callback(_pass_over)
        websocket.close()
        raise Disconnected("the process that listens there does not answer") from None
    return websocket


def _pass_over(opening: "asyncio.Future[None]") -> None:
    with suppress(Disconnected):
        opening.result()
