"""The gate of the HTTP door, and the paths after it. An unknown path is a 404 in JSON, like every error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.doors.http.webhooks import Webhooks, is_webhook_target
from palaver.doors.tcp_door import HttpReply, is_allowed_host, is_allowed_origin
from palaver.doors.web.page import is_open_target, is_page_target
from palaver.errors import PalaverError, WhoAreYou
from palaver.harness.hooks import text_in
from palaver.identity.accounts import Token, TokenBook
from palaver.protocol.agents import Caller, Standing, caller_for
from palaver.services.services import Services

# --------------------
# Check HTTP requests: host name, origin, token, JSON only, and size. Decides nothing else.
#
# A webhook has no token, and its body can have other types: `webhooks.py` checks it. The page in a browser
# has a session instead: `doors/web/page.py` checks it. Every error is a JSON object with `error` and
# `message`. An accepted request with a token has it in its scope.

LIMIT_BODY_BYTES: Final = 1024 * 1024
LIMIT_BODY_S: Final = 30.0
"""Seconds that the body of a request may take."""
LIMIT_READING: Final = 64
"""Webhooks, and requests of the page without a session, whose bodies are read at once.

They are not identified yet; further ones get a 503.
"""
TOKEN: Final = "palaver.token"  # noqa: S105 - the name of a key, not a token
_encode: Final = msgspec.json.Encoder().encode
_BEARER: Final = "bearer "
SOCKETS: Final = "/ws"
"""The path of the WebSocket."""


HAS_ENDED: Final = "this token has ended: it was revoked or replaced, or its time is over"
FOR_IRC_ONLY: Final = "this token is the password of a person, and is valid on IRC only"


class PageApp(Protocol):
    """The application for the paths of the page; implemented by `Page`."""

    def refusal(self, scope: Scope) -> HttpReply | None:
        """Return why a request is refused; None if it is accepted."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class HttpGate:
    """A wrapper that passes valid requests to an application and refuses the others itself."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: TokenBook,
        names: frozenset[str],
        sockets: ASGIApp,
        webhooks: Webhooks,
        page: PageApp,
        *,
        limit_body_s: float = LIMIT_BODY_S,
    ) -> None:
        """`names` are the host names that a request may use for this door.

        `sockets` serves WebSockets. They identify themselves there, because a page cannot set a header.
        `page` serves the page of a person, whose requests have the cookie of a session instead of a token.
        """
        self._app = app
        self._page = page
        self._sockets = sockets
        self._webhooks = webhooks
        self._tokens = tokens
        self._names = names
        self._limit_body_s = limit_body_s
        self._reading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._upgrade(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        # The path as it was sent: decoded, `%2F` in a topic would look like the end of a segment.
        is_webhook = is_webhook_target(scope.get("raw_path", b""))
        is_page = is_page_target(scope.get("path", ""))
        is_unknown = is_webhook or is_open_target(scope.get("path", ""))
        # The site comes first: a page of another site must not learn whether a token is valid.
        refusal = (
            self._refused_site(headers)
            or (self._refused_crowd() if is_unknown else None)
            or self._refused_sender(scope, headers, is_webhook=is_webhook, is_page=is_page)
            or _refused_size(headers)
        )
        if refusal is not None:
            await answer(send, refusal)
            return
        # No await since `_refused_crowd`, so no more requests than the limit get here.
        self._reading += is_unknown
        try:
            async with asyncio.timeout(self._limit_body_s):
                body = await _read(receive)
        except TimeoutError:
            sentence = f"the body must arrive within {LIMIT_BODY_S:.0f} seconds"
            await answer(send, error_reply(408, "bad_request", sentence))
            return
        finally:
            self._reading -= is_unknown
        if isinstance(body, HttpReply):
            await answer(send, body)
        elif body is not None and is_webhook:
            await answer(send, await self._webhooks.receive(scope["raw_path"], scope["headers"], body))
        elif body is not None:
            await (self._page if is_page else self._app)(scope, given_again(body, receive), send)

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a WebSocket on before it is accepted, or refuse it."""
        refusal = self._refused_site(Headers(scope=scope))
        if refusal is None and scope["path"] != SOCKETS:
            refusal = error_reply(404, "not_found", f"there is no WebSocket here; it is at {SOCKETS}")
        if refusal is None:
            await self._sockets(scope, receive, send)
            return
        await receive()  # the request to connect, which must be read before a response
        await answer(send, refusal, kind="websocket.http")

    def _refused_site(self, headers: Headers) -> HttpReply | None:
        """Refuse another host name, and pages of other sites."""
        names = self._names
        host = headers.get("host", "")
        if not is_allowed_host(host, names):
            return error_reply(
                421,
                "not_allowed",
                "this bus has another host name; to add this one, use the setting http_hosts",
            )
        # Each one: a header can be sent twice, and the first may be the only allowed one.
        if not all(is_allowed_origin(origin, host, names) for origin in headers.getlist("origin")):
            return error_reply(403, "not_allowed", "a page of another site may not call this bus")
        return None

    def _refused_sender(
        self, scope: Scope, headers: Headers, *, is_webhook: bool, is_page: bool
    ) -> HttpReply | None:
        if is_webhook:
            return self._webhooks.refusal(scope["method"], scope["raw_path"], scope["headers"])
        return self._page.refusal(scope) if is_page else self._refused_caller(scope, headers)

    def _refused_crowd(self) -> HttpReply | None:
        """Refuse one of too many requests at once whose sender is not known yet."""
        if self._reading < LIMIT_READING:
            return None
        return error_reply(503, "unavailable", "too many requests arrive at once: try again")

    def _refused_caller(self, scope: Scope, headers: Headers) -> HttpReply | None:
        """Refuse a request without a valid token, or with a body that is not JSON."""
        try:
            token = self._token(scope)
        except PalaverError as error:
            return error_reply(500, error.code, str(error))
        if token is None:
            return error_reply(
                401,
                "who_are_you",
                "send 'Authorization: Bearer TOKEN' with a valid token: a token ends when it is revoked or "
                "expires, or when its agent leaves the bus. Ask a person for a new one",
            )
        if token.acts_for:
            sentence = f"this token acts for several agents: it is valid at {SOCKETS} only"
            return error_reply(403, "who_are_you", sentence)
        if token.is_persons:
            return error_reply(403, "who_are_you", FOR_IRC_ONLY)
        scope[TOKEN] = token  # so that the path finds it without a second search
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                sentence = "the body must be JSON: send 'Content-Type: application/json'"
                return error_reply(415, "bad_request", sentence)
        return None

    def _token(self, scope: Scope) -> Token | None:
        secret = bearer_token(scope)
        return None if secret is None else self._tokens.find(secret)


def bearer_token(scope: Scope) -> str | None:
    """Return the token in the header of a request, valid or not; None without one."""
    header = Headers(scope=scope).get("authorization", "")
    is_bearer = header[: len(_BEARER)].lower() == _BEARER
    return header[len(_BEARER) :].strip() if is_bearer else None


def _refused_size(headers: Headers) -> HttpReply | None:
    """Refuse a body that is announced as too large."""
    # A body that is sent in chunks announces no length; `_read` limits it.
    length = headers.get("content-length", "0")
    # `int` raises for a number with thousands of digits.
    is_number = length.isascii() and length.isdigit() and len(length) <= 9
    return None if is_number and int(length) <= LIMIT_BODY_BYTES else _too_large()


def _too_large() -> HttpReply:
    return error_reply(413, "message_too_large", f"a request is at most {LIMIT_BODY_BYTES} bytes")


async def _read(receive: Receive) -> bytes | HttpReply | None:
    """Read the whole body; return a refusal if it is too large, and None if the client disconnects first."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > LIMIT_BODY_BYTES:
            return _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def given_again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body that was already read, for an application that reads it."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()  # that the client has disconnected, which ends a waiting call
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def error_reply(status: int, code: str, sentence: str) -> HttpReply:
    """Return an error response."""
    return HttpReply(status=status, fields={"error": code, "message": sentence})


_HEADERS: Final = {
    401: (b"www-authenticate", b'Bearer realm="palaver"'),
    408: (b"connection", b"close"),
    413: (b"connection", b"close"),  # the rest of the body is not read
}
"""The header that a response of a status has."""


async def answer(send: Send, reply: HttpReply, *, kind: str = "http") -> None:
    """Send a response. `kind` is that of its messages; they differ for a WebSocket."""
    body = _encode(reply.fields)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *([_HEADERS[reply.status]] if reply.status in _HEADERS else []),
        *reply.headers,
    ]
    await send({"type": f"{kind}.response.start", "status": reply.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


# --------------------
# The paths, and the function that serves each.

Answer = Callable[[Request], Awaitable[Response]]
"""Serves one request."""

_WORDS: Final = {404: "not_found", 405: "bad_request"}


def make_app(
    tools: ASGIApp,
    hooks: Answer,
    metrics: Answer,
    sockets: ASGIApp,
    webhooks: Webhooks,
    page: PageApp,
    tokens: TokenBook,
    names: frozenset[str],
) -> ASGIApp:
    """Return the application: MCP tools, hooks, metrics, WebSockets, webhooks and the page.

    MCP has no GET stream, because it pushes nothing.
    """
    routes = [
        Route("/mcp", endpoint=tools, methods=["POST"]),
        Route("/hook/{harness}", endpoint=hooks, methods=["POST"]),
        Route("/metrics", endpoint=metrics, methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
    return HttpGate(app, tokens, names, sockets, webhooks, page)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = _WORDS.get(error.status_code, "bad_request")
    sentence = error.detail
    if code == "not_found":
        sentence = f"there is no {request.url.path[:100]} here; the tools are at /mcp"
        if request.url.path == SOCKETS:
            sentence = f"{SOCKETS} is a WebSocket: connect to it with a WebSocket client"
    return JSONResponse(
        {"error": code, "message": sentence}, status_code=error.status_code, headers=error.headers
    )


# --------------------
# The caller that a token names. Its agent may have left since the token was made, or have a new role.


def caller_of(services: Services, token: Token) -> Caller:
    """Return the agent of a token, with at most the token's standing, and record that it is active now.

    The token is checked again: it may have ended while the body of the request was read. Raises WhoAreYou.
    """
    if not services.callers.tokens.is_valid(token):
        raise WhoAreYou(HAS_ENDED)
    agent = services.broker.directory.find(token.name)
    if agent is None:
        raise WhoAreYou(f"this token belongs to {token.name}, which has left the bus")
    services.callers.member_presence.spoke(agent.name)
    return caller_for(agent, at_most=Standing[token.standing.upper()])


# --------------------
# Hooks over HTTP, at `/hook/<harness>`, for harnesses that post the input. The token names the agent.

_decode: Final = msgspec.json.Decoder(dict[str, object]).decode


class HttpHooks:
    """The handler of one path. Without a reply, and after any error, it returns an empty object.

    Like the hooks of processes, it never fails for the harness.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: Request) -> Response:
        """Serve one hook. Its messages count as passed to the harness once the response is made.

        Unlike a hook process, an HTTP client does not confirm that it has the response.
        """
        try:
            data = _decode(await request.body())
            caller = caller_of(self._services, request.scope[TOKEN])
            harness, event = request.path_params["harness"], text_in(data, "hook_event_name")
            reply = await self._services.daemon.run_hook(caller, harness, event, data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, PalaverError):
            reply = {}
        return Response(_encode(reply), media_type="application/json")
