"""The protocol of `/ws`: `msg.*` frames to calls of the path service, and the results to frames.

Knows no sockets: `doors/http/websocket.py` moves the frames, identifies the client, and pushes. A frame is
one JSON object with a `type`. The reply has the type `<type>.ok`, or `<type>.error` with a sentence and a
code.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from palaver.broker.context import Sent
from palaver.errors import BadRequest, NotFound, NotYou, PalaverError, WhoAreYou, cut_name
from palaver.identity.tokens import ALL_AGENTS, Token
from palaver.protocol.agents import (
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
    split_mailbox,
)
from palaver.protocol.requests import Put
from palaver.services.paths import DEFAULT_MESSAGES, Range
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
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise BadRequest(f"{name} must be a whole number, 0 or more")
    return value


# --------------------
# The caller of a request: the agent that its frame names, if the token acts for it.


def sender_for(services: Services, token: Token, written: str) -> Caller:
    """Return the caller that writes in a name. Raises NotYou, and WhoAreYou if its agent has left.

    A token for several names may also send in a name that is no agent, such as that of a bridge: it is an
    external sender, without a mailbox. None of this makes an agent present.
    """
    name = _own_name(token, written)
    agent = services.broker.directory.get(name)
    limit = Standing[token.standing.upper()]
    if not token.acts_for:
        if agent is None:
            raise WhoAreYou(f"this token belongs to {token.name}, which has left the bus")
        return caller_for(agent, at_most=limit)
    if agent is None:
        return Caller(name=name, standing=min(limit, Standing.WORKER), kind=EXTERNAL, by=token.holder)
    return replace(caller_for(agent, at_most=limit), by=token.holder)


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
    request.frame.text("from")
    to = request.frame.text("to").strip("/")
    if not to:
        raise BadRequest("to is required")
    return _with_message(await _route(request, f"agent/{to}", INTERNAL))


async def _broadcast(request: _Request) -> Answer:
    return _with_message(await _route(request, "agent/**", INTERNAL))


async def _route_to_path(request: _Request) -> Answer:
    frame = request.frame
    frame.text("from")
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
