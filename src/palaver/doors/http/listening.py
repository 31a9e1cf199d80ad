"""One server from its opening to its end: uvicorn in the daemon's loop, without signals or a clock.

Slow to import: `server.py` does, in a thread.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from palaver.doors.hooks.http import HttpHooks
from palaver.doors.http.app import make_app
from palaver.doors.mcp.loading import Loader
from palaver.doors.services import Services

_CLOSE_GRACE_S: Final = 1


class Listening:
    """Serves on a socket until it is stopped."""

    def __init__(
        self, services: Services, names: frozenset[str], listener: socket.socket, tasks: asyncio.TaskGroup
    ) -> None:
        self._listener = listener
        self._tasks = tasks
        self._ended = asyncio.Event()
        self._tools = _Tools(services, tasks)
        hooks = HttpHooks(services, services.hooks)
        self._server = _Server(make_app(self._tools, hooks.answer, services.tokens, names))

    async def start(self) -> None:
        """Serve; returns once callers can come."""
        self._tasks.create_task(self._run())
        await self._server.ready.wait()

    async def stop(self) -> None:
        """Let go of everybody; what waits is cut after a moment."""
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


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
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
        """Signals are the daemon's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait for the end, where the original looks ten times a second."""
        await self.end.wait()


class _Tools:
    """The tools of MCP, loaded when they are first called."""

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
        tools_class = await self._loader.http_class()
        tools = tools_class(self._services)
        ready = asyncio.Event()

        async def run() -> None:
            async with tools.running():
                ready.set()
                await self._end.wait()

        self._tasks.create_task(run())
        await ready.wait()
        self._app = tools
