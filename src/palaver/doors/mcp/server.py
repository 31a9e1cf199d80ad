"""The official SDK's low-level server with our tools. Slow to import: `pump.py` does it in a thread."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    PROTOCOL_VERSION_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as SdkTool
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from palaver.doors.tools import INSTRUCTIONS, WAITING, Tool, ToolResult, input_schema
from palaver.protocol.agent_text import escape_json
from palaver.protocol.thin import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    BadLine,
    RequestId,
    has_half_pair,
    has_id,
)

Context = ServerRequestContext[Any, Any]
Call = Callable[[Context, CallToolRequestParams], Awaitable[ToolResult]]
"""Runs one tool call."""

LIMIT_UNREAD: Final = 64
"""Messages that may wait for the server's loop. Each is at most 1 MiB long."""
PROGRESS_S: Final = 10.0
"""Seconds between two reports of a wait. Clients that extend their limit by reports abort after a minute."""
_CACHE_MS: Final = 3_600_000
"""Milliseconds that a client may keep the list of tools, which only another version of the daemon changes."""
_QUICK_CHARACTERS: Final = 64 * 1024
"""Characters of a result that are escaped within a few milliseconds."""
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def make_server(
    version: str, offered: tuple[Tool, ...], call: Call, *, progress_s: float = PROGRESS_S
) -> Server[Any]:
    """Return a server for some tools. An error is a normal result, marked as an error for the model.

    A waiting call whose client sent a progress token reports that it waits, every `progress_s` seconds.
    """
    listed = ListToolsResult(tools=[_described(tool) for tool in offered], ttl_ms=_CACHE_MS)

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return listed

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        result = call(context, params)
        if params.name in WAITING and "progress_token" in (context.meta or {}):
            result = _reported(context, params.name, result, progress_s)
        answer = await result
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
        # Without it the SDK lists all tools before each call over HTTP, to find the schema of one.
        get_tool_input_schema={tool.name: input_schema(tool.params) for tool in offered}.get,
    )


async def _reported(context: Context, tool: str, call: Awaitable[ToolResult], every_s: float) -> ToolResult:
    """Return the result of a waiting call, and report until then that it waits."""
    async with asyncio.TaskGroup() as tasks:
        reports = tasks.create_task(_report(context, tool, every_s))
        try:
            return await call
        finally:
            reports.cancel()


async def _report(context: Context, tool: str, every_s: float) -> None:
    for count in itertools.count():
        waited_s = count * every_s
        await context.session.report_progress(waited_s, message=f"{tool} has waited for {waited_s:.0f} s")
        await asyncio.sleep(every_s)


def _described(tool: Tool) -> SdkTool:
    return SdkTool(
        name=tool.name,
        description=tool.help,
        input_schema=input_schema(tool.params),
        annotations=ToolAnnotations(read_only_hint=True) if tool.is_reading else None,
    )


# --------------------
# One MCP client over lines: passes messages to the SDK's server and back, in both protocol generations.
#
# The older generation starts with a handshake; the newer one states its needs in each request. A client may
# try one and continue with the other, so each has its own server loop, started at its first message. Slow
# to import, so `pump.py` imports it in a thread.

Write = Callable[[bytes, RequestId | None], None]
"""Accepts a line for the client, and the id of the request that it replies to."""

_RESTORED: Final = "palaver-restored-handshake"
"""The id of a handshake restored from an earlier daemon. The client does not get the reply."""
HALF_PAIR: Final = (
    "bad_text: a text has half of a surrogate pair, such as \\ud800by itself, which is not a character; "
    "nothing was done"
)
_NOT_JSON: Final = "the {0} is not JSON: send one JSON-RPC message per {0}"

_Inward = MemoryObjectSendStream[SessionMessage | Exception]
_Taken = MemoryObjectReceiveStream[SessionMessage | Exception]


class McpSession:
    """The server of one client. It keeps every message that it takes: the caller asks `has_room` before."""

    def __init__(
        self,
        version: str,
        offered: tuple[Tool, ...],
        call: Call,
        write: Write,
        tasks: asyncio.TaskGroup,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_room` is called each time the server has read a message."""
        self._server: Server[Any] = make_server(version, offered, call)
        self._write = write
        self._tasks = tasks
        self._on_room = on_room
        self._unread = 0
        self._loops: dict[bool, tuple[_Inward, asyncio.Task[None]]] = {}
        self._is_closed = False

    @staticmethod
    def read(line: bytes, what: str = "line") -> JSONRPCMessage | BadLine:
        """Decode one message, or return why it is invalid. `what` names its unit in the error."""
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            wrong = {one["type"]: one["msg"] for one in error.errors(include_url=False, include_input=False)}
        else:
            try:
                is_with_id = has_id(line)
            except msgspec.DecodeError:  # Pydantic also accepts NaN and Infinity, which are not JSON.
                return BadLine(PARSE_ERROR, _NOT_JSON.format(what))
            # The SDK takes a request with an invalid id for a notification, and would never reply to it.
            if isinstance(message, JSONRPCNotification) and is_with_id:
                return BadLine(INVALID_REQUEST, "the id of a request is a string or a whole number")
            return message
        if "recursion" in wrong.get("json_invalid", ""):
            return BadLine(INVALID_REQUEST, f"the {what} is nested too deeply")
        if "json_invalid" in wrong and has_half_pair(line):
            return BadLine(INVALID_PARAMS, HALF_PAIR)
        if "json_invalid" in wrong:
            return BadLine(PARSE_ERROR, _NOT_JSON.format(what))
        return BadLine(INVALID_REQUEST, f"the {what} is not a JSON-RPC 2.0 message")

    @staticmethod
    def key_of(id: RequestId) -> RequestId:
        """Return the key by which the server finds an open request: `1`, `"1"` and `"01"` have the same."""
        return coerce_request_id(id)

    def restore(self, handshake: dict[str, Any]) -> None:
        """Repeat the handshake that an earlier daemon made with this client."""
        self.take(JSONRPCRequest(jsonrpc="2.0", id=_RESTORED, method="initialize", params=handshake))
        self.take(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))

    @property
    def has_room(self) -> bool:
        """Whether the server has read most of the messages that it was given."""
        return self._unread < LIMIT_UNREAD

    def take(self, message: JSONRPCMessage) -> None:
        """Pass one message to the server. Replies come through `write`, in any order."""
        if isinstance(message, JSONRPCRequest):
            self._pass_on(self._inward(is_modern=_is_modern(message)), message)
            return
        for inward, _ in self._loops.values():  # a notification does not say for which loop it is
            self._pass_on(inward, message)

    def close(self) -> None:
        """End every loop and all its calls. A disconnected client is not an error."""
        # First, because `_serve` ignores the errors of closed streams only then.
        self._is_closed = True
        for inward, task in self._loops.values():
            inward.close()
            task.cancel()
        self._loops.clear()

    def _pass_on(self, inward: _Inward, message: JSONRPCMessage) -> None:
        self._unread += 1
        inward.send_nowait(SessionMessage(message))

    def _has_read(self) -> None:
        self._unread -= 1
        self._on_room()

    def _inward(self, *, is_modern: bool) -> _Inward:
        if is_modern not in self._loops:
            # Without a limit, because `take` must not wait: its caller asks `has_room` before.
            inward, taken = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
            serving = self._tasks.create_task(self._serve(taken))
            serving.add_done_callback(lambda ended: taken.close())  # also if it never started
            self._loops[is_modern] = inward, serving
        return self._loops[is_modern][0]

    async def _serve(self, taken: _Taken) -> None:
        options = self._server.create_initialization_options()
        try:
            await self._server.run(_Counted(taken, self._has_read), _Outward(self._write), options)
        except* anyio.BrokenResourceError:
            if not self._is_closed:
                raise
            # The SDK fails on its own streams if a client disconnects right after it connected.


class _Counted:
    """The input of the server's loop, which reports each message that is read."""

    def __init__(self, taken: _Taken, has_read: Callable[[], None]) -> None:
        self._taken = taken
        self._has_read = has_read

    async def receive(self) -> SessionMessage | Exception:
        item = await self._taken.receive()
        self._has_read()
        return item

    async def aclose(self) -> None:
        await self._taken.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Outward:
    """The output of the server's loop. It needs no limit: each open request has one reply and few reports."""

    def __init__(self, write: Write) -> None:
        self._write = write

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        id = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        if id != _RESTORED:
            line = message.model_dump_json(by_alias=True, exclude_unset=True)
            self._write(line.encode() + b"\n", id)

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _is_modern(request: JSONRPCRequest) -> bool:
    """Return whether a request states its protocol version itself; a handshake never does."""
    meta = (request.params or {}).get("_meta")
    return request.method != "initialize" and isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta
