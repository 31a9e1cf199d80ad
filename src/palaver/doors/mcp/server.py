"""The official SDK's low-level server with our tools. Slow to import: `loading.py` does it in a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as SdkTool

from palaver.doors.tools.calls import Answer
from palaver.doors.tools.schema import input_schema
from palaver.doors.tools.tools import INSTRUCTIONS, Tool
from palaver.model.forms import escape_json

Context = ServerRequestContext[Any, Any]
Call = Callable[[Context, CallToolRequestParams], Awaitable[Answer]]
"""Runs one tool call."""

_CACHE_MS: Final = 3_600_000
_QUICK_CHARACTERS: Final = 64 * 1024
"""Characters of a result that are escaped within a few milliseconds."""
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def make_server(version: str, offered: tuple[Tool, ...], call: Call) -> Server[Any]:
    """Return a server for some tools. An error is a normal result, marked as an error for the model."""
    listed = ListToolsResult(tools=[_described(tool) for tool in offered], ttl_ms=_CACHE_MS)

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return listed

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        answer = await call(context, params)
        encoded = _encode(answer.content).decode()
        # Escaping a large result takes too long for the event loop.
        is_quick = len(encoded) <= _QUICK_CHARACTERS
        text = escape_json(encoded) if is_quick else await asyncio.to_thread(escape_json, encoded)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=answer.is_refusal)

    return Server(
        "palaver",
        version=version,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema={tool.name: input_schema(tool.params) for tool in offered}.get,
    )


def _described(tool: Tool) -> SdkTool:
    return SdkTool(
        name=tool.name,
        description=tool.help,
        input_schema=input_schema(tool.params),
        annotations=ToolAnnotations(read_only_hint=True) if tool.is_reading else None,
    )
