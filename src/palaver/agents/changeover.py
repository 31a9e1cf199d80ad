"""Decide when a holder becomes its newer version: once that version loads and no offer is in progress.

The upgrade itself, and the state that survives it, is in `renewal.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from palaver.agents.launch import check_command

_logger: Final = logging.getLogger("palaver.holder")

Run = Callable[[list[str]], Awaitable[int]]
"""Runs a command and returns its exit status."""


class Changeover:
    """The upgrade of one holder. Requesting it twice performs it once."""

    def __init__(self, run: Run, change: Callable[[], None]) -> None:
        """`change` upgrades, or does nothing during an offer; it is called after each outcome."""
        self._run = run
        self._change = change
        self._is_wanted = False
        self._is_trying = False

    async def ask(self) -> None:
        """Check that the newer version loads, then upgrade as soon as no offer is in progress."""
        if self._is_wanted:
            return
        self._is_wanted = self._is_trying = True
        status = await self._run(check_command())
        self._is_trying = False
        if status:
            self._is_wanted = False
            _logger.warning("the newer version cannot be loaded (status %d): nothing was changed", status)
        else:
            self._change()

    def look(self) -> None:
        """Upgrade soon if requested. Call this after each outcome."""
        if self._is_wanted and not self._is_trying:
            asyncio.get_running_loop().call_soon(self._change)
