"""A companion of one harness session that was started without `pal`: connects it to the bus as an agent.

A companion never starts a daemon; it waits for one indefinitely. Finding the session and noticing its end is
left to the module of each harness.
"""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

from palaver.client.wire import ReplyLine
from palaver.errors import AlreadyJoined, PalaverError
from palaver.harness.base import AgentReport, Make, Spawn, status_of
from palaver.holder.connection import Held, HolderConnection
from palaver.holder.native_lane import NativeLanes
from palaver.holder.tasks import Work
from palaver.protocol.lines import AccompanyOp, LeaveOp, TellOp

_PAUSE_S: Final = 0.2

_logger: Final = logging.getLogger("palaver.holder")


class Beside:
    """One session, from the time an agent works in it."""

    def __init__(
        self,
        home: str,
        hold: AccompanyOp,
        make: Callable[[Spawn], Make],
        *,
        on_subagent: Callable[[str, str], None] = lambda key, name: None,
        on_held: Callable[[Held], None] = lambda held: None,
        is_news: Callable[[AgentReport, AgentReport], bool] = lambda before, now: True,
        tries: int = 1,
    ) -> None:
        """`make` takes the task spawner. `on_subagent` receives the key and name of each sub-agent.

        `on_held` receives the agent of the session; `is_news` decides which status changes are reported.

        Retry up to `tries` times if the session already has an agent.
        """
        self._session = hold.session
        self._on_news = on_held
        self._is_news = is_news
        self._tries = tries
        self._status: AgentReport | None = None
        self._work = Work()
        self._bus = HolderConnection(home, hold, self._on_held, self._on_push, _start_nothing)
        self._lanes = NativeLanes(
            self._bus,
            make(self._work.spawn),
            spawn=self._work.spawn,
            on_status=self._say_status,
            on_subagent=on_subagent,
        )
        self.is_over = asyncio.Event()
        """Set when the harness cannot be reached any more."""

    def start(self) -> None:
        """Connect to the harness, whether or not a daemon is running."""
        self._lanes.integration.start()

    async def run(self) -> PalaverError:
        """Stay on the bus until cancelled or refused permanently; return the refusal."""
        try:
            refusal = await self._serve()
            _logger.warning("session %s is not on the bus: %s: %s", self._session, refusal.code, refusal)
            return refusal
        finally:
            self._lanes.integration.close()
            self._work.cancel()
            await self._work.settle()

    async def _serve(self) -> PalaverError:
        left = self._tries
        while True:
            try:
                await self._bus.run()
            except PalaverError as refusal:
                left -= 1
                if refusal.code != AlreadyJoined.code or left <= 0:
                    return refusal
                await asyncio.sleep(_PAUSE_S)

    async def leave(self, reason: str) -> None:
        """Report that the session has ended permanently. If the daemon cannot be reached, only log it."""
        try:
            await self._bus.ask(LeaveOp(reason=reason))
        except PalaverError as error:
            _logger.info("session %s has ended: %s", self._session, error)

    async def _on_held(self, held: Held) -> None:
        self._on_news(held)
        self._status = None
        self._lanes.integration.start()
        self._say_status()
        self._lanes.connected()

    def _say_status(self) -> None:
        status, before = self._lanes.integration.status, self._status
        if self._lanes.integration.is_over:
            self.is_over.set()
        if status is None or status == before or not self._bus.is_connected or self._bus.held is None:
            return
        self._status = status
        if before is None or self._is_news(before, status):
            self._bus.mention(status_of(status))

    def _on_push(self, line: ReplyLine) -> None:
        if line.push == "offer":
            self._lanes.claim(line, lambda other: _logger.warning("an offer for lane %d", other.lane))
        elif line.push == "decision":
            self._lanes.decide(line)
        elif line.push == "control":
            sentence = "it does not run in a terminal of Palaver"
            self._bus.mention(TellOp(ask=line.ask, error="bad_request", message=sentence))


async def _start_nothing() -> bool:
    """Start no daemon: the user started the harness without `pal`."""
    return False


def run_beside(work: Coroutine[Any, Any, int]) -> int:
    """Run a companion in this process and return its exit status."""
    os.umask(0o077)
    os.chdir("/")  # Do not keep a directory in use that the user may want to remove.
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.WARNING)
    gc.freeze()
    return asyncio.run(work)
