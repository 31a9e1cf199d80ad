"""Whether and when a holder becomes its newer version: once that one loads, and nothing is in hand.

How it is done, and what is kept, is in `renewal.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from palaver.agents.launch import check_command

_logger: Final = logging.getLogger("palaver.holder")

Run = Callable[[list[str]], Awaitable[int]]
"""Runs a command and gives its exit status."""


class Changeover:
    """Of one holder. Asked for twice, it happens once."""

    def __init__(self, run: Run, change: Callable[[], None]) -> None:
        """`change` does it, or nothing while something is in hand: it is asked again after each outcome."""
        self._run = run
        self._change = change
        self._is_wanted = False
        self._is_trying = False

    async def ask(self) -> None:
        """See that the newer version loads, and change to it as soon as nothing is in hand."""
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
        """Something is no longer in hand: change soon, if that is wanted."""
        if self._is_wanted and not self._is_trying:
            asyncio.get_running_loop().call_soon(self._change)
