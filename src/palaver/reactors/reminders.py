"""The reactor that writes due reminders. The fold decides which are due; the reactor keeps no state.

At the start all due reminders are written, later those that become due with a status, a leave or a delivery.
A minimum time passes between two reminders of the same message, and before the first one to an agent that was
idle when it saw the message; the agent must be idle at the end of that time. The id of a reminder is derived
from its cause, so a repeat is one event.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from palaver.clock import CallLater, Clock, Timer
from palaver.errors import PalaverError, Unavailable
from palaver.log.api import EventKind, Log
from palaver.log.follow import HandlerSwitch, news_of
from palaver.protocol.envelope import Event
from palaver.protocol.events import BYE, AgentState
from palaver.protocol.requests import FireReminder, Submit
from palaver.protocol.subscriptions import DELIVERY, STATUS
from palaver.state.fold import agent_of
from palaver.state.watches import due_reminders, has_reminders, read_reminder, read_reminder_due

_logger: Final = logging.getLogger("palaver.watches")


class Reminders:
    """The reminders of all local agents.

    After an event of an agent it checks the agent's rows and writes due reminders.
    """

    def __init__(
        self,
        log: Log,
        submit: Submit,
        *,
        clock: Clock,
        after_s: float,
        call_later: CallLater,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Create the reactor.

        `after_s` is the minimum time between two reminders. The owner of `tasks` waits for its work.
        """
        self._log = log
        self._submit = submit
        self._clock = clock
        self._after_ms = round(after_s * 1000)
        self._call_later = call_later
        self._tasks = tasks
        self._timers: dict[tuple[str, int], Timer] = {}
        self._agents: set[str] = set()
        self._news = asyncio.Event()
        self._agent_events = HandlerSwitch(log, self._hear_agents, (STATUS, BYE, DELIVERY))
        """On while an agent owes a reply: only then a reminder can become due."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._work: asyncio.Task[None] | None = None

    def set_after(self, after_s: float) -> None:
        """Change the minimum time between two reminders, from the next one on."""
        self._after_ms = round(after_s * 1000)

    def start(self) -> None:
        """Start with the reminders that are already due."""
        self._unsubscribe = self._log.subscribe(self._hear_request, (EventKind.EXPECTS_REPLY,))
        self._agent_events.turn(is_on=has_reminders(self._log.rows))
        self._agents = {agent for agent, _ in due_reminders(self._log.rows)}
        self._news.set()
        self._work = self._tasks.create_task(self._run())

    def close(self) -> None:
        """Stop. Unwritten reminders are written after the next start. Closing twice is harmless."""
        self._unsubscribe()
        self._agent_events.turn(is_on=False)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._work is not None:
            self._work.cancel()

    def _hear_request(self, events: Sequence[Event]) -> None:
        self._agent_events.turn(is_on=True)
        for event in events:
            self._look_at(event.delivered_to)

    def _hear_agents(self, events: Sequence[Event]) -> None:
        self._look_at(map(agent_of, events))

    def _look_at(self, agents: Iterable[str]) -> None:
        self._agents.update(agents)
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            self._agent_events.turn(is_on=has_reminders(self._log.rows))
            agents, self._agents = self._agents, set()
            for agent in agents:
                for name, seq in due_reminders(self._log.rows, agent):
                    if (wait_ms := self._wait_ms(name, seq)) > 0:
                        self._wait(name, seq, wait_ms)
                    else:
                        await self._tell(FireReminder(agent=name, request=seq))

    def _wait_ms(self, agent: str, seq: int) -> int:
        """Return how long a reminder must still wait.

        The sender of a request to a stopped agent is notified at once.
        """
        reminder, due = (
            read_reminder(self._log.rows, agent, seq),
            read_reminder_due(self._log.rows, agent, seq),
        )
        if reminder is None or due is None or due.state != AgentState.IDLE:
            return 0
        last = self._log.event(reminder.last) if reminder.last else None
        since = max(due.since, 0 if last is None else last.ts)
        return since + self._after_ms - self._clock.now_ms()

    def _wait(self, agent: str, seq: int, wait_ms: int) -> None:
        if (agent, seq) not in self._timers:
            wait_s = min(wait_ms, self._after_ms) / 1000
            self._timers[agent, seq] = self._call_later(wait_s, lambda: self._look_again(agent, seq))

    def _look_again(self, agent: str, seq: int) -> None:
        del self._timers[agent, seq]
        self._look_at([agent])

    async def _tell(self, request: FireReminder) -> None:
        """Submit one request. While the log is full, wait until something is written; then check again."""
        with news_of(self._log) as news:
            try:
                await self._submit(request)
            except Unavailable:
                await news.wait()
                self._look_at([request.agent])
            except PalaverError as error:
                _logger.warning("skipped a reminder of #%d to %s: %s", request.request, request.agent, error)
