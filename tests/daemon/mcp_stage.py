"""MCP clients for the tests: the official SDK's client, and one where the test writes each line."""

import json
import select
import shlex
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from tests.daemon.stage import Home
from tests.limits import LIMIT_S

LATEST_HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"


def content(result: CallToolResult) -> dict[str, Any]:
    """Return the only object of a result."""
    (block,) = result.content
    found: dict[str, Any] = json.loads(block.text)  # type: ignore[union-attr]  # ours are texts
    return found


class Model:
    """The tool calls of a model, made through a client of the official SDK."""

    def __init__(self, session: ClientSession | Client) -> None:
        self.session = session

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result; a refusal is returned like any other result."""
        result = await self.session.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        found = content(result)
        assert result.is_error == ("error" in found)
        return found

    async def ok(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must succeed."""
        found = await self.ask(tool, **arguments)
        assert "error" not in found, found
        return found


def pump_parameters(
    home: Home, *words: str, cwd: Path | None = None, script: str = ""
) -> StdioServerParameters:
    """Return how a harness starts the pump; with a script, under a shell that runs it first and stays."""
    if script:
        line = f"{script} >&2; {shlex.quote(home.client)} mcp {' '.join(words)}; exit $?"
        command, arguments = "bash", ["--norc", "--noprofile", "-c", line]
    else:
        command, arguments = home.client, ["mcp", *words]
    return StdioServerParameters(
        command=command, args=arguments, env=home.environment, cwd=cwd or home.path.parent
    )


@asynccontextmanager
async def handshaken(parameters: StdioServerParameters) -> AsyncIterator[Model]:
    """Connect a client of the older protocol generation through a real pump."""
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        found = await session.initialize()
        assert found.protocol_version == LATEST_HANDSHAKE
        yield Model(session)


@asynccontextmanager
async def modern(parameters: StdioServerParameters) -> AsyncIterator[Model]:
    """Connect a client of the newer protocol generation through a real pump."""
    async with Client(stdio_client(parameters)) as client:
        assert client.protocol_version == MODERN
        yield Model(client)


@asynccontextmanager
async def over_http(url: str, token: str, *, is_modern: bool) -> AsyncIterator[Model]:
    """Connect a client of either generation over HTTP."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        streams = streamable_http_client(f"{url}/mcp", http_client=http)
        if is_modern:
            async with Client(streams) as client:
                yield Model(client)
        else:
            async with streams as (read, write, *_), ClientSession(read, write) as session:
                await session.initialize()
                yield Model(session)


class RawPump:
    """A pump where the test writes each line."""

    def __init__(self, home: Home, *words: str, env: Mapping[str, str] | None = None) -> None:
        self.process = home.start("mcp", *words, stdin=subprocess.PIPE, env=env, cwd=home.path.parent)
        self._rest = b""

    def say(self, *lines: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode())
            self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Return the next line, within the time limit of a test."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
            assert ready, "nothing came"
            part = self.process.stdout.read1(1 << 20)  # type: ignore[attr-defined]  # it is buffered
            assert part, "the pump has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def begin(self) -> None:
        """Perform the handshake of the older generation."""
        self.say(request(0, "initialize", **HANDSHAKE), notification("notifications/initialized"))
        assert self.hear()["id"] == 0

    def call(self, id: int | str, tool: str, meta: dict[str, Any] | None = None, **arguments: Any) -> None:
        """Call a tool without waiting for its result."""
        more = {"_meta": meta} if meta else {}
        self.say(request(id, "tools/call", name=tool, arguments=arguments, **more))

    def answer(self, id: int | str) -> dict[str, Any]:
        """Return the tool's object from the next response, which must belong to this call."""
        found = self.hear()
        assert found["id"] == id, found
        (block,) = found["result"]["content"]
        answer: dict[str, Any] = json.loads(block["text"])
        return answer

    def ask(
        self, id: int | str, tool: str, meta: dict[str, Any] | None = None, **arguments: Any
    ) -> dict[str, Any]:
        self.call(id, tool, meta, **arguments)
        return self.answer(id)


HANDSHAKE: dict[str, Any] = {
    "protocolVersion": LATEST_HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def request(id: int | str, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}
