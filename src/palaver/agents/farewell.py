"""The report of an agent's end: told to the daemon, or left in a file for the next one."""

import asyncio
import logging
from typing import Final

from palaver.agents.bus import Bus
from palaver.agents.lane import Lane
from palaver.agents.native import Native
from palaver.agents.spool import write_report
from palaver.clock import Clock
from palaver.errors import PalaverError, Unavailable
from palaver.model.last_report import Report
from palaver.model.lines.program_ops import LeaveOp

REPORT_LIMIT_S: Final = 3.0
"""So long an ended agent's holder waits for a daemon that is away."""

_logger: Final = logging.getLogger("palaver.holder")


class Farewell:
    """Of one agent; it is said once."""

    def __init__(self, home: str, bus: Bus, lane: Lane, native: Native, clock: Clock) -> None:
        self._home = home
        self._bus = bus
        self._lane = lane
        self._native = native
        self._clock = clock
        self._reason = ""
        self._is_wanted = True
        self.is_said = asyncio.Event()
        """Set when nothing more is to be said about the end."""

    async def say(self, reason: str) -> None:
        """Tell the daemon how it ended; while it is away wait a little, and then leave it in a file."""
        self._reason = reason
        try:
            async with asyncio.timeout(REPORT_LIMIT_S):
                await self._lane.settle()
                await self._native.settle()
                if not self._is_wanted:
                    self.is_said.set()
                elif self._lane.outcomes:
                    self._bus.drop()  # the next connection begins with them
                elif self._bus.is_connected:
                    await self.connected()
                await self.is_said.wait()
        except TimeoutError:
            if self._is_wanted:
                self._leave_report()
            self.is_said.set()

    def forget(self) -> None:
        """Say nothing: the bus knows the agent as somebody else's."""
        self._is_wanted = False
        if self._reason:
            self.is_said.set()

    async def connected(self) -> None:
        """Say it on the connection that there is, once it is due."""
        if not self._reason:
            return
        try:
            await self._bus.ask(LeaveOp(reason=self._reason))
        except Unavailable:
            return  # the next connection says it
        except PalaverError as error:
            _logger.info("nobody wants to know: %s: %s", error.code, error)
        self.is_said.set()

    def _leave_report(self) -> None:
        assert self._bus.held is not None
        report = Report(
            name=self._bus.held.name,
            secret=self._bus.held.secret,
            reason=self._reason,
            outcomes=self._lane.outcomes + self._native.outcomes,
            ts=self._clock.now_ms(),
        )
        try:
            write_report(self._home, report)
        except OSError as error:
            _logger.warning("the last report of %s is lost: %s", report.name, error)
