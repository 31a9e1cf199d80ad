"""The reactor that has reminders written which fell due. What is due, the fold says; nothing is kept here.

At the start everything that is due is told, and then whatever becomes due with a status or a goodbye. A
reminder has an id made from its cause, so telling it again is one event.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from palaver.errors import PalaverError, Unavailable
from palaver.log.api import Log
from palaver.log.fold import agent_of
from palaver.log.fold_nags import due_nags
from palaver.model.envelope import Event
from palaver.model.subscription import BYE, STATUS
from palaver.model.terminal import FireNag

Submit = Callable[[FireNag], Awaitable[object]]
"""Hands a request to the broker in the name of the bus."""

_logger: Final = logging.getLogger("palaver.watches")


class Nags:
    """Reminders of everybody here. Hears of an agent, looks at its rows, and has written what is due."""

    def __init__(self, log: Log, submit: Submit, *, tasks: asyncio.TaskGroup) -> None:
        """Its work runs in `tasks`, whose owner waits for it."""
        self._log = log
        self._submit = submit
        self._tasks = tasks
        self._agents: set[str] = set()
        self._news = asyncio.Event()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with what fell due before."""
        self._unsubscribe = self._log.subscribe(self._hear)
        self._agents = {agent for agent, _ in due_nags(self._log.rows)}
        self._news.set()
        self._work = self._tasks.create_task(self._run())

    def close(self) -> None:
        """Stop. What was not told yet is told after the next start. Closing twice is harmless."""
        self._unsubscribe()
        if self._work is not None:
            self._work.cancel()

    def _hear(self, events: Sequence[Event]) -> None:
        self._agents.update(agent_of(event) for event in events if event.type in (STATUS, BYE))
        self._news.set()  # whatever was written: there is room in the log

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            agents, self._agents = self._agents, set()
            for agent in agents:
                for name, place in due_nags(self._log.rows, agent):
                    if not await self._is_told(FireNag(agent=name, request=place)):
                        self._agents.add(name)  # again with the next news

    async def _is_told(self, request: FireNag) -> bool:
        """Have one written; False while there is no room. One that is refused is done with too."""
        try:
            await self._submit(request)
        except Unavailable:
            return False
        except PalaverError as error:
            _logger.warning("passed over: a reminder of #%d to %s: %s", request.request, request.agent, error)
        return True
