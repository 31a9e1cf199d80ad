"""An HTTP client for the local server of OpenCode: one connection per request, and streams of events.

It never retries: only the caller knows whether a repeated request is safe.

A separate module from `opencode.py`, because it does not know which paths the server has.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from palaver.harness.opencode.wire import Head, Lost, NotSent

# --------------------
# One HTTP request and its response, encoded and decoded by the library `h11`. Does no input or output.
#
# The library takes several milliseconds to load, and the user waits for the start of a harness: so the first
# request loads it. Redirects and compression are not supported and not requested.

LIMIT_HEAD_BYTES: Final = 64 * 1024


class HttpExchange:
    """A request and the response to it. The connection is for this exchange only."""

    def __init__(
        self, method: str, path: str, host: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> None:
        import h11  # slow to load, as above

        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT_HEAD_BYTES)
        fields = {"Host": host, "Connection": "close", **headers}
        if body is not None:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        events = [
            h11.Request(method=method, target=path, headers=list(fields.items())),
            h11.Data(data=body or b""),
            h11.EndOfMessage(),
        ]
        self.request = b"".join(self._connection.send(event) or b"" for event in events)
        self.head: Head | None = None
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Add bytes and return the part of the body in them; no bytes mean the end of the connection.

        Raises Lost if they are not a response, or if it ends too early.
        """
        import h11

        found = bytearray()
        try:
            self._connection.receive_data(data)
            while not self.is_done:
                match self._connection.next_event():
                    case h11.Response(status_code=status):
                        self.head = Head(status)
                    case h11.Data(data=piece):
                        found += piece
                    case h11.EndOfMessage():
                        self.is_done = True
                    case h11.InformationalResponse():
                        continue
                    case h11.NEED_DATA:
                        break
                    case _:
                        raise Lost("the response is incomplete")
        except h11.RemoteProtocolError as error:
            raise Lost(str(error)) from error
        return bytes(found)


# --------------------
# The client: one connection per request, and the events in a stream.

LIMIT_EVENT_BYTES: Final = 16 * 1024 * 1024
"""The largest event; a longer one is skipped."""
LIMIT_BODY_BYTES: Final = 64 * 1024 * 1024
"""The longest response that `ask` keeps in memory."""
_READ_BYTES: Final = 64 * 1024
_CONNECT_S: Final = 5.0
_HOST: Final = "127.0.0.1"
_FIELD: Final = b"data:"


def basic_auth(user: str, password: str) -> str:
    """Return the value of the header for basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class EventReader:
    """Finds the events in a stream of server-sent events: the text of their `data:` lines, joined.

    All other lines are skipped.
    """

    def __init__(self, limit_bytes: int = LIMIT_EVENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._is_dropping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield every complete event."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._rest) + line
            self._rest.clear()
            if (event := self._read_line(whole.removesuffix(b"\r"))) is not None:
                yield event
        self._rest += rest
        if len(self._rest) > self._limit_bytes:
            self._is_dropping = True
            del self._rest[len(_FIELD) :]  # Keep the start of the line: it says which kind of line it is.

    def _read_line(self, line: bytes) -> bytes | None:
        if not line:  # An empty line ends an event.
            data, self._data, self._size = self._data, [], 0
            was_dropped, self._is_dropping = self._is_dropping, False
            return b"\n".join(data) if data and not was_dropped else None
        if line.startswith(_FIELD):
            value = line.removeprefix(_FIELD).removeprefix(b" ")
            self._size += len(value)
            if self._size > self._limit_bytes:
                self._is_dropping = True
                self._data = [b""]  # Free the memory: the event is dropped when it ends.
            else:
                self._data.append(value)
        return None


@dataclass(frozen=True, slots=True)
class HttpClient:
    """A client of one local server: its port and credentials."""

    port: int
    user: str
    password: str

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""
        async with self._send(method, path, body) as (reader, exchange):
            content = bytearray()
            try:
                async with asyncio.timeout(limit_s):
                    while not exchange.is_done:
                        content += exchange.feed(await reader.read(_READ_BYTES))
                        if len(content) > LIMIT_BODY_BYTES:
                            raise Lost("the response is too long")
            except OSError as error:  # Also a timeout.
                raise Lost(str(error) or "no response in time") from error
            assert exchange.head is not None  # `is_done` is set after the head.
            return exchange.head, bytes(content)

    async def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events of a stream in order. Raises NotSent or Lost.

        A stream is lost if it does not begin within `first_s` seconds, or is silent for longer than
        `silence_s`.
        """
        headers = {"Accept": "text/event-stream"}
        async with self._send("GET", path, None, headers) as (reader, exchange):
            events, limit_s = EventReader(), first_s
            try:
                while not exchange.is_done:
                    async with asyncio.timeout(limit_s):
                        piece = await reader.read(_READ_BYTES)
                    data = exchange.feed(piece)
                    if exchange.head is not None and not exchange.head.is_ok:
                        raise Lost(f"it responded with {exchange.head.status}")
                    for event in events.feed(data):
                        limit_s = silence_s
                        yield event
            except OSError as error:  # Also a timeout.
                raise Lost(str(error) or "it was silent for too long") from error

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, HttpExchange]]:
        """Connect and send a request; the connection is closed at the end of the block.

        Raises NotSent if it cannot connect: then the request has certainly not reached the server.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(_HOST, self.port)
        except OSError as error:
            raise NotSent(str(error) or "no process answers") from error
        try:
            fields = {"Authorization": basic_auth(self.user, self.password), **(headers or {})}
            exchange = HttpExchange(method, path, f"{_HOST}:{self.port}", fields, body)
            writer.write(exchange.request)
            yield reader, exchange
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
