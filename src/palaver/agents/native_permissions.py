"""Permission requests of a harness with a native integration: reported to the bus, and decisions returned.

The harness receives a decision only if the daemon reports that the user made it, and only while the harness
still has exactly that request open. A permission is granted once, never permanently. With the setting off,
the daemon sends no decisions.
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
    """A harness that requests permissions."""

    def asked(self) -> Mapping[str, Asked]:
        """Return the open requests that can be decided remotely, for the agent and its sub-agents, by id."""

    async def reply(self, asked: Asked, *, is_allowed: bool) -> bool:
        """Pass a decision on if the same request is still open; return whether the harness accepted it."""


class Permissions:
    """The permission requests of one agent and its sub-agents."""

    def __init__(self, bus: Bus, asker: Asker, *, spawn: Spawn, name_of: Callable[[str], str]) -> None:
        """`name_of` returns the agent of a session; empty for the agent itself."""
        self._bus = bus
        self._asker = asker
        self._spawn = spawn
        self._name_of = name_of
        self._told: dict[str, tuple[Asked, str]] = {}
        """The requests that were reported to the daemon, with the agent's name."""
        self._answered: dict[str, Asked] = {}
        """The decided requests that the harness still shows as open."""

    def connected(self) -> None:
        """Report all open requests to a new connection."""
        self._told.clear()
        self._answered.clear()
        self.look()

    def look(self) -> None:
        """Report new requests, and those no longer open: decided at the terminal, or withdrawn."""
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
        """Apply a decision to one request. Ignore it if the request is not open or has changed."""
        known = self._told.get(line.request)
        if known is not None and line.digest in ("", _digest(known[0])):
            del self._told[line.request]
            self._answered[line.request] = known[0]  # From now on, do not report this request again.
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
