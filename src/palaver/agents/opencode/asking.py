"""The interface to the server of OpenCode, over HTTP or through its plugin."""

from collections.abc import AsyncIterator
from typing import Protocol

from palaver.agents.net.http_wire import Head


class Asking(Protocol):
    """The server of OpenCode, over either transport."""

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Send a request and return the complete response. Raises NotSent or Lost."""

    def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Yield the events of a stream in order. Raises NotSent or Lost."""
