"""What people are asked by a harness with a way in of its own, told to the bus, and a word brought back.

Nothing is answered here but what the daemon says a person has decided, and only while the harness still asks
exactly that. A permission is given for this once and never for good. With the setting off the daemon says
nothing, and so nothing is ever answered.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from palaver.agents.bus import Bus
from palaver.agents.native_word import Asked
from palaver.agents.work import Spawn
from palaver.client.wire import Line
from palaver.model.lines.holder_ops import GONE, TAKEN, PermissionOp
from palaver.model.permission import request_digest


class Asker(Protocol):
    """A harness that asks."""

    def asked(self) -> Mapping[str, Asked]:
        """Give what is asked now and can be answered from elsewhere, for the agent and all below it."""

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        """Pass a person's word on, if the very same is still asked, and say whether it was taken."""


class Permissions:
    """The requests of one agent and of those below it."""

    def __init__(self, bus: Bus, asker: Asker, *, spawn: Spawn, name_of: Callable[[str], str]) -> None:
        """`name_of` says whose session one is; empty for the agent itself."""
        self._bus = bus
        self._asker = asker
        self._spawn = spawn
        self._name_of = name_of
        self._told: dict[str, tuple[Asked, str]] = {}
        """What the daemon knows of, and in whose name."""
        self._answered: dict[str, Asked] = {}
        """What a word was passed on to, or could not be, and which the harness has not yet let go of."""

    def connected(self) -> None:
        """Tell a daemon that has just come all that is asked now."""
        self._told.clear()
        self._answered.clear()
        self.look()

    def look(self) -> None:
        """Tell what is newly asked, and what is asked no more: answered at the terminal, or given up."""
        if not self._bus.is_connected:
            return
        now = self._asker.asked()
        self._answered = {one: asked for one, asked in self._answered.items() if now.get(one) == asked}
        for request in [one for one, (asked, _) in self._told.items() if now.get(one) != asked]:
            self._tell_end(request, self._told.pop(request)[1], GONE)
        for request, asked in now.items():
            if request not in self._told and request not in self._answered:
                self._tell(request, asked)

    def decide(self, line: Line) -> None:
        """Take a person's word on one request; on what nobody asks, or asks otherwise by now, it is none."""
        known = self._told.get(line.request)
        if known is not None and line.digest in ("", _digest(known[0])):
            del self._told[line.request]
            self._answered[line.request] = known[0]  # what is said of it from now on is an answer to this
            self._spawn(self._reply(line.request, *known, is_allowed=line.allowed))

    async def _reply(self, request: str, asked: Asked, name: str, *, is_allowed: bool) -> None:
        is_taken = await self._asker.reply(asked, is_allowed=is_allowed)
        self._tell_end(request, name, TAKEN if is_taken else GONE)

    def _tell(self, request: str, asked: Asked) -> None:
        name = self._name_of(asked.session)
        self._told[request] = asked, name
        self._bus.mention(
            PermissionOp(
                name=name,
                request=request,
                session=asked.session,
                tool=asked.tool,
                input=dict(asked.given),
            )
        )

    def _tell_end(self, request: str, name: str, outcome: str) -> None:
        self._bus.mention(PermissionOp(name=name, request=request, outcome=outcome))


def _digest(asked: Asked) -> str:
    return request_digest(asked.session, asked.tool, asked.given)
