"""What people are asked by an OpenCode, told to the bus, and a person's word brought back.

Nothing is answered here but what the daemon says a person has decided, and only while OpenCode still asks
exactly that. A permission is given for this once and never for good.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from palaver.agents.bus import Bus
from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode import wire
from palaver.agents.opencode.sessions import Sessions
from palaver.agents.opencode.talk import Asked, asked_of
from palaver.agents.opencode.texts import Asking
from palaver.client import request as ask
from palaver.client.wire import Line

_TAKEN: Final = "taken"
_GONE: Final = "gone"

_logger: Final = logging.getLogger("palaver.holder")


class Permissions:
    """The requests of one agent's session and of those below it."""

    def __init__(
        self,
        server: Asking,
        sessions: Sessions,
        bus: Bus,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        name_of: Callable[[str], str],
    ) -> None:
        """`name_of` says whose session one is; empty for the agent itself."""
        self._server = server
        self._sessions = sessions
        self._bus = bus
        self._spawn = spawn
        self._name_of = name_of
        self._told: dict[str, tuple[Asked, str]] = {}
        """What the daemon knows of, and in whose name."""
        self._over: set[str] = set()
        """What was answered, or could not be, and OpenCode has not yet said that it is over."""

    def connected(self) -> None:
        """Tell a daemon that has just come all that is asked now."""
        self._told.clear()
        self._over.clear()
        self.look()

    def look(self) -> None:
        """Tell what is newly asked, and what is asked no more."""
        if not self._bus.is_connected:
            return
        now = self._sessions.permissions()
        self._over &= now.keys()
        for request in [one for one in self._told if one not in now]:
            self._tell_end(request, self._told.pop(request)[1], _GONE)
        for request, asked in now.items():
            if request not in self._told and request not in self._over:
                name = self._name_of(asked.session)
                self._told[request] = asked, name
                self._bus.mention(
                    ask.Permission(
                        name=name,
                        request=request,
                        session=asked.session,
                        tool=asked.tool,
                        input=dict(asked.given),
                    )
                )

    def decide(self, line: Line) -> None:
        """Take a person's word on one request."""
        self._spawn(self._decide(line.request, is_allowed=line.allowed))

    async def _decide(self, request: str, *, is_allowed: bool) -> None:
        if (known := self._told.pop(request, None)) is None:
            return
        self._over.add(request)  # what OpenCode says of it from now on is an answer to this
        try:
            is_taken = await self._reply(known[0], is_allowed=is_allowed)
        except (NotSent, Lost) as error:
            _logger.warning("a person's answer did not reach OpenCode: %s", error)
            is_taken = False
        self._tell_end(request, known[1], _TAKEN if is_taken else _GONE)

    async def _reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        """Answer, if OpenCode asks the very same now; what it asked meanwhile is something else."""
        head, body = await self._server.ask("GET", wire.PERMISSIONS)
        found = [asked_of(one) for one in wire.as_list(wire.json_from_bytes(body))] if head.is_ok else []
        if asked not in found:
            return False
        reply = wire.reply_body(is_allowed=is_allowed)
        head, _ = await self._server.ask("POST", wire.reply_path(asked.request), reply)
        return head.is_ok

    def _tell_end(self, request: str, name: str, outcome: str) -> None:
        self._bus.mention(ask.Permission(name=name, request=request, outcome=outcome))
