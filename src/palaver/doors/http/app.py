"""The HTTP paths after the gate. An unknown path is a 404 in JSON, like every other error."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from palaver.doors.http.gate import Gate
from palaver.doors.tokens import TokenBook

Answer = Callable[[Request], Awaitable[Response]]
"""Serves one request."""

_WORDS: Final = {404: "not_found", 405: "bad_request"}


def make_app(tools: ASGIApp, hooks: Answer, tokens: TokenBook, names: frozenset[str]) -> ASGIApp:
    """Return the application: MCP tools and hooks. MCP has no GET stream, because nothing is pushed."""
    routes = [
        Route("/mcp", endpoint=tools, methods=["POST"]),
        Route("/hook/{harness}", endpoint=hooks, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refuse})
    return Gate(app, tokens, names)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = _WORDS.get(error.status_code, "bad_request")
    sentence = f"there is nothing at {request.url.path[:100]} here" if code == "not_found" else error.detail
    return JSONResponse(
        {"error": code, "message": sentence}, status_code=error.status_code, headers=error.headers
    )
