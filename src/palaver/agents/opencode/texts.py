"""Texts on their way into OpenCode sessions, each until it was sent to a model.

A text is sent to a session once. If the response is lost, the session's own messages show whether it arrived.
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
    """The texts that were sent to sessions and are not seen yet."""

    def __init__(self, server: Asking, sessions: Sessions, prove: Callable[[str], None]) -> None:
        """`prove` receives the keys of texts that were unconfirmed here and are seen after all."""
        self._server = server
        self._sessions = sessions
        self._prove = prove
        self._waiting: dict[str, tuple[str, asyncio.Future[Done]]] = {}
        """By key: the session, and the future result."""

    @property
    def sessions(self) -> set[str]:
        """The sessions with waiting texts."""
        return {session for session, _ in self._waiting.values()}

    def is_waiting(self, session: str) -> bool:
        """Return whether a text in this session is not known to be seen yet."""
        return any(where == session and not future.done() for where, future in self._waiting.values())

    async def put(self, session: str, text: str, key: str) -> Done:
        """Send a text to a session, and wait until it was sent to the model or cannot be any more."""
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._waiting[key] = session, future
        try:
            return await self._send(session, text, key) or await future
        finally:
            self._waiting.pop(key, None)

    async def _send(self, session: str, text: str, key: str) -> Done | None:
        """Send a text; None if it arrived or may have arrived: then the events decide the result."""
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
        """Finish every text that was sent to the model, and those that no turn will read now."""
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
        """Finish the texts that are not in the sessions, after all messages were read: they never arrived."""
        for key, (_, future) in self._waiting.items():
            if not self._sessions.has_text(key) and not future.done():
                future.set_result(Done(Answer.DEFERRED, "OpenCode has not taken it"))
