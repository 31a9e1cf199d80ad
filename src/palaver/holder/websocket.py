"""A WebSocket client on a Unix socket: sends and receives whole texts. It does not reconnect.

The library `websockets` reads and writes the frames. Nothing is compressed: both ends are on this machine.

A separate module, because the library takes tens of milliseconds to load: not at the start of Codex.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import WebSocketURI

from palaver.errors import Disconnected
from palaver.home import connect_socket

LIMIT_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The largest message; a larger one ends the connection."""

# The library requires an address, but only uses it in the header: the socket is connected already.
_URI: Final = WebSocketURI(secure=False, host="localhost", port=80, path="/", query="")
_OPEN_LIMIT_S: Final = 10.0
_GONE: Final = "the other end has closed"


class WebSocket(asyncio.Protocol):
    """One connection. `on_lost` is called once, whichever side ended it; no text follows it."""

    def __init__(
        self,
        on_text: Callable[[bytes], None],
        on_lost: Callable[[Disconnected], None],
        limit_bytes: int = LIMIT_MESSAGE_BYTES,
    ) -> None:
        self._on_text = on_text
        self._on_lost = on_lost
        self._frames = ClientProtocol(_URI, max_size=limit_bytes)
        self._kind = Opcode.TEXT
        self._pieces: list[bytes] = []
        """The kind and the pieces of a message whose last piece has not arrived."""
        self._transport: asyncio.Transport | None = None
        self._error: Disconnected | None = None
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done after the handshake; raises if the handshake failed."""

    def send(self, text: bytes) -> None:
        """Send one text, after all earlier ones. It is lost if the connection is lost."""
        if self._frames.state is State.OPEN:
            self._frames.send_text(text)
            self._write()

    def close(self) -> None:
        """Close the connection after the sent texts."""
        if self._transport is not None and not self._transport.is_closing():
            if self._frames.state is State.OPEN:
                self._frames.send_close(1000)
                self._write()
            self._transport.close()

    def _write(self) -> None:
        assert self._transport is not None
        # An empty piece asks for the end of the connection, which `close` and `_give_up` bring about.
        self._transport.writelines([data for data in self._frames.data_to_send() if data])

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._frames.send_request(self._frames.connect())
        self._write()

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        # Before the events: a close frame aborts the connection below, and its reply would never be sent.
        self._write()  # The replies to pings and to a close.
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._take(event)
            elif self._frames.handshake_exc is None:
                self.is_open.set_result(None)
        if self._frames.handshake_exc is not None:
            self._give_up("the process that listens there does not speak WebSocket")
        elif self._frames.parser_exc is not None:
            self._give_up(f"a message cannot be read: {self._frames.parser_exc}")

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._give_up(_GONE)
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            # Binary messages are collected too, and dropped: their later pieces look like those of a text.
            if frame.opcode is not Opcode.CONT:
                self._kind = frame.opcode
            self._pieces.append(bytes(frame.data))
            if frame.fin:
                text, self._pieces = b"".join(self._pieces), []
                if self._kind is Opcode.TEXT:
                    self._on_text(text)

    def _give_up(self, reason: str) -> None:
        assert self._transport is not None
        self._error = self._error or Disconnected(reason)
        # Not `close`: the other end may never read what is still unsent.
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        error = self._error or Disconnected(_GONE)
        # A failed handshake is reported to the caller of `open_websocket` alone.
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
        # Shielded: `connection_lost` would take a cancelled `is_open` for the end of an open connection.
        async with asyncio.timeout(_OPEN_LIMIT_S):
            await asyncio.shield(websocket.is_open)
    except TimeoutError:
        websocket.is_open.add_done_callback(_pass_over)
        websocket.close()
        raise Disconnected(f"the process that listens at {path} does not respond") from None
    return websocket


def _pass_over(opening: "asyncio.Future[None]") -> None:
    with suppress(Disconnected):
        opening.result()
