"""Tool calls of programs on one connection: the same tools, with the same results, as over MCP."""

import asyncio
from typing import Final

from palaver.doors.services import Services
from palaver.doors.tools.calls import Asked, run_tool
from palaver.doors.tools.tools import TOOLS, Tool
from palaver.errors import ShuttingDown
from palaver.model.agent import Caller
from palaver.model.lines.program_ops import ToolOp

_STOPS: Final = "the bus stops; ask the next one"
_WAITING: Final = frozenset(tool.name for tool in TOOLS if tool.is_waiting)


class Tools:
    """The running calls. Those that only wait end with the connection, and when the daemon stops."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._waiting: set[asyncio.Task[dict[str, object]]] = set()
        self._is_over = False

    async def call(self, caller: Caller, op: ToolOp) -> dict[str, object]:
        """Run one call. Raises ShuttingDown for a wait that must be repeated at the next daemon."""

        async def who(tool: Tool) -> Caller:
            return caller

        key = bytes.fromhex(op.key) if op.key else None
        asked = Asked(tool=op.tool, arguments=op.arguments, who=who, cwd=op.cwd, key=key)
        if op.tool not in _WAITING:
            return await run_tool(self._services, TOOLS, asked)
        if self._is_over:
            raise ShuttingDown(_STOPS)
        asking = asyncio.current_task()
        assert asking is not None  # a coroutine runs in a task
        work = asyncio.ensure_future(run_tool(self._services, TOOLS, asked))
        self._waiting.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            if asking.cancelling() or not self._is_over:
                raise
            raise ShuttingDown(_STOPS) from None
        finally:
            self._waiting.discard(work)
            work.cancel()

    def end(self) -> None:
        """Cancel the calls that wait, and refuse new ones that would."""
        self._is_over = True
        for work in self._waiting:
            work.cancel()
