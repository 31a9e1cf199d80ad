"""Correct states of Claude Code that no hook reports: a turn or sub-agent stopped, a dialog denied.

Only in those states, and rarely, this reads the small file in which Claude Code records its own state. A
client on the agent's side reads it with its own rights; no process is started. A hook that arrives in the
meantime takes precedence.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from typing import Final

from palaver.errors import PalaverError
from palaver.harness.claude.session import (
    LIMIT_BYTES,
    Registered,
    Rest,
    corrected,
    is_doubtful,
    read_registered,
    registry_path,
)
from palaver.harness.usage_limits import is_limited
from palaver.protocol.agents import Agent, caller_for
from palaver.protocol.envelope import Event
from palaver.protocol.events import AGENT_TYPES
from palaver.protocol.requests import SetStatus
from palaver.services.services import Services

PAUSES_S: Final = (2.0, 4.0, 8.0, 15.0)
"""Seconds without news before each look; the last value repeats."""
ReadFile = Callable[[str, int], Awaitable[bytes]]
"""Has a file read, up to a number of bytes, or raises."""

_logger: Final = logging.getLogger("palaver.doors")


class ClaudeDoubts:
    """The check of one agent's state, while a client on its side can read files for the daemon."""

    def __init__(
        self,
        services: Services,
        agent: str,
        read: ReadFile,
        *,
        home: str,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`home` is the user's home directory. The file is there if no transcript path shows its location."""
        self._services = services
        self._agent = agent
        self._read = read
        self._home = home
        self._pauses_s = pauses_s
        self._news = asyncio.Event()
        # Hooks that ran while no daemon was running are unknown.
        self._is_unknown = services.agents.conversations.get(agent) is None

    async def run(self) -> None:
        """Run until it is cancelled or the agent has left."""
        unsubscribe = self._services.queries.subscribe(self._follow, AGENT_TYPES)
        try:
            pauses = self._anew()
            while (agent := self._known()) is not None:
                self._news.clear()
                try:
                    async with asyncio.timeout(next(pauses) if self._is_in_doubt(agent) else None):
                        await self._news.wait()
                    pauses = self._anew()
                except TimeoutError:
                    await self._look(agent)
        finally:
            unsubscribe()

    def _anew(self) -> chain[float]:
        return chain(self._pauses_s, repeat(self._pauses_s[-1]))

    def _follow(self, events: Sequence[Event]) -> None:
        if any(event.type in AGENT_TYPES and event.sender == self._agent for event in events):
            self._news.set()

    def _known(self) -> Agent | None:
        agent = self._services.broker.directory.get(self._agent)
        return None if agent is None or agent.left or agent.seat is None else agent

    def _is_in_doubt(self, agent: Agent) -> bool:
        is_doubted = self._is_unknown or is_doubtful(agent.state) or bool(self._below())
        return not is_limited(agent) and is_doubted

    def _below(self) -> list[Agent]:
        return self._services.agents.subagents.of(self._agent)

    def _heard(self) -> dict[str, int]:
        """Return the number of hooks heard from the agent and from each of its sub-agents."""
        names = (self._agent, *(one.name for one in self._below()))
        found = ((name, self._services.agents.conversations.get(name)) for name in names)
        return {name: -1 if known is None else known.heard for name, known in found}

    async def _look(self, agent: Agent) -> None:
        self._is_unknown = False
        heard = self._heard()
        try:
            found = await self._registered(agent)
            if found is None or self._heard() != heard or self._known() != agent:
                return
            below = self._below()
            age_ms = self._services.clock.now_ms() - agent.since
            state = corrected(agent.state, agent.detail, age_ms, found, has_subagents=bool(below))
            if found.rest is Rest.RESTING:
                for one in below:  # a harness with a working sub-agent would be busy
                    await self._services.agents.subagents.left(
                        one.name, f"stopped with the turn of {agent.name}"
                    )
            if state is not None:
                status = SetStatus(state=state[0], detail=state[1])
                await self._services.broker.submit(caller_for(agent), status)
        except PalaverError as error:
            _logger.info("the state of %s is uncertain: %s: %s", self._agent, error.code, error)

    async def _registered(self, agent: Agent) -> Registered | None:
        assert agent.seat is not None  # `_known` returns only agents with a seat
        transcript = self._services.agents.transcripts.path_of(agent.name)
        path = registry_path(transcript, self._home, agent.seat.pid)
        return read_registered(await self._read(path, LIMIT_BYTES), agent.seat.pid)
