"""A WebSocket client on a Unix socket: sends and receives whole texts. It does not reconnect."""

import asyncio
import base64
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palaver.errors import BadRequest, Disconnected
from palaver.home import connect_socket

# --------------------
# The client side of the WebSocket protocol: the handshake, and encoding and decoding of frames. Pure.
#
# No compression or extension is offered, so none must be decoded. Keys and masks are parameters.

TEXT: Final = 1
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

_CONTINUATION: Final = 0
_BINARY: Final = 2
_KNOWN: Final = frozenset({_CONTINUATION, TEXT, _BINARY, CLOSE, PING, PONG})
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LIMIT_HEAD_BYTES: Final = 16 * 1024
LIMIT_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The largest message; a larger one ends the connection."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole message, or one control frame."""

    kind: int
    data: bytes


def handshake(key: bytes) -> bytes:
    """Encode the request that opens a WebSocket; `key` is 16 random bytes."""
    lines = (
        b"GET / HTTP/1.1",
        b"Host: localhost",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: " + base64.b64encode(key),
        b"Sec-WebSocket-Version: 13",
    )
    return b"\r\n".join(lines) + b"\r\n\r\n"


def split_answer(data: bytes, key: bytes) -> bytes | None:
    """Check the response to a handshake and return the bytes after it; None while it is incomplete."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        if len(data) > _LIMIT_HEAD_BYTES:
            raise BadRequest("the process that listens there does not answer a handshake")
        return None
    first, *lines = head.split(b"\r\n")
    fields = {
        name.strip().lower(): value.strip() for name, _, value in (one.partition(b":") for one in lines)
    }
    if first.split(b" ")[1:2] != [b"101"] or fields.get(b"sec-websocket-accept") != accept_for(key):
        raise BadRequest("the process that listens there does not speak WebSocket")
    return rest


def accept_for(key: bytes) -> bytes:
    """Return the accept value that the server must send for a key."""
    return base64.b64encode(hashlib.sha1(base64.b64encode(key) + _MAGIC, usedforsecurity=False).digest())


def frame_to_bytes(frame: Frame, mask: bytes = b"") -> bytes:
    """Encode one whole frame; a client masks it with four random bytes."""
    length = len(frame.data)
    bit = 0x80 if mask else 0
    if length < 126:
        head = bytes((0x80 | frame.kind, bit | length))
    elif length < 1 << 16:
        head = bytes((0x80 | frame.kind, bit | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((0x80 | frame.kind, bit | 127)) + length.to_bytes(8, "big")
    return head + mask + (_masked(frame.data, mask) if mask else frame.data)


def _masked(data: bytes, mask: bytes) -> bytes:
    """Apply or remove a mask, which is the same operation. Uses whole integers because bytes are slow."""
    whole = mask * (len(data) // 4 + 1)
    mixed = int.from_bytes(data, "big") ^ int.from_bytes(whole[: len(data)], "big")
    return mixed.to_bytes(len(data), "big")


class WebSocketFrameReader:
    """Splits a stream into frames and joins the pieces of a message. An incomplete frame is kept."""

    def __init__(self, limit_bytes: int = LIMIT_MESSAGE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._kind = 0
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield every complete frame; raises BadRequest if they are not WebSocket frames."""
        self._buffer += data
        while (found := self._cut()) is not None:
            is_last, kind, payload = found
            if kind in (CLOSE, PING, PONG):
                yield Frame(kind, payload)
            elif (frame := self._join(is_last, kind, payload)) is not None:
                yield frame

    def _cut(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        kind, length, start = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if buffer[0] & 0x70 or kind not in _KNOWN:
            raise BadRequest("a frame cannot be read")
        if length > 125:
            start += 2 if length == 126 else 8
            if len(buffer) < start:
                return None
            length = int.from_bytes(buffer[2:start], "big")
        if length + sum(map(len, self._pieces)) > self._limit_bytes:
            raise BadRequest(f"a message is larger than {self._limit_bytes} bytes")
        mask = b""
        if buffer[1] & 0x80:
            mask, start = bytes(buffer[start : start + 4]), start + 4
        if len(buffer) < start + length:
            return None
        payload = bytes(buffer[start : start + length])
        is_last = bool(buffer[0] & 0x80)
        del buffer[: start + length]
        return is_last, kind, _masked(payload, mask) if mask else payload

    def _join(self, is_last: bool, kind: int, payload: bytes) -> Frame | None:
        if (kind == _CONTINUATION) is not bool(self._kind):
            raise BadRequest("the pieces of a message do not follow each other")
        self._kind = self._kind or kind
        self._pieces.append(payload)
        if not is_last:
            return None
        frame = Frame(self._kind, b"".join(self._pieces))
        self._kind, self._pieces = 0, []
        return frame


_OPEN_LIMIT_S: Final = 10.0
_GONE: Final = "the other end has closed"


class WebSocket(asyncio.Protocol):
    """One connection. `on_lost` is called once, whichever side ended it; no text follows it."""

    def __init__(self, on_text: Callable[[bytes], None], on_lost: Callable[[Disconnected], None]) -> None:
        self._on_text = on_text
        self._on_lost = on_lost
        self._key = os.urandom(16)
        self._head: bytes | None = b""
        self._frames = WebSocketFrameReader()
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
