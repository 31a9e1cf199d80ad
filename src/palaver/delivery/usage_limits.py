"""Hold the messages for agents that have reached a usage limit, and notify the senders.

Only the stored status of the agent counts, so the next daemon continues where this one ended. When the time
named in the status has come, the agent is recorded as idle. When its status changes or the agent leaves, the
held messages are queued again at once. Raw keys are not held, because they were meant for a terminal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from palaver.clock import CallLater, Clock, Timer
from palaver.delivery.ledger import Ledger
from palaver.errors import Unavailable
from palaver.harness.hooks import USED_UP, is_limited, limit_ends_ms
from palaver.log.api import EventKind, Log
from palaver.log.follow import HandlerSwitch
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import BYE, HELLO, State
from palaver.protocol.message import MESSAGE
from palaver.protocol.requests import Submit
from palaver.state.agents import read_agent, read_agents, read_entry, read_mail
from palaver.state.fold import agent_of
from palaver.state.rows import PUSHED, deliverable

HELD: Final = USED_UP
"""Prefix of the reason of messages held here."""
_AT_ONCE: Final = 200
"""Messages per report."""
_NEWS: Final = frozenset({"status", HELLO, BYE})

_TRY_AGAIN_S: Final = 5.0
"""Delay before a failed write is tried again."""
_LOOK_S: Final = 60.0
"""Interval at which the clock is checked, because timers stop while the machine sleeps."""


Lift = Callable[[Agent], Awaitable[object]]
"""Writes that an agent is idle."""


class UsageLimits:
    """Follows the status of every agent. Agents without a usage limit cost nothing."""

    def __init__(
        self,
        log: Log,
        submit: Submit,
        lift: Lift,
        *,
        clock: Clock,
        call_later: CallLater,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Start work in `tasks`; the owner of the group waits for it."""
        self._log = log
        self._ledger = Ledger(log, submit)
        self._lift = lift
        self._clock = clock
        self._call_later = call_later
        self._tasks = tasks
        self._timers: dict[str, Timer | None] = {}
        """The blocked agents, each with the timer for the end of its limit, or None if that is unknown."""
        self._busy: dict[str, bool] = {}
        """Agents whose messages are being processed, and whether to process them once more."""
        self._is_closed = False
        # The tasks that this starts run after this method, so they find the switch below.
        for agent in read_agents(log.rows):
            # Also agents without a limit: it may have ended while no daemon ran.
            if is_limited(agent) or self._held(agent.name):
                self._look(agent.name)
        self._unsubscribe = log.subscribe(self._hear_agents, _NEWS)
        self._mail = HandlerSwitch(log, self._hear_mail, {MESSAGE, EventKind.DELIVERED})

    def close(self) -> None:
        """Stop. Held messages stay held for the next daemon. A second call does nothing."""
        self._unsubscribe()
        self._mail.turn(is_on=False)
        self._is_closed = True
        for timer in filter(None, self._timers.values()):
            timer.cancel()

    def _hear_agents(self, events: Sequence[Event]) -> None:
        for event in events:
            agent = read_agent(self._log.rows, name := agent_of(event))
            # A blocked agent too, whatever its new state: its limit may have ended.
            if name in self._timers or (agent is not None and is_limited(agent)):
                self._look(name)

    def _hear_mail(self, events: Sequence[Event]) -> None:
        for event in events:
            for name in self._timers.keys() & set(deliverable(event).delivered_to):
                self._look(name)

    def _look(self, name: str) -> None:
        """Process the messages of one agent. Calls for the same agent do not overlap."""
        if self._is_closed:
            return
        is_running = name in self._busy
        # True makes the running task process the agent once more.
        self._busy[name] = is_running
        if not is_running:
            self._tasks.create_task(self._see_to(name))

    async def _see_to(self, name: str) -> None:
        try:
            is_first = True
            while is_first or self._busy[name]:  # `_look` sets it if something happens at an await below.
                is_first = self._busy[name] = False
                agent = read_agent(self._log.rows, name)
                if agent is not None and is_limited(agent):
                    await self._hold(agent)
                else:
                    await self._let_go(name)
        except Unavailable:
            # Nothing is lost: the state is in the log.
            self._call_later(_TRY_AGAIN_S, lambda: self._look(name))
        finally:
            del self._busy[name]

    async def _hold(self, agent: Agent) -> None:
        until_ms = limit_ends_ms(agent.detail, agent.since)
        self._plan(agent, until_ms)
        until = "" if until_ms is None else f" until {_format_time(until_ms)}"
        while events := self._waiting(agent.name):
            seqs = [event.seq for event in events]
            await self._ledger.report(agent.name, seqs, State.HELD, reason=f"{HELD}{until}")
            held = self._ledger.which_are(State.HELD, agent.name, events)
            why = f"its usage limit is reached{until}. It is delivered after that"
            await self._ledger.tell_held(agent.name, held, why=why)
            if not held:
                return  # a reader or lane has claimed them, or their state has changed since

    def _waiting(self, name: str) -> list[Event]:
        open_now = read_mail(self._log.rows, name, PUSHED)
        mails = (mail for mail in open_now if mail.state == State.QUEUED and not mail.raw)
        return list(filter(None, (self._log.event(mail.seq) for mail in islice(mails, _AT_ONCE))))

    def _plan(self, agent: Agent, until_ms: int | None) -> None:
        """Set the timer for the end of a limit. A time in the past ends the limit now."""
        if (timer := self._timers.get(agent.name)) is not None:
            timer.cancel()
        # An entry without a timer counts too: it means that the agent is blocked and messages to it must be
        # held.
        self._timers[agent.name] = None
        self._switch_mail()
        if until_ms is not None:
            self._wait(agent, until_ms)

    def _switch_mail(self) -> None:
        """Follow new messages only while an agent is blocked."""
        self._mail.turn(is_on=bool(self._timers) and not self._is_closed)

    def _wait(self, agent: Agent, until_ms: int) -> None:
        rest_s = max(0.0, (until_ms - self._clock.now_ms()) / 1000)

        # In short steps by the wall clock: the limit ends at a time of day, and a machine that sleeps stops
        # the timers of the event loop.
        def look() -> None:
            if self._clock.now_ms() < until_ms:
                self._wait(agent, until_ms)
            else:
                self._tasks.create_task(self._end(agent))

        self._timers[agent.name] = self._call_later(min(rest_s, _LOOK_S), look)

    async def _end(self, agent: Agent) -> None:
        known = read_agent(self._log.rows, agent.name)
        if known is None or not is_same_limit(known, agent):
            return
        try:
            # It checks the limit again inside its commit: see `Broker.submit_status`.
            await self._lift(known)
        except Unavailable:
            self._call_later(_TRY_AGAIN_S, lambda: self._look(agent.name))

    async def _let_go(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        self._switch_mail()
        while held := self._held(name):
            await self._ledger.report(name, held, State.QUEUED, reason="its usage limit has ended")

    def _held(self, name: str) -> list[int]:
        rows = self._log.rows
        held = (mail.seq for mail in read_mail(rows, name) if mail.is_kept_back)
        # Only those held here: messages that a brake or a gate holds have another reason, and stay held.
        ours = (
            seq for seq in held if (entry := read_entry(rows, seq, name)) and entry.reason.startswith(HELD)
        )
        return list(islice(ours, _AT_ONCE))


def is_same_limit(now: Agent, known: Agent) -> bool:
    """Return whether an agent is blocked by the limit that is known, and not by one that it reached later.

    A limit that was reached again can have the same text, and ends later.
    """
    return is_limited(now) and (now.detail, now.since) == (known.detail, known.since)


def _format_time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
