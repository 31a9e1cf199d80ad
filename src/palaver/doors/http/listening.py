"""The HTTP door while it is open: its server, and the numbers at /metrics.

Slow to import, so `server.py` imports it in a thread, and only when the door opens.
"""

import asyncio
import math
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import h11
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from palaver.domain.rights import require
from palaver.doors.http.app import (
    TOKEN,
    HttpHooks,
    caller_of,
    make_app,
)
from palaver.doors.http.webhooks import Webhooks
from palaver.doors.http.websocket import LIMIT_FRAME_BYTES, PING_EVERY_S, WebSocketDoor, WebSocketProtocol
from palaver.doors.mcp.pump import Loader
from palaver.doors.web.page import Page
from palaver.errors import NotAllowed, PalaverError, WhoAreYou
from palaver.home import first_reserved_file
from palaver.protocol.agents import Standing
from palaver.services.metrics import MetricFamily, MetricKind, Numbers, Sample
from palaver.services.services import Services

if TYPE_CHECKING:
    from palaver.doors.http.mcp_tools import HttpTools

# --------------------
# `GET /metrics`: the numbers of the bus as OpenMetrics text. Off unless the setting `metrics` is 1.

MEDIA_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OFF: Final = "the numbers of this bus are off: a person enables them with 'pal config set metrics 1'"

_STATUSES: Final[Mapping[type[PalaverError], int]] = {WhoAreYou: 401, NotAllowed: 403}


class HttpMetrics:
    """The handler of the path."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: Request) -> Response:
        """Serve one request. The caller must be an observer or higher."""
        if not self._services.daemon.settings.now.metrics:
            return _refuse(404, "not_found", OFF)
        try:
            require(caller_of(self._services, request.scope[TOKEN]), Standing.OBSERVER, "reading metrics")
            numbers = await self._services.metrics.read()
        except PalaverError as error:
            return _refuse(_STATUSES.get(type(error), 503), error.code, str(error))
        return Response(format_openmetrics(numbers), headers={"content-type": MEDIA_TYPE, **_HEADERS})


_HEADERS: Final = {"cache-control": "no-store"}


def _refuse(status: int, code: str, sentence: str) -> Response:
    return JSONResponse({"error": code, "message": sentence}, status_code=status, headers=_HEADERS)


# --------------------
# The text form. Pure.

_SUFFIXES: Final = {MetricKind.COUNTER: "_total"}
_UNIT: Final = "seconds"


def format_openmetrics(numbers: Numbers) -> str:
    """Format all numbers as OpenMetrics 1.0 text."""
    lines = [line for family in numbers.families for line in _family_lines(family)]
    return "\n".join([*lines, "# EOF\n"])


def _family_lines(family: MetricFamily) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}"
    if family.name.endswith(f"_{_UNIT}"):
        yield f"# UNIT {family.name} {_UNIT}"
    yield f"# HELP {family.name} {_escaped(family.help)}"
    for sample in family.samples:
        if family.kind is MetricKind.HISTOGRAM:
            yield from _bucket_lines(family, sample)
        else:
            name = f"{family.name}{_SUFFIXES.get(family.kind, '')}"
            yield f"{name}{_labels(sample.labels)} {_number(sample.value)}"


def _bucket_lines(family: MetricFamily, sample: Sample) -> Iterator[str]:
    for bound, count in zip((*family.bounds, math.inf), accumulate(sample.buckets), strict=True):
        yield f"{family.name}_bucket{_labels({**sample.labels, 'le': _bound(bound)})} {count}"
    yield f"{family.name}_count{_labels(sample.labels)} {sample.count}"
    yield f"{family.name}_sum{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}" if labels else ""
    )


def _escaped(text: str) -> str:
    # The backslash comes first, because the other two replacements add backslashes.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _bound(value: float) -> str:
    return "+Inf" if value == math.inf else repr(float(value))


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


# --------------------
# One run of the HTTP server: uvicorn in the daemon's loop, without signal handlers or polling.

_CLOSE_GRACE_S: Final = 1
LIMIT_WITHOUT_REQUEST: Final = 64
"""Connections without a complete request head. They are not identified yet; further ones get a 503."""
LIMIT_HEAD_S: Final = 10.0
"""Seconds that the head of a request may take."""
_FULL: Final = b'{"error":"unavailable","message":"too many connections wait here: try again"}'
_NOT_HTTP: Final = b'{"error":"bad_request","message":"this is not a valid HTTP/1.1 request"}'
_REPLY: Final = (
    b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
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
            self._server.ready.set()  # `start` waits for it, also if the server has failed.
            self._ended.set()


class _Protocol(H11Protocol):
    """One connection. The head of a request must arrive in time, and few connections may be without one."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base
        super().connection_made(transport)
        waiting = sum(1 for one in self.connections if isinstance(one, _Protocol) and one.is_without_request)
        # The highest descriptors are a reserve for the daemon's own files.
        is_full = transport.get_extra_info("socket").fileno() >= first_reserved_file()
        # `waiting` includes this connection.
        if is_full or waiting > LIMIT_WITHOUT_REQUEST:
            self._refuse(b"503 Service Unavailable", _FULL)
        else:
            self._time_head()

    @property
    def is_without_request(self) -> bool:
        """Whether no request is running."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # After the parser has read the data, because the timer depends on its state.
        self._time_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be parsed, as JSON like every other error."""
        # After the beginning of a response, this one would look like its rest.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(b"400 Bad Request", _NOT_HTTP)
        else:
            self.transport.close()

    def _refuse(self, status: bytes, body: bytes) -> None:
        self.transport.write(_REPLY % (status, len(body), body))
        self.transport.close()

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
                # Compression needs memory for each connection, and these may stay open for days.
                ws_per_message_deflate=False,
                http=_Protocol,
                log_config=None,  # otherwise uvicorn sets up handlers that write to standard error
                access_log=False,
                # Otherwise a header of the request would set the address of its client, and the page, which
                # is only for this machine, relies on that address.
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
        async with self._lock:  # requests that come during the load wait for it and do not load again
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

        # In a separate task, because the task that enters the block must also leave it, and this request
        # ends long before.
        async def run() -> None:
            async with tools.running():
                ready.set()
                await self._end.wait()

        self._tasks.create_task(run())
        await ready.wait()
        self._app = tools


def _import_tools() -> "type[HttpTools]":
    from palaver.doors.http.mcp_tools import HttpTools  # slow: it needs the MCP SDK

    return HttpTools
