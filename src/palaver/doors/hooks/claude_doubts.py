"""What hooks of Claude Code leave in doubt: a turn or sub-agent that was stopped, a dialog denied, a miss.

Only then, and slowly, Claude Code's own word is asked for: a small file, which a client beside it reads with
its own rights. No process is started for it, and a hook that comes meanwhile is believed instead.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from typing import Final

from palaver.delivery.allowances import is_limited
from palaver.doors.services import Services
from palaver.errors import PalaverError
from palaver.harness.claude_registry import (
    LIMIT_BYTES,
    Registered,
    Rest,
    corrected,
    is_doubtful,
    read_registered,
    registry_path,
)
from palaver.model.agent import Agent
from palaver.model.caller import caller_for
from palaver.model.envelope import Event
from palaver.model.life import AGENT_TYPES
from palaver.model.request import SetStatus

PAUSES_S: Final = (2.0, 4.0, 8.0, 15.0)
"""After so long without news it is looked at; from then on again and again after the last of these."""
ReadFile = Callable[[str, int], Awaitable[bytes]]
"""Has a file read, of at most so many bytes, or raises."""

_logger: Final = logging.getLogger("palaver.doors")


class ClaudeDoubts:
    """Looks after what one agent is said to do, as long as somebody beside it can read for us."""

    def __init__(
        self,
        services: Services,
        agent: str,
        read: ReadFile,
        *,
        home: str,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`home` is the person's own folder: the file is there when no transcript says where it is."""
        self._services = services
        self._agent = agent
        self._read = read
        self._home = home
        self._pauses_s = pauses_s
        self._news = asyncio.Event()
        # What happened while no daemon was there, nobody has told.
        self._is_unknown = services.conversations.get(agent) is None

    async def run(self) -> None:
        """Go on until it is cancelled, or the agent has gone."""
        unsubscribe = self._services.log.subscribe(self._follow)
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
        return self._services.subagents.of(self._agent)

    def _heard(self) -> dict[str, int]:
        """How many hooks have come of it, and of each that works for it."""
        names = (self._agent, *(one.name for one in self._below()))
        found = ((name, self._services.conversations.get(name)) for name in names)
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
            said = corrected(agent.state, agent.detail, age_ms, found, has_subagents=bool(below))
            if found.rest is Rest.RESTING:
                for one in below:  # while one works it is busy
                    await self._services.subagents.left(one.name, f"stopped with the turn of {agent.name}")
            if said is not None:
                status = SetStatus(state=said[0], detail=said[1])
                await self._services.broker.submit(caller_for(agent), status)
        except PalaverError as error:
            _logger.info("what %s is doing stays in doubt: %s: %s", self._agent, error.code, error)

    async def _registered(self, agent: Agent) -> Registered | None:
        assert agent.seat is not None  # else it is not known
        told = self._services.transcripts.path_of(agent.name)
        path = registry_path(told, self._home, agent.seat.pid)
        return read_registered(await self._read(path, LIMIT_BYTES), agent.seat.pid)
