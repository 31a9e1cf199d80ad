"""Import the MCP SDK at its first use, in a thread, because that takes most of a second.

Meanwhile the interpreter switches threads more often, so that the event loop stays responsive.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from palaver.doors.mcp.server import McpSession

_Loaded = TypeVar("_Loaded")
_SWITCH_S: Final = 0.0005


class Loader:
    """Imports of slow modules, one at a time, outside of the event loop. Use it only on the loop's thread."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def session_class(self) -> "type[McpSession]":
        """Return the class that serves one connection."""
        return await self.load(_import_session)

    async def load(self, load: Callable[[], _Loaded]) -> _Loaded:
        """Return the result of a function that imports slow modules."""
        async with self._lock:
            return await asyncio.to_thread(quietly, load)


def quietly(load: Callable[[], _Loaded]) -> _Loaded:
    """Import with frequent thread switches and without garbage collection, so that the loop keeps running.

    New modules are left out of later collections: they live as long as the process.
    """
    before = sys.getswitchinterval()
    known = len(sys.modules)
    was_collecting = gc.isenabled()
    sys.setswitchinterval(_SWITCH_S)
    gc.disable()
    try:
        return load()
    finally:
        sys.setswitchinterval(before)
        if len(sys.modules) != known:
            gc.freeze()
        if was_collecting:
            gc.enable()


def _import_session() -> "type[McpSession]":
    from palaver.doors.mcp.server import McpSession

    return McpSession
