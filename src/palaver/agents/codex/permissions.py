"""What a Codex asks people leave for, told to the bus, and a person's word brought back.

Nothing is answered here but what the daemon says a person has decided, and only while Codex still asks
exactly that. A permission is given for this once and never for good. With the setting off the daemon says
nothing, and so nothing is ever answered.
"""

import logging
from collections.abc import Callable
from typing import Final

from palaver.agents.bus import Bus
from palaver.agents.codex.client import CodexClient
from palaver.agents.codex.questions import Question, decision
from palaver.agents.codex.threads import Threads
from palaver.client import request as ask
from palaver.client.wire import Line
from palaver.errors import Disconnected

_TAKEN: Final = "taken"
_GONE: Final = "gone"

_logger: Final = logging.getLogger("palaver.holder")


class CodexPermissions:
    """The requests of one agent's thread and of those below it."""

    def __init__(
        self, client: CodexClient, threads: Threads, bus: Bus, name_of: Callable[[str], str]
    ) -> None:
        """`name_of` says whose thread one is; empty for the agent itself."""
        self._client = client
        self._threads = threads
        self._bus = bus
        self._name_of = name_of
        self._told: dict[str, tuple[Question, str]] = {}
        """What the daemon knows of, and in whose name."""
        self._answered: set[str] = set()
        """What has been passed on and is not taken yet: the server says when it is."""

    def connected(self) -> None:
        """Tell a daemon that has just come all that is asked now."""
        self._told.clear()
        self._answered.clear()
        self.look()

    def look(self) -> None:
        """Tell what is newly asked, and what is asked no more: answered at the terminal, or given up."""
        if not self._bus.is_connected:
            return
        now = self._threads.questions()
        for request in [one for one, (known, _) in self._told.items() if now.get(one) != known]:
            self._over(request)
        for request, asked in now.items():
            if request not in self._told:
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
        """Pass on a person's word on one request, if Codex asks the very same now."""
        known = self._told.get(line.request)
        if known is None or line.request in self._answered:
            return
        if self._threads.questions().get(line.request) != known[0]:
            self._over(line.request)
            return
        try:
            self._client.answer(known[0].id, decision(is_allowed=line.allowed))
        except Disconnected as error:
            _logger.warning("a person's answer did not reach Codex: %s", error)
            self._over(line.request)
        else:
            self._answered.add(line.request)

    def _over(self, request: str) -> None:
        known = self._told.pop(request, None)
        outcome = _TAKEN if request in self._answered else _GONE
        self._answered.discard(request)
        if known is not None:
            self._bus.mention(ask.Permission(name=known[1], request=request, outcome=outcome))
