"""Reactors: they read the log and submit requests that follow from it: delivery, usage limits, watches."""

import asyncio

from palaver.broker.broker import SYSTEM_CALLER, Broker
from palaver.clock import Clock
from palaver.config import Settings
from palaver.delivery.allowances import Allowances
from palaver.delivery.delivery import Delivery
from palaver.links.attendance import AttendanceBook
from palaver.log.api import Log
from palaver.model.agent import Agent
from palaver.model.caller import caller_for
from palaver.model.delivery import AgentState
from palaver.model.request import Request, SetStatus
from palaver.rooms.policy import Policy
from palaver.watches.nags import Nags
from palaver.watches.sticks import Sticks
from palaver.watches.watches import Watches


class Reactors:
    """All reactors. Each receives new events at once, and processes older ones at its start."""

    def __init__(
        self,
        log: Log,
        broker: Broker,
        attendance: AttendanceBook,
        *,
        settings: Settings,
        policy: Policy,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        async def submit(request: Request) -> object:
            return await broker.submit(SYSTEM_CALLER, request)

        async def rest(agent: Agent) -> object:
            return await broker.submit(caller_for(agent), SetStatus(state=AgentState.IDLE))

        call_later = asyncio.get_running_loop().call_later
        self.delivery = Delivery(log, submit, clock=clock, tasks=tasks, native_wait_s=settings.native_wait_s)
        self._allowances = Allowances(log, submit, rest, clock=clock, call_later=call_later, tasks=tasks)
        self._watches = Watches(log, submit, tasks=tasks)
        after_s = settings.remind_after_s
        self._nags = Nags(log, submit, clock=clock, after_s=after_s, call_later=call_later, tasks=tasks)
        self._sticks = Sticks(
            log, submit, attendance, clock=clock, policy=policy, call_later=call_later, tasks=tasks
        )
        attendance.fell_silent = self._sticks.look_at

    def start(self) -> None:
        """Process unfinished work in the log."""
        self._watches.start()
        self._nags.start()
        self._sticks.start()

    def close(self) -> None:
        """Stop following the log. Unfinished work stays in the log, for the next daemon."""
        self._sticks.close()
        self._nags.close()
        self._watches.close()
        self._allowances.close()
        self.delivery.close()
