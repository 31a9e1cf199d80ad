"""One run of the HTTP server: uvicorn in the daemon's loop, without signal handlers or polling.

Slow to import, so `server.py` imports it in a thread.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from palaver.doors.http.app import HttpHooks, make_app
from palaver.doors.http.metrics import HttpMetrics
from palaver.doors.http.webhooks import Webhooks
from palaver.doors.http.websocket import LIMIT_FRAME_BYTES, PING_EVERY_S, WebSocketDoor, WebSocketProtocol
from palaver.doors.mcp.pump import Loader
from palaver.doors.web.page import Page
from palaver.home import first_reserved_file
from palaver.services.services import Services

if TYPE_CHECKING:
    from palaver.doors.http.tools import HttpTools

_CLOSE_GRACE_S: Final = 1
LIMIT_WITHOUT_REQUEST: Final = 64
"""Connections without a complete request head. They are not identified yet; further ones get a 503."""
LIMIT_HEAD_S: Final = 10.0
"""Seconds that the head of a request may take."""
_FULL: Final = b'{"error":"unavailable","message":"too many connections wait here: try again"}'
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%s" % (len(_FULL), _FULL)
)


class Listening:
    """The server on one socket, until it is stopped."""

    def __init__(
        self, services: Services, names: frozenset[str], listener: socket.socket, tasks: asyncio.TaskGroup
    ) -> None:
        self._listener = listener
        self._tasks = tasks
        self._ended = asyncio.Event()
        self._tools = _Tools(services, tasks)
        hooks, metrics = HttpHooks(services), HttpMetrics(services)
        sockets = WebSocketDoor(services)
        webhooks = Webhooks(services.callers.webhooks, services.paths, services.queries, services.clock)
        self._page = Page(services)
        self._server = _HttpServer(
            make_app(
                self._tools,
                hooks.answer,
                metrics.answer,
                sockets,
                webhooks,
                self._page,
                services.callers.tokens,
                names,
            )
        )

    async def start(self) -> None:
        """Start to serve, and return once clients can connect."""
        self._tasks.create_task(self._run())
        await self._server.ready.wait()

    async def stop(self) -> None:
        """Close all connections. Requests that still wait are cancelled after a second."""
        self._page.close()  # its streams would last until they are cancelled
        self._server.end.set()
        await self._ended.wait()

    async def _run(self) -> None:
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            self._listener.close()
            self._tools.close()
            self._server.ready.set()
            self._ended.set()


class _Protocol(H11Protocol):
    """One connection. The head of a request must arrive in time, and few connections may be without one."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base
        super().connection_made(transport)
        waiting = sum(1 for one in self.connections if isinstance(one, _Protocol) and one.is_without_request)
        is_full = transport.get_extra_info("socket").fileno() >= first_reserved_file()
        if is_full or waiting > LIMIT_WITHOUT_REQUEST:
            transport.write(_REFUSAL)
            transport.close()
        else:
            self._time_head()

    @property
    def is_without_request(self) -> bool:
        """Whether no request is running."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _time_head(self) -> None:
        """Run a timer while a request head is expected. Partial data does not restart it."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(LIMIT_HEAD_S, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _HttpServer(uvicorn.Server):
    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws=WebSocketProtocol,
                ws_max_size=LIMIT_FRAME_BYTES,
                ws_ping_interval=PING_EVERY_S,
                ws_ping_timeout=PING_EVERY_S,
                ws_per_message_deflate=False,
                http=_Protocol,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=_CLOSE_GRACE_S,
            )
        )
        self.ready = asyncio.Event()
        self.end = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait for the end instead of polling ten times a second."""
        await self.end.wait()


class _Tools:
    """The MCP tools, loaded at the first call."""

    def __init__(self, services: Services, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._tasks = tasks
        self._loader = Loader()
        self._lock = asyncio.Lock()
        self._app: ASGIApp | None = None
        self._end = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            if self._app is None:
                await self._load()
        assert self._app is not None
        await self._app(scope, receive, send)

    def close(self) -> None:
        self._end.set()

    async def _load(self) -> None:
        tools_class = await self._loader.load(_import_tools)
        tools = tools_class(self._services)
        ready = asyncio.Event()

        async def run() -> None:
            async with tools.running():
                ready.set()
                await self._end.wait()

        self._tasks.create_task(run())
        await ready.wait()
        self._app = tools


def _import_tools() -> "type[HttpTools]":
    from palaver.doors.http.tools import HttpTools  # slow: it needs the MCP SDK

    return HttpTools
