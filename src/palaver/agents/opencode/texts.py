"""Texts on their way into sessions of OpenCode, each until a model was asked with it.

A text is put to a session once. When the answer is lost, the session itself says whether it is there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode import wire
from palaver.agents.opencode.asking import Asking
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.typing.steps import Answer, Done
from palaver.model.delivery import Grade

_SEEN: Final = Done(Answer.SEEN, grade=Grade.CONTEXT)


class Texts:
    """What was put to sessions and not yet seen."""

    def __init__(self, server: Asking, sessions: Sessions, prove: Callable[[str], None]) -> None:
        """`prove` is told the keys of texts that were given up here and are seen after all."""
        self._server = server
        self._sessions = sessions
        self._prove = prove
        self._waiting: dict[str, tuple[str, asyncio.Future[Done]]] = {}
        """By key: the session, and what became of it."""

    @property
    def sessions(self) -> set[str]:
        """The sessions in which something is waited for."""
        return {session for session, _ in self._waiting.values()}

    def is_waiting(self, session: str) -> bool:
        """Whether a text in this session has not been seen, as far as is known."""
        return any(where == session and not future.done() for where, future in self._waiting.values())

    async def put(self, session: str, text: str, key: str) -> Done:
        """Put a text to a session, and wait until the model was asked with it, or never will be."""
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._waiting[key] = session, future
        try:
            return await self._send(session, text, key) or await future
        finally:
            self._waiting.pop(key, None)

    async def _send(self, session: str, text: str, key: str) -> Done | None:
        """Send a text; None when it is there, or may be: then the events say what became of it."""
        body = wire.prompt_body(text, key, self._sessions.manner_of(session))
        try:
            head, _ = await self._server.ask("POST", wire.prompt_path(session), body)
        except NotSent as error:
            return Done(Answer.DEFERRED, f"OpenCode does not answer: {error}")
        except Lost:
            return None
        if head.status == wire.NOT_FOUND:
            self._sessions.hear(wire.Said("session.deleted", {"sessionID": session}))
            return Done(Answer.DEFERRED, "its session was deleted")
        return None if head.is_ok else Done(Answer.REFUSED, f"OpenCode answered {head.status}")

    def settle(self) -> None:
        """Let go of every text that the model was asked with, and of those that nobody will read now."""
        for key in self._sessions.take_seen():
            if (waiting := self._waiting.get(key)) is None:
                self._prove(key)
            elif not waiting[1].done():
                waiting[1].set_result(_SEEN)
        for key, (session, future) in self._waiting.items():
            if future.done():
                continue
            if not self._sessions.has(session):
                future.set_result(Done(Answer.UNCONFIRMED, "its session was deleted"))
            elif self._sessions.has_text(key) and self._sessions.has_stopped(session):
                future.set_result(Done(Answer.UNCONFIRMED, "its turn was broken off"))

    def missed(self) -> None:
        """All that is in the sessions was read anew: what is not among it was never taken."""
        for key, (_, future) in self._waiting.items():
            if not self._sessions.has_text(key) and not future.done():
                future.set_result(Done(Answer.DEFERRED, "OpenCode has not taken it"))
