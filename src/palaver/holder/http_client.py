"""An HTTP client for a local server: one connection per request, and streams of events.

It never retries: only the caller knows whether a repeated request is safe.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

# --------------------
# The part of HTTP/1.1 that a local client needs: a request, a response, and streams of events. Pure.
#
# A response is read as it arrives: its head, then its body by length, in chunks, or until the end. An
# oversized head is refused. Redirects and compression are not supported and not requested.

LIMIT_HEAD_BYTES: Final = 64 * 1024
LIMIT_EVENT_BYTES: Final = 16 * 1024 * 1024
"""The largest event; a longer one is skipped."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\Z")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?\Z")
_NO_BODY: Final = frozenset({204, 304})
_LIMIT_NUMBER: Final = 18


class BadAnswer(ValueError):
    """The bytes are not an HTTP response that can be read here."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300


def basic_auth(user: str, password: str) -> str:
    """Return the value of the header for basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def request_to_bytes(
    method: str, path: str, host: str, headers: Mapping[str, str], body: bytes | None = None
) -> bytes:
    """Encode a request. The connection is for this request only."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class AnswerReader:
    """Reads one response from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left: int | None = None
        """Bytes of the body or the chunk that are still to come; None means until the end."""
        self._is_chunked = False
        self.head: Head | None = None
        self.is_done = False

    def feed(self, data: bytes) -> bytes:
        """Add bytes and return the part of the body in them. Raises BadAnswer."""
        if self.is_done:
            return b""
        self._buffer += data
        while self.head is None or self.head.status < 200:
            if not self._read_head():
                return b""
        return self._read_chunks() if self._is_chunked else self._read_plain()

    def end(self) -> None:
        """Handle the end of the connection. Raises BadAnswer if the response is incomplete."""
        if self.head is not None and self._left is None and not self._is_chunked:
            self.is_done = True
        if not self.is_done:
            raise BadAnswer("the answer ends in its middle")

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > LIMIT_HEAD_BYTES:
            if len(self._buffer) > LIMIT_HEAD_BYTES:
                raise BadAnswer("the head of the answer is too long")
            return False
        first, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        found = _STATUS.match(first)
        if found is None:
            raise BadAnswer("the answer does not begin like one")
        headers = {}
        for line in lines:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        self.head = Head(int(found[1]), headers)
        if self.head.status >= 200:
            self._set_length(self.head)
        return True

    def _set_length(self, head: Head) -> None:
        length = head.headers.get("content-length", "")
        if head.status in _NO_BODY:
            self._left = 0
        elif "chunked" in head.headers.get("transfer-encoding", "").lower():
            self._is_chunked, self._left = True, 0
        elif length:
            if not length.isascii() or not length.isdigit() or len(length) > _LIMIT_NUMBER:
                raise BadAnswer("the length of the reply is not a number")
            self._left = int(length)
        self.is_done = self._left == 0 and not self._is_chunked

    def _read_plain(self) -> bytes:
        if self._left is None:
            found, self._buffer = bytes(self._buffer), bytearray()
            return found
        found = bytes(self._buffer[: self._left])
        del self._buffer[: len(found)]
        self._left -= len(found)
        self.is_done = self._left == 0
        return found

    def _read_chunks(self) -> bytes:
        found = bytearray()
        while not self.is_done:
            assert self._left is not None
            if self._left:
                piece = self._buffer[: self._left]
                if not piece:
                    break
                found += piece
                del self._buffer[: len(piece)]
                self._left -= len(piece)
            elif not self._begin_chunk():
                break
        return bytes(found)

    def _begin_chunk(self) -> bool:
        """Read the size of the next chunk, after the line end of the previous one."""
        start = 2 if self._buffer.startswith(b"\r\n") else 0
        end = self._buffer.find(b"\r\n", start)
        if end < 0:
            if len(self._buffer) > LIMIT_HEAD_BYTES:
                raise BadAnswer("the size of a chunk is too long")
            return False
        size = _SIZE.match(bytes(self._buffer[start:end]))
        if size is None:
            raise BadAnswer("the size of a chunk is not a number")
        del self._buffer[: end + 2]
        self._left = int(size[1], 16)
        self.is_done = self._left == 0
        return True


class EventReader:
    """Finds the events in a stream: the text of `data:` lines, joined. All other lines are skipped."""

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
            del self._rest[5:]  # Keep the start of the line: it says which kind of line it is.

    def _read_line(self, line: bytes) -> bytes | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            was_dropped, self._is_dropping = self._is_dropping, False
            return b"\n".join(data) if data and not was_dropped else None
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            self._size += len(value)
            if self._size > self._limit_bytes:
                self._is_dropping = True
                self._data = [b""]
            else:
                self._data.append(value)
        return None


LIMIT_BODY_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_CONNECT_S: Final = 5.0
_HOST: Final = "127.0.0.1"


class NotSent(OSError):
    """The connection failed: nothing was sent."""


class Lost(OSError):
    """The request was sent and no complete response came: its outcome is unknown."""


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
        async with self._send(method, path, body) as (reader, answer):
            found = bytearray()
            try:
                async with asyncio.timeout(limit_s):
                    while not answer.is_done:
                        if piece := await reader.read(_READ_BYTES):
                            found += answer.feed(piece)
                        else:
                            answer.end()
                        if len(found) > LIMIT_BODY_BYTES:
                            raise Lost("the answer is too long")
            except (OSError, BadAnswer, TimeoutError) as error:
                raise Lost(str(error) or "no answer came in time") from error
            assert answer.head is not None  # `is_done` is set after the head.
            return answer.head, bytes(found)

    async def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events of a stream in order. Raises NotSent or Lost.

        A stream is lost if it does not begin within `first_s` seconds, or is silent for longer than
        `silence_s`.
        """
        headers = {"Accept": "text/event-stream"}
        async with self._send("GET", path, None, headers) as (reader, answer):
            events, limit_s = EventReader(), first_s
            try:
                while not answer.is_done:
                    async with asyncio.timeout(limit_s):
                        piece = await reader.read(_READ_BYTES)
                    if not piece:
                        answer.end()
                    data = answer.feed(piece)
                    if answer.head is not None and not answer.head.is_ok:
                        raise Lost(f"it answered {answer.head.status}")
                    for event in events.feed(data):
                        limit_s = silence_s
                        yield event
            except (BadAnswer, TimeoutError, ConnectionError) as error:
                raise Lost(str(error) or "it was silent for too long") from error

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, AnswerReader]]:
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(_HOST, self.port)
        except (OSError, TimeoutError) as error:
            raise NotSent(str(error) or "nobody answers") from error
        try:
            shown = {"Authorization": basic_auth(self.user, self.password), **(headers or {})}
            host = f"{_HOST}:{self.port}"
            writer.write(request_to_bytes(method, path, host, shown, body))
            yield reader, AnswerReader()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
