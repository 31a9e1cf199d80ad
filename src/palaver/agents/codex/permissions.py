"""What a Codex asks people leave for, and a person's word passed on to it.

Its server takes a word without an answer, and says later that the question is over: so long it is waited for.
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
    """The questions in the agent's thread and in those below it."""

    def __init__(self, client: CodexClient, threads: Threads) -> None:
        self._client = client
        self._threads = threads
        self._waiting: dict[str, tuple[Asked, asyncio.Future[bool]]] = {}

    def asked(self) -> dict[str, Asked]:
        """Give what is asked now and can be answered from elsewhere."""
        return self._threads.questions()

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        """Pass a person's word on, if the very same is still asked, and say whether it was taken."""
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
        """See which questions are over."""
        now = self._threads.questions()
        for request in [one for one, (asked, _) in self._waiting.items() if now.get(one) != asked]:
            self._settle(request, is_taken=True)

    def close(self) -> None:
        """The server is gone: nobody knows whether it took what was passed on."""
        for request in list(self._waiting):
            self._settle(request, is_taken=False)

    def _settle(self, request: str, *, is_taken: bool) -> None:
        _, over = self._waiting.pop(request)
        if not over.done():
            over.set_result(is_taken)
