"""The sub-agents of a Codex: threads below the agent's own, each with a name and mail of its own.

They begin and end with their threads. What they do is said as any agent's state is; nothing is typed for
them.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from palaver.agents.bus import Bus
from palaver.agents.codex.texts import Texts, UnknownQuestion
from palaver.agents.codex.threads import Threads
from palaver.agents.native_lane import NativeLane
from palaver.agents.native_word import Word
from palaver.agents.typing.steps import Answer, Done
from palaver.client import request as ask
from palaver.client.wire import Line
from palaver.errors import PalaverError

_logger: Final = logging.getLogger("palaver.holder")

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class _Begun(msgspec.Struct, frozen=True):
    name: str


_begun: Final = msgspec.json.Decoder(_Begun).decode


@dataclass(slots=True, eq=False)
class _Sub:
    """One sub-agent that the daemon knows of on this connection, or is just being told of."""

    thread: str
    parent: str
    role: str
    name: str = ""
    lane: NativeLane | None = None
    word: Word | None = None


class CodexSubagents:
    """Those that live now."""

    def __init__(
        self, threads: Threads, texts: Texts, bus: Bus, spawn: Spawn, on_change: Callable[[], None]
    ) -> None:
        """`on_change`: an offer to one of them came to its end."""
        self._threads = threads
        self._texts = texts
        self._bus = bus
        self._spawn = spawn
        self._on_change = on_change
        self._subs: dict[str, _Sub] = {}

    def name_of(self, thread: str) -> str:
        """Say whose thread one is; empty for the agent itself."""
        sub = self._subs.get(thread)
        return sub.name if sub is not None else ""

    def connected(self) -> None:
        """Tell a daemon that has just come of all that live."""
        for sub in self._subs.values():
            if sub.lane is not None:
                sub.lane.lose()
            self._spawn(self._begin(sub))

    def look(self) -> None:
        """Tell who is new, who has ended, and what each does."""
        now = self._threads.subagents()
        for thread in [one for one in self._subs if one not in now]:
            self._end(self._subs.pop(thread))
        for thread, (parent, role) in now.items():
            if thread not in self._subs:
                sub = self._subs[thread] = _Sub(thread, parent, role)
                if self._bus.is_connected:
                    self._spawn(self._begin(sub))
        for sub in self._subs.values():
            self._tell(sub)

    async def _begin(self, sub: _Sub) -> None:
        parent = self._subs.get(sub.parent)
        if parent is not None and not parent.name:
            return  # it begins behind the one that started it
        request = ask.SubBegin(name=parent.name if parent is not None else "", key=sub.thread, type=sub.role)
        try:
            sub.name = _begun(await self._bus.ask(request)).name
            if self._subs.get(sub.thread) is not sub:
                self._end(sub)  # it has ended meanwhile
                return
            if sub.lane is None:
                sub.lane = NativeLane(self._bus, self._carry_to(sub.thread), self._on_change, name=sub.name)
            sub.word = None
            self._tell(sub)
            await sub.lane.open()
        except PalaverError as error:  # with the next connection it is told again
            _logger.info("a sub-agent is not on the bus: %s", error)
            return
        for below in [one for one in self._subs.values() if one.parent == sub.thread and not one.name]:
            await self._begin(below)

    def _carry_to(self, thread: str) -> Callable[[str, str], Awaitable[Done]]:
        async def carry(text: str, key: str) -> Done:
            try:
                return await self._texts.put(thread, text, key)
            except UnknownQuestion as error:
                return Done(Answer.DEFERRED, str(error))

        return carry

    def _tell(self, sub: _Sub) -> None:
        if sub.lane is None or not self._bus.is_connected:
            return
        level, word = self._threads.level_of(sub.thread), self._threads.word_of(sub.thread)
        sub.lane.set_level(level.gate, is_paused=level.is_paused)
        if word != sub.word:
            sub.word = word
            self._bus.mention(
                ask.Status(
                    name=sub.name,
                    state=word.state,
                    detail=word.detail,
                    tool=word.tool,
                    command=word.command,
                    file=word.file,
                )
            )

    def _end(self, sub: _Sub) -> None:
        if sub.lane is not None:
            sub.lane.end()
        if sub.name:
            parent = self.name_of(sub.parent)
            self._bus.mention(ask.SubEnd(name=parent, key=sub.thread, reason="its thread was closed"))

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer that is for one of them, and give any other to whom it is for."""
        for sub in self._subs.values():
            if sub.lane is not None:
                otherwise = _first_asking(sub.lane, otherwise)
        otherwise(line)

    def close(self) -> None:
        """The server is gone, or the agent: the daemon ends them with their agent."""
        for sub in self._subs.values():
            if sub.lane is not None:
                sub.lane.end()
        self._subs.clear()


def _first_asking(lane: NativeLane, otherwise: Callable[[Line], None]) -> Callable[[Line], None]:
    return lambda line: lane.claim(line, otherwise)
