"""The WebSocket at `/ws`: the requests of its protocol, and its connections."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec
from starlette.types import Receive, Scope, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from palaver.broker.context import Sent
from palaver.doors.http.app import FOR_IRC_ONLY, answer, bearer_token, error_reply
from palaver.errors import BadRequest, NotFound, NotYou, PalaverError, Unavailable, WhoAreYou, cut_name
from palaver.identity.accounts import ALL_AGENTS, Token
from palaver.protocol.agents import (
    GUEST_ROLE,
    SCRIPT_NAME,
    Caller,
    Standing,
    caller_for,
    check_name,
    full_name,
    split_name,
)
from palaver.protocol.envelope import Draft, decode_draft
from palaver.protocol.message import EXTERNAL
from palaver.protocol.paths import (
    DEFAULT_COMMAND,
    INTERNAL,
    OUTSIDE,
    Content,
    Delivered,
    RoutedMessage,
    check_session,
    mailbox_of,
    routed_message,
    split_mailbox,
)
from palaver.protocol.requests import Put
from palaver.services.paths import DEFAULT_MESSAGES, NewMail, Range
from palaver.services.services import Services

# --------------------
# Frames: reading what a client sends, and writing replies and pushes. Pure.

AUTH: Final = "auth"
PING: Final = "ping"
PONG: Final = "pong"
MUST_AUTHENTICATE: Final = "Must authenticate first"
INVALID_TOKEN: Final = "Invalid token"  # noqa: S105 - a sentence, not a token
AUTH_TIMEOUT: Final = "Authentication timeout"
INVALID_JSON: Final = "Invalid JSON"

_BAD_REQUEST: Final = BadRequest.code
_WHO_ARE_YOU: Final = WhoAreYou.code
_LIMIT_SHOWN: Final = 100
"""Characters of an unknown type that an error repeats."""

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode

Reply: TypeAlias = dict[str, object]


class BadFrame(Exception):
    """A frame that cannot be a request. Its reply is an `error` frame."""


class ClientFrame:
    """One frame of a client: its type, and its other fields, which are checked when they are read."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    @property
    def type(self) -> str:
        """The type; empty if it is missing or is not a text."""
        kind = self._fields.get("type")
        return kind if isinstance(kind, str) else ""

    def answered(self, type: str, fields: Reply | None = None) -> Reply:
        """Return a reply to this frame. It repeats `reqId` if the frame has one."""
        return {"type": type, **(fields or {}), **self.sent("reqId")}

    def sent(self, *names: str) -> Reply:
        """Return those of the fields that the frame has, for the reply to repeat."""
        return {name: self._fields[name] for name in names if name in self._fields}

    def text(self, name: str) -> str:
        """Return a required text. Raises BadRequest."""
        value = self.optional(name)
        if not value:
            raise BadRequest(f"{name} is required")
        return value

    def optional(self, name: str) -> str:
        """Return a text, empty if it is missing or null. Raises BadRequest."""
        return _text(name, self._fields.get(name))

    @property
    def payload(self) -> object:
        """The payload: any JSON value, None if it is missing."""
        return self._fields.get("payload")

    @property
    def token(self) -> str:
        """The token; empty if it is missing or is not a text."""
        token = self._fields.get("token")
        return token if isinstance(token, str) else ""

    def after(self) -> int | None:
        """Return the seq to continue from, or None. Raises BadRequest."""
        return _whole("after", self._fields.get("after"))

    def ids(self) -> list[str]:
        """Return the ids of messages. Raises BadRequest."""
        value = self._fields.get("messageIds")
        if value is None:
            raise BadRequest("messageIds is required")
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise BadRequest("messageIds must be a list of message ids")
        return value

    def envelope(self) -> Draft:
        """Return the envelope. Raises BadRequest with the name of its wrong field."""
        value = self._fields.get("envelope")
        if value is None:
            raise BadRequest("envelope is required")
        return decode_draft(_encode(value))

    def range(self) -> Range:
        """Return the messages that the options select. Raises BadRequest."""
        options = self._fields.get("options")
        if options is None:
            return Range()
        if not isinstance(options, dict):
            raise BadRequest("options must be an object")
        limit = _whole("limit", options.get("limit"))
        return Range(
            limit=DEFAULT_MESSAGES if limit is None else limit,
            since=_whole("fromTime", options.get("fromTime")),
            until=_whole("toTime", options.get("toTime")),
        )


def read_frame(text: str) -> ClientFrame:
    """Read the text of a frame. Raises BadFrame for a text that is not a JSON object."""
    try:
        value = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadFrame(INVALID_JSON) from error
    if not isinstance(value, dict):
        raise BadFrame("a frame must be a JSON object")
    if isinstance(value.get("reqId"), dict | list):
        raise BadFrame("reqId must be a text or a number")
    return ClientFrame(value)


NO_FRAME: Final = ClientFrame({})
"""Stands for input that cannot be read."""


def error_frame(sentence: str, frame: ClientFrame = NO_FRAME) -> Reply:
    """Return the reply to a frame that is not a request."""
    return frame.answered("error", {"error": sentence, "code": _BAD_REQUEST})


def auth_error(sentence: str, frame: ClientFrame = NO_FRAME) -> Reply:
    """Return the refusal of a client that is not identified."""
    return frame.answered("auth.error", {"error": sentence, "code": _WHO_ARE_YOU})


def encode_frame(reply: Reply) -> str:
    """Return a reply as the text of a frame."""
    return _encode(reply).decode()


def push_frame(mailbox: str, message: RoutedMessage, seq: int) -> str:
    """Return the text of the push of a message in a mailbox."""
    agent, session = split_mailbox(mailbox)
    kind: Reply = {"type": "msg.push", "agentId": agent}
    if session:
        kind = {"type": "msg.session.push", "agentId": agent, "sessionId": session}
    return encode_frame({**kind, "message": message, "seq": seq})


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text")
    return value


def _whole(name: str, value: object) -> int | None:
    """Return a whole number that is not negative; some programs write it with a decimal point."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # Many programs read JSON numbers as doubles, in which larger whole numbers are not exact.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise BadRequest(f"{name} must be a whole number, 0 or more")
    return value


# --------------------
# The caller of a request: the agent that its frame names, if the token acts for it.


def sender_for(services: Services, token: Token, written: str) -> Caller:
    """Return the caller that writes in a name. Raises NotYou, and WhoAreYou if its agent has left.

    A token for several names may also send in a name without an agent, such as that of a bridge: this is an
    external sender, without a mailbox. It never acts for a registered person. None of this makes an agent
    present.
    """
    name = _own_name(token, written)
    agent = services.broker.directory.get(name)
    limit = Standing[token.standing.upper()]
    if not token.acts_for:
        if agent is None:
            raise WhoAreYou(f"this token belongs to {token.name}, which has left the bus")
        return caller_for(agent, at_most=limit)
    # Looked at for each request: a name of the token, or any name for `all`, can become a person's later.
    if _is_persons(services, name):
        raise NotYou(written, f"a program with a token for {' or '.join(token.acts_for)}")
    if agent is None:
        # Without an agent there is no role that could allow more than a worker's rights.
        return Caller(name=name, standing=min(limit, Standing.WORKER), kind=EXTERNAL, by=token.holder)
    return replace(caller_for(agent, at_most=limit), by=token.holder)


def _is_persons(services: Services, name: str) -> bool:
    agent = services.broker.directory.get(name)
    return agent is not None and agent.role == GUEST_ROLE


def agent_for(services: Services, token: Token, written: str) -> Caller:
    """Return the caller that uses the mailbox of an agent. Raises NotYou, and NotFound without an agent."""
    caller = sender_for(services, token, written)
    if caller.kind == EXTERNAL:
        raise NotFound(
            f"agent {cut_name(caller.name)}",
            f"it can send but has no mailbox; 'pal join --name {cut_name(caller.name)}' creates the agent",
        )
    return caller


def _caller_without_name(services: Services, token: Token) -> Caller:
    """Return the caller of a request that names no agent."""
    if not token.acts_for or (len(token.acts_for) == 1 and ALL_AGENTS not in token.acts_for):
        return sender_for(services, token, (*token.acts_for, token.name)[0])
    limit = min(Standing[token.standing.upper()], Standing.WORKER)
    return Caller(name=SCRIPT_NAME, standing=limit, kind=EXTERNAL, by=token.holder)


def _own_name(token: Token, written: str) -> str:
    parts = split_name(written.removeprefix("@"))
    name = full_name(parts.base, parts.tag, parts.device)
    if not token.acts_as(name):
        raise NotYou(written, " or ".join(token.acts_for) or token.name)
    check_name(parts.base, parts.tag)
    return name


# --------------------
# Requests. One function for each kind; the table below has their types.


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Push the messages of a mailbox on this connection, beginning after a seq, or with the next one."""

    mailbox: str
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The fields of a reply, and the change of listening that takes effect after it."""

    fields: Reply = field(default_factory=dict)
    listen: Listen | None = None
    unlisten: str = ""


@dataclass(frozen=True, slots=True)
class _Request:
    services: Services
    token: Token
    frame: ClientFrame
    session: str = ""
    """The id of the session that it is about; empty for the agent itself."""

    @property
    def sender(self) -> Caller:
        return sender_for(self.services, self.token, self.frame.text("from"))

    @property
    def agent(self) -> Caller:
        return agent_for(self.services, self.token, self.frame.text("agentId"))

    def answer(self, **fields: object) -> Answer:
        """Return a reply that repeats which mailbox it is about."""
        mailbox = ("agentId", "sessionId") if self.session else ("agentId",)
        return Answer(fields={**self.frame.sent(*mailbox), **fields})


_Handler: TypeAlias = Callable[[_Request], Awaitable[Answer]]


async def _send(request: _Request) -> Answer:
    request.frame.text("from")  # Read later, but checked first: an error names the first missing field.
    to = request.frame.text("to").strip("/")
    if not to:
        raise BadRequest("to is required")
    return _with_message(await _route(request, f"agent/{to}", INTERNAL))


async def _broadcast(request: _Request) -> Answer:
    return _with_message(await _route(request, "agent/**", INTERNAL))


async def _route_to_path(request: _Request) -> Answer:
    frame = request.frame
    frame.text("from")  # as in `_send`
    path, source = frame.text("path"), frame.optional("source") or OUTSIDE
    return Answer(fields=_flat(await _route(request, path, source, frame.optional("externalId"))))


async def _route(request: _Request, path: str, source: str, external_id: str = "") -> Delivered:
    frame = request.frame
    content = Content(
        command=frame.optional("command") or DEFAULT_COMMAND,
        payload=frame.payload,
        source=source,
        external_id=external_id,
    )
    return await request.services.paths.route(request.sender, path, content)


def _with_message(delivered: Delivered) -> Answer:
    return Answer(fields={"messageId": delivered.result.message_id, "message": _flat(delivered)})


def _flat(delivered: Delivered) -> Reply:
    """Return the fields of a message together with those of its result."""
    return {**msgspec.to_builtins(delivered.message), **msgspec.to_builtins(delivered.result)}


async def _put(request: _Request) -> Answer:
    envelope = request.frame.envelope()
    caller = sender_for(request.services, request.token, envelope.sender)
    sent = await request.services.broker.submit(caller, Put(envelope=envelope))
    assert isinstance(sent, Sent)
    assert sent.event is not None  # it is not a dry run
    groups = {"emptyGroups": sent.empty_groups} if sent.empty_groups else {}
    repeat = {"repeat": True} if sent.is_repeat else {}
    fields = {"id": sent.event.id, "seq": sent.event.seq, "deliveredTo": sent.delivered_to}
    return Answer(fields={**fields, **groups, **repeat})


async def _receive(request: _Request) -> Answer:
    caller = request.agent
    wanted = request.frame.range()
    taken = await request.services.paths.receive(caller, caller.name, session=request.session, wanted=wanted)
    return request.answer(messages=taken)


async def _history(request: _Request) -> Answer:
    wanted = request.frame.range()
    found = await request.services.paths.history(request.agent.name, session=request.session, wanted=wanted)
    return request.answer(messages=found)


async def _listen(request: _Request) -> Answer:
    mailbox = mailbox_of(request.agent.name, request.session)
    answer = request.answer()
    return replace(answer, listen=Listen(mailbox=mailbox, after=request.frame.after()))


async def _unlisten(request: _Request) -> Answer:
    return replace(request.answer(), unlisten=mailbox_of(request.agent.name, request.session))


async def _acknowledge(request: _Request) -> Answer:
    caller, ids = request.agent, request.frame.ids()
    await request.services.paths.acknowledge(caller, caller.name, ids, session=request.session)
    return request.answer(messageIds=ids)


async def _subscribe(request: _Request) -> Answer:
    caller, pattern = request.agent, request.frame.text("pattern")
    made = await request.services.paths.subscribe(caller, caller.name, pattern, session=request.session)
    note = {"note": made.note} if made.note else {}
    return request.answer(pattern=pattern, subscriptions=made.subscriptions, **note)


async def _unsubscribe(request: _Request) -> Answer:
    caller, pattern = request.agent, request.frame.text("pattern")
    left = await request.services.paths.unsubscribe(caller, caller.name, pattern, session=request.session)
    return request.answer(pattern=pattern, subscriptions=left.subscriptions)


async def _subscriptions(request: _Request) -> Answer:
    found = request.services.paths.subscriptions(request.agent.name, session=request.session)
    return request.answer(subscriptions=found)


async def _unmatched(request: _Request) -> Answer:
    return Answer(fields={"messages": await request.services.paths.dead_letters(request.frame.range())})


async def _clear_unmatched(request: _Request) -> Answer:
    await request.services.paths.clear_dead_letters(_caller_without_name(request.services, request.token))
    return Answer(fields={"cleared": True})


REQUESTS: Final[Mapping[str, _Handler]] = {
    "msg.send": _send,
    "msg.route": _route_to_path,
    "msg.broadcast": _broadcast,
    "msg.put": _put,
    "msg.receive": _receive,
    "msg.history": _history,
    "msg.listen": _listen,
    "msg.unlisten": _unlisten,
    "msg.ack": _acknowledge,
    "msg.sub.add": _subscribe,
    "msg.sub.remove": _unsubscribe,
    "msg.sub.list": _subscriptions,
    "msg.unmatched": _unmatched,
    "msg.unmatched.clear": _clear_unmatched,
    "msg.session.sub.add": _subscribe,
    "msg.session.sub.remove": _unsubscribe,
    "msg.session.sub.list": _subscriptions,
    "msg.session.listen": _listen,
    "msg.session.receive": _receive,
    "msg.session.history": _history,
}
"""Every request, by its type. Those of sessions need a `sessionId`; `_MAY_NAME_SESSION` has the others."""

_OF_SESSIONS: Final = "msg.session."
_MAY_NAME_SESSION: Final = frozenset({"msg.unlisten", "msg.ack"})


async def answer_frame(services: Services, token: Token, frame: ClientFrame) -> tuple[Reply, Answer]:
    """Serve one frame of a client that is identified. Return the reply, and the change of listening."""
    kind = frame.type
    if kind == PING:
        return frame.answered(PONG), Answer()
    handler = REQUESTS.get(kind)
    if handler is None:
        return error_frame(
            f"Unknown message type: {_shown(kind)}" if kind else "type is required", frame
        ), Answer()
    try:
        answer = await handler(_Request(services, token, frame, _session_of(kind, frame)))
    except PalaverError as error:
        return frame.answered(f"{kind}.error", {"error": str(error), "code": error.code}), Answer()
    return frame.answered(f"{kind}.ok", answer.fields), answer


def _shown(kind: str) -> str:
    return kind if len(kind) <= _LIMIT_SHOWN else f"{kind[:_LIMIT_SHOWN]}…"


def _session_of(kind: str, frame: ClientFrame) -> str:
    if kind.startswith(_OF_SESSIONS):
        frame.text("agentId")  # The agent is named first, and so is the first error.
        return check_session(frame.text("sessionId"))
    found = frame.optional("sessionId") if kind in _MAY_NAME_SESSION else ""
    return check_session(found) if found else ""


# --------------------
# The sockets of `/ws`: authentication, requests one after the other, and pushes to those that listen.
#
# One handler of the log serves all connections, and a push is encoded once for each mailbox. Listening makes
# no agent present and changes nothing in the ledger. A client that reads too slowly is disconnected and never
# delays others; it continues from the seq that the close frame names.

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
# RFC 6455 leaves the codes from 4000 on to applications.
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

    The close frame is sent at once. Later frames of the client are read and dropped until it closes too:
    otherwise the system would reset the connection, and the client might never see why.
    """

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The library sends no reply if it cannot parse the handshake, so the client would wait.
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
        # Checked here, because the library would log a traceback for such a text.
        if self.curr_msg_data_type == "text" and not _is_utf8(self.frames):
            self.frames = []
            self._end(_INVALID_UTF8, "the text is not valid UTF-8")
        else:
            super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:  # nothing collects the message any more, so its fragments would add up
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
        # It ends the application, which waits for the next frame.
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        # Otherwise the close frame of the client would never be read.
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
        # A client with a token in its header is identified at once, so it is not part of this limit.
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
        self._services = services
        self._at: dict[str, dict[_Connection, None]] = {}
        self._stop: Callable[[], None] | None = None

    def add(self, mailbox: str, connection: "_Connection") -> None:
        """Push the messages of a mailbox to a connection from now on. A repeat changes nothing."""
        self._at.setdefault(mailbox, {})[connection] = None
        if self._stop is None:
            self._stop = self._services.paths.watch(self._hear)

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
            there = self._at.get(mailbox)
            if there and _is_persons(self._services, split_mailbox(mailbox)[0]):
                # A person has taken the name of an agent that has left.
                # The loop runs over a copy, because `unlisten` removes connections.
                for connection in tuple(there):
                    connection.unlisten(mailbox)
            elif there:
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
        # A new event is unset, and nothing would be read until it is set.
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
                # Without effect if the connection has ended for another reason already.
                self._end(_FAILED, _INTERNAL)

    async def _check_at(self, time_ms: int, check: Callable[[], None]) -> None:
        """Check a token when its time is over."""
        clock = self.door.services.clock
        if time_ms:
            while (left_ms := time_ms - clock.now_ms()) > 0:  # noqa: ASYNC110 - it waits for a time
                # Looked at each hour, because the clock can be set while this sleeps.
                await asyncio.sleep(min(left_ms / 1000, 3600))
            check()

    async def _answer_all(self, token: Token, check: Callable[[], None]) -> None:
        while True:
            await self._has_room.wait()  # a client that does not read gets no further replies to queue
            try:
                frame = await self._next_frame()
            except BadFrame as error:
                self._reply(error_frame(str(error)))
                continue
            check()
            if frame is None or self._is_ended:
                return
            # `check` has come first: the token may have ended while the frame was awaited.
            try:
                reply, answer = await answer_frame(self.door.services, token, frame)
                listen = answer.listen
                if listen is not None:
                    # Before the reply, which would confirm it.
                    self._check_count(listen)
            except BadRequest as error:
                self._reply(frame.answered(f"{frame.type}.error", {"error": str(error), "code": error.code}))
                continue
            except Exception:
                _logger.exception("a request of the WebSocket failed")
                return
            self._reply(reply)
            # After the reply, so that no push of this mailbox is queued before it.
            if listen is not None:
                self._listen(listen)
            if answer.unlisten:
                self.unlisten(answer.unlisten)

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
        # No await from here to `add`: a message that is stored in between would not be pushed.
        last = self.door.services.queries.last()
        # With a seq of the future, new messages would be skipped until the log has reached it.
        cursor = _Cursor(last if listen.after is None else min(listen.after, last))
        self._cursors[listen.mailbox] = cursor
        self.door.listeners.add(listen.mailbox, self)
        if listen.after is not None:
            cursor.is_replayed = True
            self._tasks.create_task(self._replay(listen.mailbox, cursor))

    def unlisten(self, mailbox: str) -> None:
        """Push nothing more of a mailbox, also if its older messages are being read."""
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
                        # During the await the client may have stopped listening, or begun again with
                        # another cursor.
                        if self._cursors.get(mailbox) is not cursor:
                            return
                        cursor.seq = seq
                        self._put(_outgoing(push_frame(mailbox, message, seq), mailbox, seq))
                cursor.is_replayed = cursor.has_news  # No new message can come before the next await.
        except PalaverError as error:
            agent, session = split_mailbox(mailbox)
            kind = "msg.session.listen.error" if session else "msg.listen.error"
            names = {"agentId": agent, "sessionId": session} if session else {"agentId": agent}
            self.unlisten(mailbox)
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
        # Accepted first and judged later, so that even the largest frame can be sent alone.
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
        # Wakes the tasks that wait for room: they then see that the connection has ended.
        self._set_room()
        for mailbox in self._cursors:
            self.door.listeners.remove(mailbox, self)
        self._cursors.clear()
        self._writer.cancel()
        # In a task, because handlers of the log and of tokens call this and cannot wait. It is kept here,
        # because the loop itself keeps only a weak reference.
        self._closing = asyncio.ensure_future(
            self.send({"type": "websocket.close", "code": code, "reason": reason})
        )
