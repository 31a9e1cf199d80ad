"""The permission requests of Codex, and the user's decisions passed on to it.

The server does not reply to a decision; it reports later that the request is resolved. `reply` waits for
that.
"""

import asyncio
import logging
from typing import Final

from palaver.agents.codex.client import CodexClient
from palaver.agents.codex.questions import decision
from palaver.agents.codex.threads import Threads
from palaver.agents.native_word import Asked
from palaver.errors import Disconnected

_logger: Final = logging.getLogger("palaver.holder")


class CodexAsker:
    """The requests in the agent's thread and those of its sub-agents."""

    def __init__(self, client: CodexClient, threads: Threads) -> None:
        self._client = client
        self._threads = threads
        self._waiting: dict[str, tuple[Asked, asyncio.Future[bool]]] = {}

    def asked(self) -> dict[str, Asked]:
        """Return the open requests that can be decided remotely."""
        return self._threads.questions()

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        """Pass a decision on if the same request is still open; return whether the server accepted it."""
        if self._threads.questions().get(asked.request) != asked:
            return False
        try:
            self._client.answer(asked.id, decision(is_allowed=is_allowed))
        except Disconnected as error:
            _logger.warning("a person's answer did not reach Codex: %s", error)
            return False
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[asked.request] = asked, over
        return await over

    def look(self) -> None:
        """Finish the replies whose requests are resolved."""
        now = self._threads.questions()
        for request in [one for one, (asked, _) in self._waiting.items() if now.get(one) != asked]:
            self._settle(request, is_taken=True)

    def close(self) -> None:
        """Fail all waiting replies: the server is lost, so it is unknown whether it accepted them."""
        for request in list(self._waiting):
            self._settle(request, is_taken=False)

    def _settle(self, request: str, *, is_taken: bool) -> None:
        _, over = self._waiting.pop(request)
        if not over.done():
            over.set_result(is_taken)
