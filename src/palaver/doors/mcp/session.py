"""One client of MCP over lines: messages to the SDK's server and back, in either generation of the protocol.

The older generation begins with a handshake, the newer one says in each request what it needs; a client may
try one and go on with the other, so each has a server loop of its own, started when it is first spoken. Slow
to import: `loading.py` does, in a thread.
"""

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    PROTOCOL_VERSION_META_KEY,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from palaver.doors.mcp.pump_wire import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    BadLine,
    RequestId,
    has_half_pair,
    has_id,
)
from palaver.doors.mcp.server import Call, make_server
from palaver.doors.tools.tools import Tool

Write = Callable[[bytes, RequestId | None], None]
"""Takes a line for the client, and the id of the request that it answers."""

_RESTORED: Final = "palaver-restored-handshake"
"""The id of a handshake that the client made with an earlier daemon; it never hears of the answer."""
HALF_PAIR: Final = (
    "bad_text: a text has half of a surrogate pair, such as \\ud800 by itself, and that is no character; "
    "nothing was done"
)

_Inward = MemoryObjectSendStream[SessionMessage | Exception]
_Taken = MemoryObjectReceiveStream[SessionMessage | Exception]


class Session:
    """Serves one client. Everything it takes is bounded by what its owner lets be open at once."""

    def __init__(
        self,
        version: str,
        offered: tuple[Tool, ...],
        call: Call,
        write: Write,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._server: Server[Any] = make_server(version, offered, call)
        self._write = write
        self._tasks = tasks
        self._loops: dict[bool, tuple[_Inward, asyncio.Task[None]]] = {}
        self._is_closed = False

    @staticmethod
    def read(line: bytes, what: str = "line") -> JSONRPCMessage | BadLine:
        """Read one message, or say why it is none; `what` is how it came."""
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            wrong = {one["type"]: one["msg"] for one in error.errors(include_url=False, include_input=False)}
        else:
            if isinstance(message, JSONRPCNotification) and has_id(line):
                return BadLine(INVALID_REQUEST, "the id of a request is a string or a whole number")
            return message
        if "recursion" in wrong.get("json_invalid", ""):
            return BadLine(INVALID_REQUEST, f"the {what} is nested too deeply")
        if "json_invalid" in wrong and has_half_pair(line):
            return BadLine(INVALID_PARAMS, HALF_PAIR)
        if "json_invalid" in wrong:
            return BadLine(
                PARSE_ERROR, f"the {what} is no JSON: one message of JSON-RPC a {what} is expected"
            )
        return BadLine(INVALID_REQUEST, f"the {what} is no message of JSON-RPC 2.0")

    def restore(self, handshake: dict[str, Any]) -> None:
        """Make the handshake again that an earlier daemon made with this client."""
        self.take(JSONRPCRequest(jsonrpc="2.0", id=_RESTORED, method="initialize", params=handshake))
        self.take(JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))

    def take(self, message: JSONRPCMessage) -> None:
        """Hand one message to the server; answers come by `write`, in any order."""
        if isinstance(message, JSONRPCRequest):
            self._inward(is_modern=_is_modern(message)).send_nowait(SessionMessage(message))
            return
        for inward, _ in self._loops.values():  # a notification does not say which loop it is for
            inward.send_nowait(SessionMessage(message))

    def close(self) -> None:
        """End every loop and all that it does. A client that has gone is no failure."""
        self._is_closed = True
        for inward, task in self._loops.values():
            inward.close()
            task.cancel()
        self._loops.clear()

    def _inward(self, *, is_modern: bool) -> _Inward:
        if is_modern not in self._loops:
            inward, taken = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
            serving = self._tasks.create_task(self._serve(taken))
            serving.add_done_callback(lambda ended: taken.close())  # also where it never began
            self._loops[is_modern] = inward, serving
        return self._loops[is_modern][0]

    async def _serve(self, taken: _Taken) -> None:
        options = self._server.create_initialization_options()
        try:
            await self._server.run(taken, _Outward(self._write), options)
        except* anyio.BrokenResourceError:
            if not self._is_closed:
                raise
            # The SDK trips over its own pipes when its client goes in its first moments.


class _Outward:
    """Where the server's loop writes. Never full: what is written answers what was let in."""

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
    """True where a request says for itself which protocol it speaks; a handshake never does."""
    meta = (request.params or {}).get("_meta")
    return request.method != "initialize" and isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta
