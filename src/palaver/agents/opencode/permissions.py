"""The permission requests of OpenCode, and the user's decisions passed on to it.

A request can be decided remotely only if it is known in full, with the input of the tool. Everything else
must be answered at the terminal.
"""

import logging
from typing import Final

from palaver.agents.native_word import Asked
from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode import wire
from palaver.agents.opencode.asking import Asking
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.opencode.talk import asked_of
from palaver.harness.hook_news import as_list

_logger: Final = logging.getLogger("palaver.holder")


class OpenCodeAsker:
    """The requests in the agent's session and those of its sub-agents."""

    def __init__(self, server: Asking, sessions: Sessions) -> None:
        self._server = server
        self._sessions = sessions

    def asked(self) -> dict[str, Asked]:
        """Return the open permission requests by id."""
        return self._sessions.permissions()

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        """Pass a decision on if exactly this request is still open; return whether the server accepted it."""
        try:
            return await self._reply(asked, is_allowed=is_allowed)
        except (NotSent, Lost) as error:
            _logger.warning("a person's answer did not reach OpenCode: %s", error)
            return False

    async def _reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        head, body = await self._server.ask("GET", wire.PERMISSIONS)
        found = [asked_of(one) for one in as_list(wire.json_from_bytes(body))] if head.is_ok else []
        if asked not in map(self._sessions.whole, found):
            return False
        reply = wire.reply_body(is_allowed=is_allowed)
        head, _ = await self._server.ask("POST", wire.reply_path(asked.request), reply)
        return head.is_ok
