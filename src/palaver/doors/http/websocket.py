"""The sockets of `/ws`: authentication, requests one after the other, and pushes to those that listen.

The protocol is in `doors/ws.py`. One handler of the log serves all connections, and a push is encoded once
for each mailbox. Listening makes no agent present and changes nothing in the ledger. A client that reads too
slowly is disconnected and never delays others; it continues from the seq that the close frame names.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Receive, Scope, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from palaver.doors.http.app import FOR_IRC_ONLY, answer, bearer_token, error_reply
from palaver.doors.ws import (
    AUTH,
    AUTH_TIMEOUT,
    INVALID_TOKEN,
    MUST_AUTHENTICATE,
    NO_FRAME,
    BadFrame,
    ClientFrame,
    Listen,
    Reply,
    answer_frame,
    auth_error,
    encode_frame,
    error_frame,
    push_frame,
    read_frame,
)
from palaver.errors import BadRequest, PalaverError, Unavailable
from palaver.identity.tokens import Token
from palaver.protocol.paths import routed_message, split_mailbox
from palaver.services.paths import NewMail
from palaver.services.services import Services

_logger: Final = logging.getLogger("palaver.doors")

LIMIT_FRAME_BYTES: Final = 1024 * 1024
"""Of one message of a client; a longer one ends the connection with 1009."""
PING_EVERY_S: Final = 30.0
"""Between two pings, and the time for the answer to one."""

_INTERNAL: Final = "an internal error in the daemon"

_INVALID_UTF8: Final = 1007
_TOO_BIG: Final = 1009
_FAILED: Final = 1011
_RESTART: Final = 1012
_NO_AUTH: Final = 4001
_BAD_TOKEN: Final = 4003
_TOO_SLOW: Final = 4008


# --------------------
# One connection as uvicorn serves it: the bytes, with clean ends.

_CLOSE_S: Final = 5.0
"""Seconds in which a client must answer a close frame; then the connection is cut."""
_LIMIT_FRAGMENTS: Final = 10_000
"""Of one message. Empty fragments have no bytes that another limit would count."""
_TOO_MANY_HEADERS: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A connection that can always be closed, also while its client does not read.

    The close frame is sent at once. What the client still sends is read and dropped until it closes too:
    otherwise the system would reset the connection, and the client might never see why.
    """

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.transport.write(_TOO_MANY_HEADERS)
            self.transport.close()

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "websocket.close" and self.handshake_complete:
            self._end(message.get("code") or _FAILED, message.get("reason") or "")
            return
        await self.writable.wait()
        if not self.close_sent:  # it may have been closed in the meantime
            await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # refused; the library would log an error for each

    def shutdown(self) -> None:
        if not self.handshake_complete:
            super().shutdown()
        else:
            self._end(_RESTART, "the bus restarts or stops")

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(self.frames):
            self.frames = []
            self._end(_INVALID_UTF8, "the text is not valid UTF-8")
        else:
            super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            self.frames = []
        elif len(self.frames) >= _LIMIT_FRAGMENTS:
            self._end(_TOO_BIG, f"a message has at most {_LIMIT_FRAGMENTS} fragments")
        else:
            super().handle_cont(event)

    def handle_parser_exception(self) -> None:
        if not self.close_sent:
            assert self.conn.close_sent is not None  # the library has failed the connection
            self._linger(self.conn.close_sent.code, self.conn.close_sent.reason)

    def keepalive_timeout(self) -> None:
        self.pong_timer = None
        self._end(_FAILED, "the client did not answer a ping")

    def _end(self, code: int, reason: str) -> None:
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_close(code, reason)
            self._linger(code, reason)

    def _linger(self, code: int, reason: str) -> None:
        """Send the waiting close frame, and read on until the client has closed, but not for long."""
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(_CLOSE_S, self.transport.abort)


def _is_utf8(pieces: list[bytes]) -> bool:
    try:
        b"".join(pieces).decode()
    except UnicodeDecodeError:
        return False
    return True


# --------------------
# The door: the connections, those that listen, and those that are not identified yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """The limits of connections. Tests set their own."""

    auth_s: float = 5.0
    """Seconds in which a client must identify itself."""
    refuse_s: float = 1.0
    """Seconds in which a client must read why it is refused; it may not read at all."""
    unidentified: int = 64
    """Connections that have not identified themselves; further ones are refused."""
    frames: int = 1024
    waiting_bytes: int = 4 * 1024 * 1024
    """How much may wait for a client; above either limit it reads too slowly."""
    mailboxes: int = 1000
    """That one connection may listen to."""


class WebSocketDoor:
    """The application for `/ws`. The gate has checked the host, the origin and the path."""

    def __init__(self, services: Services, limits: SocketLimits | None = None) -> None:
        self.services = services
        self.limits = limits or SocketLimits()
        self.listeners = _Listeners(services)
        self.unidentified = 0
        """Open connections that have not identified themselves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the request to connect
        secret = bearer_token(scope)
        if secret is None and self.unidentified >= self.limits.unidentified:
            sentence = "too many connections wait here for a token: try again"
            await answer(send, error_reply(503, Unavailable.code, sentence), kind="websocket.http")
            return
        await send({"type": "websocket.accept"})
        await _Connection(self, receive, send).run(secret)


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """The text of a frame that waits. A push has a mailbox and a seq."""

    text: str
    size_bytes: int
    mailbox: str = ""
    seq: int = 0


def _outgoing(text: str, mailbox: str = "", seq: int = 0) -> _Outgoing:
    return _Outgoing(text, len(text.encode()), mailbox, seq)


class _Listeners:
    """The connections that listen, by mailbox. Reads the log only while there are any."""

    def __init__(self, services: Services) -> None:
        self._paths = services.paths
        self._at: dict[str, dict[_Connection, None]] = {}
        self._stop: Callable[[], None] | None = None

    def add(self, mailbox: str, connection: "_Connection") -> None:
        """Push the messages of a mailbox to a connection from now on. A repeat changes nothing."""
        self._at.setdefault(mailbox, {})[connection] = None
        if self._stop is None:
            self._stop = self._paths.watch(self._hear)

    def remove(self, mailbox: str, connection: "_Connection") -> None:
        """Stop pushing the messages of a mailbox to a connection. A repeat changes nothing."""
        if (there := self._at.get(mailbox)) is not None:
            there.pop(connection, None)
            if not there:
                del self._at[mailbox]
        if not self._at and self._stop is not None:
            self._stop()
            self._stop = None

    def _hear(self, mail: NewMail) -> None:
        for mailbox in mail.mailboxes:
            if there := self._at.get(mailbox):
                message = routed_message(mail.event, mailbox)
                push = _outgoing(push_frame(mailbox, message, mail.seq), mailbox, mail.seq)
                for connection in tuple(there):
                    connection.push(push)


# --------------------
# One connection.


@dataclass(eq=False, slots=True)
class _Cursor:
    """How far a connection is in a mailbox that it listens to."""

    seq: int
    """Every push up to it was queued, or was not asked for."""
    is_replayed: bool = False
    """Older messages are read from the log; new ones follow from there."""
    has_news: bool = False
    """A message came while older ones were read."""


@dataclass(eq=False)
class _Connection:
    door: WebSocketDoor
    receive: Receive
    send: Send
    _waiting: deque[_Outgoing] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _has_frames: asyncio.Event = field(default_factory=asyncio.Event)
    _has_room: asyncio.Event = field(default_factory=asyncio.Event)
    _cursors: dict[str, _Cursor] = field(default_factory=dict)
    _is_ended: bool = False

    async def run(self, secret: str | None) -> None:
        """Serve the connection until it ends. `secret` is the token of the request, if it has one."""
        try:
            token = await (self._wait_for_token() if secret is None else self._identify(NO_FRAME, secret))
            if token is not None:
                await self._serve(token)
        except OSError:  # the client is gone
            pass

    # Authentication. Nothing is queued yet: the few frames are sent directly.

    async def _wait_for_token(self) -> Token | None:
        self.door.unidentified += 1
        try:
            async with asyncio.timeout(self.door.limits.auth_s):
                return await self._read_token()
        except TimeoutError:
            await self._refuse(auth_error(AUTH_TIMEOUT), _NO_AUTH, AUTH_TIMEOUT)
            return None
        finally:
            self.door.unidentified -= 1

    async def _read_token(self) -> Token | None:
        while True:
            try:
                frame = await self._next_frame()
            except BadFrame as error:
                await self._write(encode_frame(error_frame(str(error))))
                continue
            if frame is None:
                return None
            if frame.type == AUTH:
                token = await self._identify(frame, frame.token)
                if token is not None:
                    await self._write(encode_frame(frame.answered("auth.ok")))
                return token
            await self._write(encode_frame(auth_error(MUST_AUTHENTICATE, frame)))

    async def _identify(self, frame: ClientFrame, secret: str) -> Token | None:
        try:
            token = self.door.services.callers.tokens.find(secret)
        except PalaverError as error:
            await self._refuse(auth_error(str(error), frame), _FAILED, error.code)
            return None
        if token is None:
            await self._refuse(auth_error(INVALID_TOKEN, frame), _BAD_TOKEN, INVALID_TOKEN)
        elif token.is_persons:
            await self._refuse(auth_error(FOR_IRC_ONLY, frame), _BAD_TOKEN, FOR_IRC_ONLY)
            return None
        return token

    async def _refuse(self, reply: Reply, code: int, reason: str) -> None:
        """Send a reply and close. A client that does not read gets only the close frame."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.door.limits.refuse_s):
                await self._write(encode_frame(reply))
        await self.send({"type": "websocket.close", "code": code, "reason": reason})

    async def _next_frame(self) -> ClientFrame | None:
        """Return the next frame; None after the last one. Raises BadFrame."""
        message = await self.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        if text is None:
            raise BadFrame("a frame must be a text")
        return read_frame(text)

    async def _write(self, text: str) -> None:
        await self.send({"type": "websocket.send", "text": text})

    # Requests

    async def _serve(self, token: Token) -> None:
        tokens = self.door.services.callers.tokens
        self._set_room()
        async with asyncio.TaskGroup() as self._tasks:
            self._writer = self._tasks.create_task(self._write_all())

            def check() -> None:
                if not tokens.is_valid(token):
                    self._end(_BAD_TOKEN, "the token has ended")

            stop = tokens.watch(check)
            timer = self._tasks.create_task(self._check_at(token.expires_ms, check))
            try:
                await self._answer_all(token, check)
            finally:
                stop()
                timer.cancel()
                self._end(_FAILED, _INTERNAL)

    async def _check_at(self, time_ms: int, check: Callable[[], None]) -> None:
        """Check a token when its time is over."""
        clock = self.door.services.clock
        if time_ms:
            while (left_ms := time_ms - clock.now_ms()) > 0:  # noqa: ASYNC110 - it waits for a time
                await asyncio.sleep(min(left_ms / 1000, 3600))
            check()

    async def _answer_all(self, token: Token, check: Callable[[], None]) -> None:
        while True:
            await self._has_room.wait()
            try:
                frame = await self._next_frame()
            except BadFrame as error:
                self._reply(error_frame(str(error)))
                continue
            check()
            if frame is None or self._is_ended:
                return
            try:
                reply, answer = await answer_frame(self.door.services, token, frame)
                listen = answer.listen
                if listen is not None:
                    self._check_count(listen)
            except BadRequest as error:
                self._reply(frame.answered(f"{frame.type}.error", {"error": str(error), "code": error.code}))
                continue
            except Exception:
                _logger.exception("a request of the WebSocket failed")
                return
            self._reply(reply)
            if listen is not None:
                self._listen(listen)
            if answer.unlisten:
                self._unlisten(answer.unlisten)

    # Pushes

    def push(self, frame: _Outgoing) -> None:
        """Queue a new message, unless the connection has it already."""
        cursor = self._cursors[frame.mailbox]
        if cursor.is_replayed:
            cursor.has_news = True
        elif frame.seq > cursor.seq:
            cursor.seq = frame.seq
            self._put(frame)

    def _check_count(self, listen: Listen) -> None:
        limit = self.door.limits.mailboxes
        if listen.mailbox not in self._cursors and len(self._cursors) >= limit:
            raise BadRequest(f"a connection listens to at most {limit} mailboxes; use another connection")

    def _listen(self, listen: Listen) -> None:
        """Push a mailbox from now on, or again from an earlier seq."""
        if self._is_ended or (listen.after is None and listen.mailbox in self._cursors):
            return
        last = self.door.services.queries.last()
        cursor = _Cursor(last if listen.after is None else min(listen.after, last))
        self._cursors[listen.mailbox] = cursor
        self.door.listeners.add(listen.mailbox, self)
        if listen.after is not None:
            cursor.is_replayed = True
            self._tasks.create_task(self._replay(listen.mailbox, cursor))

    def _unlisten(self, mailbox: str) -> None:
        self._cursors.pop(mailbox, None)
        self.door.listeners.remove(mailbox, self)

    async def _replay(self, mailbox: str, cursor: _Cursor) -> None:
        """Queue the messages after the cursor, as fast as the client reads; then new ones are pushed."""
        try:
            while cursor.is_replayed:
                cursor.has_news = False
                async with aclosing(self.door.services.paths.mail_after(mailbox, cursor.seq)) as older:
                    async for seq, message in older:
                        await self._has_room.wait()
                        if self._cursors.get(mailbox) is not cursor:
                            return
                        cursor.seq = seq
                        self._put(_outgoing(push_frame(mailbox, message, seq), mailbox, seq))
                cursor.is_replayed = cursor.has_news  # No new message can come before the next await.
        except PalaverError as error:
            agent, session = split_mailbox(mailbox)
            kind = "msg.session.listen.error" if session else "msg.listen.error"
            names = {"agentId": agent, "sessionId": session} if session else {"agentId": agent}
            self._unlisten(mailbox)
            self._reply({"type": kind, **names, "error": str(error), "code": error.code})
        except Exception:
            _logger.exception("messages of %s could not be replayed", mailbox)
            self._end(_FAILED, _INTERNAL)

    # Frames to the client

    def _reply(self, reply: Reply) -> None:
        self._put(_outgoing(encode_frame(reply)))

    def _put(self, frame: _Outgoing) -> None:
        if self._is_ended:
            return
        self._waiting.append(frame)
        self._waiting_bytes += frame.size_bytes
        self._has_frames.set()
        self._set_room()
        if self._is_over():
            # The writer has its turn first: a batch of messages alone does not make a client slow.
            asyncio.get_running_loop().call_soon(self._end_if_slow)

    def _set_room(self) -> None:
        """Stop reading requests and older messages for a client that has enough to read."""
        limits = self.door.limits
        is_low = len(self._waiting) < limits.frames // 2 and self._waiting_bytes < limits.waiting_bytes // 2
        if is_low or self._is_ended:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _is_over(self) -> bool:
        limits = self.door.limits
        return len(self._waiting) > limits.frames or self._waiting_bytes > limits.waiting_bytes

    def _end_if_slow(self) -> None:
        if not self._is_ended and self._is_over():
            self.door.services.metrics.count_slow_follower("websocket")
            self._end(_TOO_SLOW, f"too slow; continue with after {self._seq_to_continue()}")

    def _seq_to_continue(self) -> int:
        """Return a seq after which every message that the client will not get can be replayed."""
        unsent: dict[str, int] = {}
        for frame in self._waiting:
            if frame.mailbox:
                unsent.setdefault(frame.mailbox, frame.seq - 1)
        replayed = [cursor.seq for cursor in self._cursors.values() if cursor.is_replayed]
        return min([self.door.services.queries.last(), *unsent.values(), *replayed])

    async def _write_all(self) -> None:
        """Send the waiting frames. One that is being sent still counts as waiting."""
        try:
            while True:
                await self._has_frames.wait()
                while self._waiting:
                    await self._write(self._waiting[0].text)
                    self._waiting_bytes -= self._waiting.popleft().size_bytes
                    self._set_room()
                self._has_frames.clear()
        except OSError:  # The client is gone; the next frame from it says so.
            self._end(_FAILED, "")

    def _end(self, code: int, reason: str) -> None:
        """Close the connection at once, also if the client does not read. A repeat changes nothing."""
        if self._is_ended:
            return
        self._is_ended = True
        self._set_room()
        for mailbox in self._cursors:
            self.door.listeners.remove(mailbox, self)
        self._cursors.clear()
        self._writer.cancel()
        self._closing = asyncio.ensure_future(
            self.send({"type": "websocket.close", "code": code, "reason": reason})
        )
