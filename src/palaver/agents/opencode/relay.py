"""The server of OpenCode reached through its plugin: lines of JSON on two pipes instead of HTTP.

The plugin sends events and replies to requests. When its pipe ends, OpenCode has exited.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Final

import msgspec

from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.net.http_wire import Head
from palaver.agents.opencode.wire import HEALTH, Said
from palaver.harness.hook_news import as_map

_LIMIT_EVENTS: Final = 10_000
"""Events that may wait for a busy follower; when full, the follower loses the stream and must start again."""
_CONNECTED: Final = b'{"type":"server.connected","properties":{}}'


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the plugin: an event, a session that received a prompt, or a response."""

    arguments: tuple[str, ...] | None = None
    """The command line of OpenCode; sent in the plugin's first line."""
    event: msgspec.Raw = msgspec.Raw(b"")
    begun: str = ""
    answer: int = 0
    status: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


_decode: Final = msgspec.json.Decoder(Told).decode
_encode: Final = msgspec.json.Encoder().encode


def told_from_line(line: bytes) -> Told | None:
    """Decode one line; None if it is malformed."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Relay:
    """One OpenCode. `write` sends a line to its plugin."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[tuple[Head, bytes]]] = {}
        self._followers: set[asyncio.Queue[bytes | None]] = set()
        self._is_closed = False

    def tell(self, session: str, text: str) -> None:
        """Set the instructions that a session's model receives with every request."""
        self._write(_encode({"session": session, "told": text}))

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""
        if self._is_closed:
            raise NotSent("OpenCode has ended")
        if path == HEALTH:
            return Head(status=200, headers={}), b""
        number = next(self._numbers)
        answer: asyncio.Future[tuple[Head, bytes]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        content = msgspec.Raw(body) if body is not None else None
        self._write(_encode({"ask": number, "method": method, "path": path, "body": content}))
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError as error:
            raise Lost("no answer came in time") from error
        finally:
            self._asked.pop(number, None)

    async def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events in order. Raises Lost when OpenCode has exited or too many events were waiting."""
        events: asyncio.Queue[bytes | None] = asyncio.Queue(_LIMIT_EVENTS)
        self._followers.add(events)
        try:
            yield _CONNECTED
            while (event := await events.get()) is not None and events in self._followers:
                yield event
        finally:
            self._followers.discard(events)
        raise Lost("OpenCode has ended" if self._is_closed else "too much was said at once")

    def hear(self, told: Told) -> None:
        """Apply one line of the plugin."""
        if told.answer:
            answer = self._asked.get(told.answer)
            if answer is not None and not answer.done():
                answer.set_result((Head(status=told.status, headers={}), bytes(told.body)))
        elif event := bytes(told.event):
            for events in list(self._followers):
                if events.full():
                    self._followers.discard(events)
                else:
                    events.put_nowait(event)

    def close(self) -> None:
        """Fail all requests and end all streams: OpenCode has exited."""
        self._is_closed = True
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Lost("OpenCode has ended"))
        for events in list(self._followers):
            if events.full():
                events.get_nowait()
            events.put_nowait(None)


def session_in(said: Said) -> str:
    """Return the session that received a prompt, according to an event; empty for any other event."""
    info = as_map(said.about.get("info"))
    if said.type == "message.updated" and info.get("role") == "user" and "summary" not in info:
        return str(said.about.get("sessionID") or "")
    return ""
