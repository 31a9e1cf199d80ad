"""The MCP tools over streamable HTTP, for callers with a token.

No session is kept between requests, so a restart of the daemon ends none. A call is cancelled by a
notification with its id, or by closing its stream.

A separate module from `listening.py`, because the MCP SDK needs 35 MB: it is loaded at the first call.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import CallToolRequestParams, CancelledNotificationParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from palaver.doors import tools as calls
from palaver.doors.http.app import HAS_ENDED, LIMIT_BODY_BYTES, TOKEN, caller_of, given_again
from palaver.doors.mcp.server import Context, McpSession, make_server
from palaver.doors.tools import choose_tools
from palaver.errors import WhoAreYou
from palaver.identity.accounts import Token
from palaver.protocol.agents import Caller
from palaver.protocol.thin import BadLine, id_of
from palaver.services.services import Services

_CANCELLED: Final = calls.ToolResult(
    {"error": "cancelled", "message": "the call was cancelled"}, is_refusal=True
)

_ENDED: Final = calls.ToolResult({"error": WhoAreYou.code, "message": HAS_ENDED}, is_refusal=True)

_OFFERED: Final = choose_tools(None)

_CallId = tuple[str, str]
"""The ids of a token and of a request. Two programs with one token may use the same request id."""


class HttpTools:
    """The application for one path. Use it inside `running`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._open: dict[_CallId, list[anyio.CancelScope]] = {}
        server: Server[object] = make_server(services.daemon.version, _OFFERED, self._call)
        server.add_notification_handler(
            "notifications/cancelled", CancelledNotificationParams, self._on_cancelled
        )
        self._manager = StreamableHTTPSessionManager(
            server, stateless=True, max_request_body_size=LIMIT_BODY_BYTES
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block runs."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        message = McpSession.read(body, "body")
        if isinstance(message, BadLine):  # The SDK would reply with details of its parser.
            await Response(message.answer(id_of(body)), 400, media_type="application/json")(
                scope, receive, send
            )
            return
        await self._manager.handle_request(scope, given_again(body, receive), send)

    async def _call(self, context: Context, params: CallToolRequestParams) -> calls.ToolResult:
        token = _token(context)
        id = token.id, str(context.request_id)
        tokens = self._services.callers.tokens
        with anyio.CancelScope() as scope, self._services.callers.member_presence.speaking(token.name):
            self._open.setdefault(id, []).append(scope)
            # Otherwise a call that waits would go on after the end of its token.
            stop = tokens.watch(lambda: None if tokens.is_valid(token) else scope.cancel())
            try:
                return await calls.call_tool(
                    self._services,
                    _OFFERED,
                    calls.ToolRequest(
                        tool=params.name, arguments=params.arguments, who=lambda tool: self._who(token)
                    ),
                )
            finally:
                stop()
                self._open[id].remove(scope)
                if not self._open[id]:
                    del self._open[id]
        # Reached only if the scope was cancelled: by the client, or because the token has ended.
        return _CANCELLED if tokens.is_valid(token) else _ENDED

    async def _on_cancelled(self, context: Context, params: CancelledNotificationParams) -> None:
        scopes = self._open.get((_token(context).id, str(params.request_id)), [])
        # Two programs may use one token and the same request id. Then it is unclear whose call is meant.
        if len(scopes) == 1:
            scopes[0].cancel()

    async def _who(self, token: Token) -> Caller:
        return caller_of(self._services, token)


def _token(context: Context) -> Token:
    token = context.request.scope[TOKEN] if context.request is not None else None
    assert isinstance(token, Token)  # the gate passes no request without one
    return token
