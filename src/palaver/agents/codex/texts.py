"""Texts on their way into the threads of a Codex: put there by its app-server, and proven by its own word.

Idle, a text starts a turn; busy, it goes into the turn that runs. A turn that is over without it is looked at
once more; one that was ended before it took a text never will.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from palaver.agents.codex import wire
from palaver.agents.codex.client import CodexClient, Refused
from palaver.agents.codex.threads import Heard, Threads, keys_of
from palaver.agents.typing.steps import Answer, Done
from palaver.agents.work import Spawn
from palaver.errors import Disconnected, PalaverError
from palaver.model.delivery import Grade

_TRIES: Final = 3
_TURNS: Final = 20
"""So many turns may have begun behind the one that is looked at."""
_SEEN: Final = Done(Answer.SEEN, grade=Grade.CONTEXT)
_LEFT_OUT: Final = Done(Answer.DEFERRED, "its turn was ended before it took the message")
_UNKNOWN: Final = Done(Answer.UNCONFIRMED, "nobody can see whether its turn took the message")
_CLOSED: Final = Done(Answer.UNCONFIRMED, "its thread was closed")
_ENDED: Final = 20
"""Turns whose end is remembered: it can be heard before the word that they began."""

_logger: Final = logging.getLogger("palaver.holder")


@dataclass(slots=True, eq=False)
class _Text:
    """One text, and what became of it."""

    thread: str
    became: "asyncio.Future[Done]"
    turn: str = ""


class UnknownQuestion(Exception):
    """This Codex takes no texts by its app-server. It never leaves the lane."""


class Texts:
    """What was put to the threads of one server and is not proven yet."""

    def __init__(
        self, client: CodexClient, threads: Threads, spawn: Spawn, on_begun: Callable[[str], None]
    ) -> None:
        """`on_begun` is told of the thread in which a text has just begun a turn."""
        self._client = client
        self._threads = threads
        self._spawn = spawn
        self._on_begun = on_begun
        self._texts: dict[str, _Text] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED)

    @property
    def are_any(self) -> bool:
        """Whether some are on their way."""
        return bool(self._texts)

    def is_waiting(self, thread: str) -> bool:
        """Whether a text was put to this thread and is not in it, as far as is known."""
        return any(text.thread == thread and not text.became.done() for text in self._texts.values())

    def close(self) -> None:
        """The server is lost: nobody knows what became of them."""
        for text in self._texts.values():
            if not text.became.done():
                text.became.set_exception(Disconnected("the app-server is lost"))
                text.became.exception()  # asked for, so that nobody complains where nobody waits any more

    def take(self, heard: Heard) -> None:
        """Take in what the server has said."""
        for key in heard.seen:
            self._settle(key, heard.thread, _SEEN)
        for key, text in self._texts.items():
            if text.thread in heard.closed:
                self._settle(key, text.thread, _CLOSED)
        if heard.ended:
            self._ended.append(heard.ended)
            if any(text.turn == heard.ended for text in self._texts.values()):
                self._spawn(self._look_back(heard.thread, heard.ended))

    def _settle(self, key: str, thread: str, done: Done) -> None:
        text = self._texts.get(key)
        if text is not None and text.thread == thread and not text.became.done():
            text.became.set_result(done)

    async def _look_back(self, thread: str, turn: str) -> None:
        """Ask the thread which texts a turn that is over took: of a fresh one not all news come to us."""
        turns: dict[str, frozenset[str]] = {}
        try:
            answer = await self._client.ask(*wire.subscribe(thread, _TURNS))
            page = wire.result_as(answer, wire.Subscribed).initial_turns_page
            turns = {one.id: keys_of(one) for one in (page.data if page is not None else ())}
        except (PalaverError, Refused) as error:
            _logger.info("the end of a turn of thread %s cannot be looked at: %s", thread, error)
        shown = frozenset[str]().union(*turns.values())
        for key in [key for key, text in self._texts.items() if text.turn == turn]:
            # Only a turn that was seen can be known to have left it out.
            self._settle(key, thread, _SEEN if key in shown else _LEFT_OUT if turn in turns else _UNKNOWN)

    async def put(self, thread: str, text: str, key: str) -> Done:
        """Put a text to a thread and say what became of it. Raises UnknownQuestion where that cannot be."""
        waiting: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._texts[key] = _Text(thread, waiting)
        try:
            if reason := await self._send(thread, text, key):
                return Done(Answer.DEFERRED, reason)
            return await waiting
        except Disconnected as error:
            return Done(Answer.UNCONFIRMED, str(error))
        finally:
            del self._texts[key]

    async def _send(self, thread: str, text: str, key: str) -> str:
        """Put a text to a thread, and say why it was not taken; nothing when it was."""
        reason = ""
        for _ in range(_TRIES):
            level = self._threads.level_of(thread)
            if not level.gate.is_open:
                return level.gate.reason
            try:
                await self._say(thread, text, key)
            except Refused as refusal:
                if refusal.is_unknown:
                    raise UnknownQuestion(str(refusal)) from refusal
                reason = str(refusal)
            else:
                return ""
        return reason

    async def _say(self, thread: str, text: str, key: str) -> None:
        """Put the text into the turn that runs, or begin one with it."""
        known, turn = self._texts[key], self._threads.turn_in(thread)
        if turn:
            known.turn = turn
            await self._client.ask(*wire.steer_turn(thread, turn, text, key))
            return
        answer = await self._client.ask(*wire.start_turn(thread, text, key))
        started = wire.result_as(answer, wire.Started)
        known.turn = started.turn.id
        if started.turn.id in self._ended:
            await self._look_back(thread, started.turn.id)
        elif self._threads.has(thread):
            self.take(self._threads.begun(started.turn, thread))
            self._on_begun(thread)
