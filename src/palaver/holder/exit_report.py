"""The last report of a holder that could not reach the daemon: a small file next to the agent's socket.

It is written when the agent has ended and the daemon stays offline. The daemon that reads it removes it.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from palaver.clock import Clock
from palaver.errors import PalaverError, Unavailable
from palaver.holder.connection import HolderConnection
from palaver.holder.integration import Native
from palaver.holder.lane import TerminalLane
from palaver.protocol.events import REPORT_END, ExitReport
from palaver.protocol.lines import LeaveOp


def write_report(home: str, report: ExitReport) -> Path:
    """Write a report atomically and durably; a later report of the same agent replaces it."""
    path = Path(home) / "agents" / f"{report.name}{REPORT_END}"
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(msgspec.json.encode(report))
        file.flush()
        os.fsync(file.fileno())
    return fresh.replace(path)


# --------------------
# The report of an agent's exit: sent to the daemon, or written to a file for the next daemon.

REPORT_LIMIT_S: Final = 3.0
"""Seconds that the holder of an exited agent waits for a daemon that is offline."""

_logger: Final = logging.getLogger("palaver.holder")


class Farewell:
    """The exit report of one agent. It is sent once."""

    def __init__(
        self, home: str, bus: HolderConnection, lane: TerminalLane, native: Native, clock: Clock
    ) -> None:
        self._home = home
        self._bus = bus
        self._lane = lane
        self._native = native
        self._clock = clock
        self._reason = ""
        self._is_wanted = True
        self.is_said = asyncio.Event()
        """Set when the exit is reported, or does not have to be."""

    async def say(self, reason: str) -> None:
        """Report the exit to the daemon, or after `REPORT_LIMIT_S` seconds write it to a file."""
        self._reason = reason
        try:
            async with asyncio.timeout(REPORT_LIMIT_S):
                await self._lane.settle()
                await self._native.settle()
                if not self._is_wanted:
                    self.is_said.set()
                elif self._lane.outcomes:
                    self._bus.drop()  # The next connection starts with them.
                elif self._bus.is_connected:
                    await self.connected()
                await self.is_said.wait()
        except TimeoutError:
            if self._is_wanted:
                self._leave_report()
            self.is_said.set()

    def forget(self) -> None:
        """Send no report: on the bus, the agent belongs to another process."""
        self._is_wanted = False
        if self._reason:
            self.is_said.set()

    async def connected(self) -> None:
        """Report the exit on the current connection, if there is one to report."""
        if not self._reason:
            return
        try:
            await self._bus.ask(LeaveOp(reason=self._reason))
        except Unavailable:
            return  # It is sent on the next connection.
        except PalaverError as error:
            _logger.info("nobody wants to know: %s: %s", error.code, error)
        self.is_said.set()

    def _leave_report(self) -> None:
        assert self._bus.held is not None
        report = ExitReport(
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
