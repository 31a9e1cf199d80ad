"""Ending an agent: politely by its own keys, then by SIGTERM, then by SIGKILL, with time between them.

Whoever runs it waits for the end elsewhere: here signals are sent, and each step is said.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from palaver.agents.terminal.foreground import descendants
from palaver.harness.profile import Press

TERM_GRACE_S: Final = 5.0
KILL_GRACE_S: Final = 5.0

Say = Callable[[str], None]


class Ending:
    """One agent's end. Asked twice, it ends once; a kill overtakes a stop."""

    def __init__(self, child: int, has_ended: asyncio.Event) -> None:
        self._child = child
        self._has_ended = has_ended
        self._words: list[Say] = []

    def listen(self, say: Say) -> None:
        """Have every step from now on said here."""
        self._words.append(say)

    async def stop(self, quit_keys: Sequence[Press], press: Callable[[bytes], bool]) -> None:
        """Ask it to quit, then tell it to, then make it. `press` says whether the keys could be pressed."""
        for step in quit_keys:
            if not press(step.keys):
                break
            self._say("asked it to quit")
            if await self._is_over(step.wait_ms / 1000):
                return
        self._signal(signal.SIGTERM)
        self._say("sent SIGTERM")
        if not await self._is_over(TERM_GRACE_S):
            await self.kill()

    async def kill(self) -> None:
        """End it and all that runs in its terminal, now."""
        self._signal(signal.SIGKILL)
        self._say("sent SIGKILL")
        await self._is_over(KILL_GRACE_S)

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
        """Tell everything in the agent's session: a job of a shell has a group of its own."""
        if self._has_ended.is_set():
            return
        for pid in [self._child, *_in_session(self._child)]:
            _send(pid, number)
            if number == signal.SIGTERM:
                _send(pid, signal.SIGCONT)  # one that is stopped would never hear of it


def _in_session(session: int) -> list[int]:
    return [pid for pid in descendants(os.getpid()) if pid != session and _session_of(pid) == session]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
