"""An HTTP client for a local server: one connection per request, and streams of events.

It never retries: only the caller knows whether a repeated request is safe.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from palaver.agents.net.http_wire import (
    AnswerReader,
    BadAnswer,
    EventReader,
    Head,
    basic_auth,
    request_to_bytes,
)

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
