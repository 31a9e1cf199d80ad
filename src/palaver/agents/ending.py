"""End an agent: by its own quit keys, then SIGTERM, then SIGKILL, with a grace period after each.

Descendants that the agent leaves running are ended after it, in whatever session they are: SIGTERM, then
SIGKILL. This module only sends signals and reports each step; the holder waits for the process.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from palaver.agents.terminal.left_behind import left_behind
from palaver.harness.profile import Press

TERM_GRACE_S: Final = 5.0
KILL_GRACE_S: Final = 5.0
REST_TERM_GRACE_S: Final = 3.0
REST_KILL_GRACE_S: Final = 2.0

_NOW: Final = ((signal.SIGKILL, REST_KILL_GRACE_S),)
_POLITELY: Final = ((signal.SIGTERM, REST_TERM_GRACE_S), *_NOW)
_LOOK_S: Final = 0.02

Say = Callable[[str], None]


class Ending:
    """The end of one agent. A second request changes nothing, except that a kill overtakes a stop."""

    def __init__(self, child: int, has_ended: asyncio.Event) -> None:
        self._child = child
        self._has_ended = has_ended
        self._words: list[Say] = []
        self._at_work = 0
        self._is_at_rest = asyncio.Event()
        self._is_at_rest.set()

    def listen(self, say: Say) -> None:
        """Call `say` with every step from now on."""
        self._words.append(say)

    async def settle(self) -> None:
        """Wait until no stop or kill is in progress."""
        await self._is_at_rest.wait()

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        self._at_work += 1
        self._is_at_rest.clear()
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._is_at_rest.set()

    async def stop(self, quit_keys: Sequence[Press], press: Callable[[bytes], bool]) -> None:
        """Press the quit keys, then send SIGTERM, then SIGKILL.

        `press` returns whether the keys could be pressed. Afterwards end the remaining descendants.
        """
        async with self._working():
            if not await self._has_quit(quit_keys, press):
                self._signal(signal.SIGTERM)
                self._say("sent SIGTERM")
                if not await self._is_over(TERM_GRACE_S):
                    await self.kill()
            await self._end_rest(_POLITELY)

    async def _has_quit(self, quit_keys: Sequence[Press], press: Callable[[bytes], bool]) -> bool:
        for step in quit_keys:
            if not press(step.keys):
                return False
            self._say("asked it to quit")
            if await self._is_over(step.wait_ms / 1000):
                return True
        return False

    async def kill(self) -> None:
        """End the agent and its descendants immediately."""
        async with self._working():
            self._signal(signal.SIGKILL)
            self._say("sent SIGKILL")
            await self._is_over(KILL_GRACE_S)
            await self._end_rest(_NOW)

    async def _end_rest(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """End the remaining descendants, if the agent has ended. Give up on those that survive."""
        loop = asyncio.get_running_loop()
        for number, limit_s in steps if self._has_ended.is_set() else ():
            told: set[int] = set()
            limit = loop.time() + limit_s
            while (rest := set(left_behind(self._child))) and loop.time() < limit:
                for pid in rest - told:
                    _tell(pid, number)
                told |= rest
                await asyncio.sleep(_LOOK_S)

    def _say(self, word: str) -> None:
        for say in self._words:
            say(word)

    async def _is_over(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._has_ended.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Signal every process in the agent's session: jobs of a shell have their own process groups."""
        if self._has_ended.is_set():
            return
        rest = left_behind(self._child)
        for pid in [self._child, *(pid for pid in rest if _session_of(pid) == self._child)]:
            _tell(pid, number)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _tell(pid: int, number: signal.Signals) -> None:
    _send(pid, number)
    if number == signal.SIGTERM:
        _send(pid, signal.SIGCONT)  # A stopped process handles SIGTERM only after SIGCONT.


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # The process has ended, or its pid belongs to another user now.
