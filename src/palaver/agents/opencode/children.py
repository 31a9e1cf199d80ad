"""The sub-agents of an OpenCode: sessions below the agent's, each with a name, a lane and a state of its own.

One lives while its session works. Its mail is put to its own session, and what it does is its own status.
"""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from palaver.agents.bus import Bus
from palaver.agents.native_lane import NativeLane
from palaver.agents.native_word import Word
from palaver.agents.net.http_client import Lost, NotSent
from palaver.agents.opencode.sessions import Child, Sessions
from palaver.agents.opencode.texts import Texts
from palaver.agents.typing.steps import Answer, Done
from palaver.client import request as ask
from palaver.client.wire import Line
from palaver.errors import PalaverError

_logger: Final = logging.getLogger("palaver.holder")


class _Named(msgspec.Struct, frozen=True):
    name: str


_named: Final = msgspec.json.Decoder(_Named).decode


@dataclass(slots=True)
class _SubAgent:
    """One that the daemon knows of."""

    name: str
    parent: str
    """The name of who started it; empty for the agent itself."""
    lane: NativeLane
    word: Word | None = None


class Children:
    """Begins and ends sub-agents as their sessions do. One change at a time, in order."""

    def __init__(
        self,
        bus: Bus,
        sessions: Sessions,
        texts: Texts,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_change: Callable[[], None],
        on_child: Callable[[str, str], None] = lambda session, name: None,
    ) -> None:
        """`on_child` is told the session and the name of each one that begins."""
        self._on_child = on_child
        self._bus = bus
        self._sessions = sessions
        self._texts = texts
        self._spawn = spawn
        self._on_change = on_change
        self._known: dict[str, _SubAgent] = {}
        self._is_working = False
        self._is_closed = False

    @property
    def is_at_rest(self) -> bool:
        """Whether no lane here has an offer in hand."""
        return all(one.lane.is_at_rest for one in self._known.values())

    def name_of(self, session: str) -> str:
        """Give the name of a sub-agent by its session; empty for what is none that is known."""
        known = self._known.get(session)
        return known.name if known is not None else ""

    def connected(self) -> None:
        """The daemon knows nothing of us yet: every sub-agent begins anew, and keeps its name."""
        for one in self._known.values():
            one.lane.lose()
            one.word = None
        self._spawn(self._again())

    def look(self) -> None:
        """See who has come and gone, and tell what each does."""
        if self._is_closed or not self._bus.is_connected:
            return
        for session, one in self._known.items():
            self._tell(session, one)
        if not self._is_working and self._sessions.children().keys() != self._known.keys():
            self._is_working = True
            self._spawn(self._change())

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer that is for a lane here, and give any other to whom it is for."""
        for one in self._known.values():
            otherwise = partial(one.lane.claim, otherwise=otherwise)
        otherwise(line)

    def prove(self, key: str) -> None:
        """A text that was given up is seen after all."""
        for one in self._known.values():
            one.lane.prove(key)

    def close(self) -> None:
        """The agent has gone, and with it all that it started."""
        self._is_closed = True
        for one in self._known.values():
            one.lane.end()
        self._known.clear()

    # Changes

    async def _change(self) -> None:
        try:
            while not self._is_closed and self._bus.is_connected:
                living = self._sessions.children()
                ended = next((one for one in reversed(self._known) if one not in living), None)
                begun = next((one for name, one in living.items() if name not in self._known), None)
                if ended is not None:
                    await self._end(ended)
                elif begun is not None:
                    await self._begin(begun)
                else:
                    return
        except PalaverError as error:
            _logger.info("sub-agents wait for the daemon: %s", error)
        finally:
            self._is_working = False

    async def _begin(self, child: Child) -> None:
        parent = self.name_of(child.parent)
        answer = await self._bus.ask(ask.SubBegin(name=parent, key=child.session, type=child.kind))
        name = _named(answer).name

        async def carry(text: str, key: str) -> Done:
            try:
                return await self._texts.put(child.session, text, key)
            except (NotSent, Lost) as error:
                return Done(Answer.DEFERRED, f"OpenCode does not answer: {error}")

        lane = NativeLane(self._bus, carry, self._on_change, name=name)
        self._known[child.session] = one = _SubAgent(name=name, parent=parent, lane=lane)
        self._on_child(child.session, name)
        self._tell(child.session, one)
        await lane.open()

    async def _end(self, session: str) -> None:
        one = self._known[session]
        if not self._texts.is_waiting(session):
            await one.lane.settle()  # what it has read is said before it has gone
        self._known.pop(session, None)
        one.lane.end()
        await self._bus.ask(ask.SubEnd(name=one.parent, key=session, reason="done"))

    async def _again(self) -> None:
        """Say all of it to another daemon."""
        try:
            for session, one in list(self._known.items()):
                await self._bus.ask(ask.SubBegin(name=one.parent, key=session))
                self._tell(session, one)
                await one.lane.open()
        except PalaverError as error:
            _logger.info("sub-agents wait for the daemon: %s", error)
        self.look()

    def _tell(self, session: str, one: _SubAgent) -> None:
        level = self._sessions.level_of(session)
        one.lane.set_level(level.gate, is_paused=level.is_paused)
        if (word := self._sessions.word_of(session)) != one.word:
            one.word = word
            self._bus.mention(
                ask.Status(
                    name=one.name,
                    state=word.state,
                    detail=word.detail,
                    tool=word.tool,
                    command=word.command,
                    file=word.file,
                )
            )
