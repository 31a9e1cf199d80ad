"""Texts on their way into Codex threads: sent through the app-server, and proven by its reports.

In an idle thread a text starts a turn; in a busy thread it is added to the running turn. When a turn ends
without reporting the text, the turn is read once more; a turn that ended before it took the text never will.
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
"""The number of newest turns to read: others may have begun after the turn in question."""
_SEEN: Final = Done(Answer.SEEN, grade=Grade.CONTEXT)
_LEFT_OUT: Final = Done(Answer.DEFERRED, "its turn was ended before it took the message")
_UNKNOWN: Final = Done(Answer.UNCONFIRMED, "nobody can see whether its turn took the message")
_CLOSED: Final = Done(Answer.UNCONFIRMED, "its thread was closed")
_ENDED: Final = 20
"""Ended turns to remember: the report of an end can arrive before the result that the turn began."""

_logger: Final = logging.getLogger("palaver.holder")


@dataclass(slots=True, eq=False)
class _Text:
    """One text and its result."""

    thread: str
    became: "asyncio.Future[Done]"
    turn: str = ""


class UnknownQuestion(Exception):
    """This Codex does not accept texts through its app-server. This error is handled inside the lane."""


class Texts:
    """The texts that were sent to the threads of one server and are not proven yet."""

    def __init__(
        self, client: CodexClient, threads: Threads, spawn: Spawn, on_begun: Callable[[str], None]
    ) -> None:
        """`on_begun` is called with the thread in which a text has started a turn."""
        self._client = client
        self._threads = threads
        self._spawn = spawn
        self._on_begun = on_begun
        self._texts: dict[str, _Text] = {}
        self._ended: deque[str] = deque(maxlen=_ENDED)

    @property
    def are_any(self) -> bool:
        """Whether any text is in progress."""
        return bool(self._texts)

    def is_waiting(self, thread: str) -> bool:
        """Return whether a text was sent to this thread and is not known to be in it yet."""
        return any(text.thread == thread and not text.became.done() for text in self._texts.values())

    def close(self) -> None:
        """Fail all texts: the server is lost, so their outcome is unknown."""
        for text in self._texts.values():
            if not text.became.done():
                text.became.set_exception(Disconnected("the app-server is lost"))
                # Retrieve the exception, or asyncio logs that it was never retrieved.
                text.became.exception()

    def take(self, heard: Heard) -> None:
        """Apply a report of the server."""
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
        """Read which texts an ended turn took: not all news of a new thread are received."""
        turns: dict[str, frozenset[str]] = {}
        try:
            answer = await self._client.ask(*wire.subscribe(thread, _TURNS))
            page = wire.result_as(answer, wire.Subscribed).initial_turns_page
            turns = {one.id: keys_of(one) for one in (page.data if page is not None else ())}
        except (PalaverError, Refused) as error:
            _logger.info("the end of a turn of thread %s cannot be looked at: %s", thread, error)
        shown = frozenset[str]().union(*turns.values())
        for key in [key for key, text in self._texts.items() if text.turn == turn]:
            # Only a turn that was read can prove that it left the text out.
            self._settle(key, thread, _SEEN if key in shown else _LEFT_OUT if turn in turns else _UNKNOWN)

    async def put(self, thread: str, text: str, key: str) -> Done:
        """Send a text to a thread and return the result.

        Raises UnknownQuestion if Codex does not support it.
        """
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
        """Send a text to a thread; return why it was not accepted, or an empty string."""
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
        """Add the text to the running turn, or start a turn with it."""
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
