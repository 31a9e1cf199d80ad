"""Beside a session of a harness that was started without `pal`: on the bus as the agent that it is.

It starts no daemon and waits for one as long as it takes. How the session is found, and when it has ended, is
the affair of each harness.
"""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

from palaver.agents.bus import Bus, Held
from palaver.agents.native_way import Tell, WayIn
from palaver.agents.native_word import Word, status_of
from palaver.agents.work import Spawn, Work
from palaver.client.wire import Line
from palaver.errors import AlreadyJoined, PalaverError
from palaver.model.lines.holder_ops import AccompanyOp, TellOp
from palaver.model.lines.program_ops import LeaveOp

_PAUSE_S: Final = 0.2

_logger: Final = logging.getLogger("palaver.holder")

Make = Callable[[Bus, Spawn, Tell], WayIn]
"""Takes the bus, what runs work, and who is told of a new word."""


class Beside:
    """One session, from the moment that somebody works in it."""

    def __init__(
        self,
        home: str,
        hold: AccompanyOp,
        make: Make,
        *,
        on_held: Callable[[Held], None] = lambda held: None,
        is_news: Callable[[Word, Word], bool] = lambda before, now: True,
        tries: int = 1,
    ) -> None:
        """`on_held` is told whose session it is, and `is_news` says which words are told behind another.

        So often as `tries` says it is tried where the session seems to be somebody already.
        """
        self._session = hold.session
        self._on_news = on_held
        self._is_news = is_news
        self._tries = tries
        self._word: Word | None = None
        self._work = Work()
        self._bus = Bus(home, hold, self._on_held, self._on_push, _start_nothing)
        self._way = make(self._bus, self._work.spawn, self._say_word)
        self.is_over = asyncio.Event()
        """Set when the harness cannot be reached any more."""

    def start(self) -> None:
        """Reach the harness, whether there is a daemon or not."""
        self._way.start()

    async def run(self) -> PalaverError:
        """Be on the bus until cancelled, or refused for good: gives why."""
        try:
            refusal = await self._serve()
            _logger.warning("session %s is not on the bus: %s: %s", self._session, refusal.code, refusal)
            return refusal
        finally:
            self._way.close()
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
        """The session is gone for good."""
        try:
            await self._bus.ask(LeaveOp(reason=reason))
        except PalaverError as error:
            _logger.info("session %s has ended: %s", self._session, error)

    async def _on_held(self, held: Held) -> None:
        self._on_news(held)
        self._word = None
        self._way.start()
        self._say_word()
        self._way.reach.connected(is_there=self._way.word is not None)

    def _say_word(self) -> None:
        word, before = self._way.word, self._word
        if self._way.is_over:
            self.is_over.set()
        if word is None or word == before or not self._bus.is_connected or self._bus.held is None:
            return
        self._word = word
        if before is None or self._is_news(before, word):
            self._bus.mention(status_of(word))

    def _on_push(self, line: Line) -> None:
        if line.push == "offer":
            self._way.reach.claim(line, lambda other: _logger.warning("an offer for lane %d", other.lane))
        elif line.push == "decision":
            self._way.reach.decide(line)
        elif line.push == "control":
            sentence = "it runs in no terminal of Palaver"
            self._bus.mention(TellOp(ask=line.ask, error="bad_request", message=sentence))


async def _start_nothing() -> bool:
    """A harness that was started without `pal` starts no daemon either."""
    return False


def run_beside(work: Coroutine[Any, Any, int]) -> int:
    """Run a companion in this process, and give its exit status."""
    os.umask(0o077)
    os.chdir("/")  # a folder that somebody wants to take away is not held by this
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.WARNING)
    gc.freeze()
    return asyncio.run(work)
