"""The server of an OpenCode as whoever asks it sees it, over HTTP or by its plugin."""

from collections.abc import AsyncIterator
from typing import Protocol

from palaver.agents.net.http_wire import Head


class Asking(Protocol):
    """The server of an OpenCode, however it is reached."""

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = 30.0
    ) -> tuple[Head, bytes]:
        """Ask, and give the whole answer. Raises NotSent or Lost."""

    def follow(self, path: str, *, first_s: float, silence_s: float) -> AsyncIterator[bytes]:
        """Give every event of a stream. Raises NotSent or Lost."""
