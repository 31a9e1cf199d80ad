"""The sub-agents of a harness with a way in of its own: each with a name, a lane and a state of its own.

What lives is the harness's to say. One change is told at a time and in order: who started another begins
before it and ends behind it, and what one has read is said before it has gone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import msgspec

from palaver.agents.bus import Bus
from palaver.agents.native_lane import NativeLane
from palaver.agents.native_word import Level, Word, status_of
from palaver.agents.typing.steps import Done
from palaver.agents.work import Spawn
from palaver.client.wire import Line
from palaver.errors import PalaverError, Unavailable
from palaver.model.last_report import Outcome
from palaver.model.lines.holder_ops import SubBeginOp, SubEndOp

_logger: Final = logging.getLogger("palaver.holder")


class Below(Protocol):
    """What a harness says of those that its agent has started. `key` is what it calls one."""

    @property
    def ending(self) -> str:
        """Why one ends, in a few words."""

    def living(self) -> Mapping[str, tuple[str, str]]:
        """Give those that live, outer first: by key, who started each and what kind it is."""

    def level_of(self, key: str) -> Level:
        """What can come through to one now."""

    def word_of(self, key: str) -> Word:
        """What one does now."""

    def is_waiting(self, key: str) -> bool:
        """Whether a text was put to one and has not been seen, as far as is known."""

    async def carry(self, key: str, text: str, mark: str) -> Done:
        """Put a text to one, and say what became of it. `mark` is what it is known by there."""


class _Named(msgspec.Struct, frozen=True):
    name: str


_named: Final = msgspec.json.Decoder(_Named).decode


@dataclass(slots=True, eq=False)
class _SubAgent:
    """One that the daemon has given a name."""

    name: str
    parent: str
    """The name of who started it; empty for the agent itself."""
    kind: str
    lane: NativeLane
    word: Word | None = None
    is_told: bool = True
    """Whether the daemon was told of it on this connection."""


class Subagents:
    """Begins and ends sub-agents as the harness does."""

    def __init__(
        self,
        bus: Bus,
        below: Below,
        *,
        spawn: Spawn,
        on_change: Callable[[], None],
        on_begun: Callable[[str, str], None] = lambda key, name: None,
    ) -> None:
        """`on_change`: an offer to one came to its end. `on_begun` is told the key and the name of each."""
        self._bus = bus
        self._below = below
        self._spawn = spawn
        self._on_change = on_change
        self._on_begun = on_begun
        self._known: dict[str, _SubAgent] = {}
        self._refused: set[str] = set()
        """Those that the daemon does not want on this connection."""
        self._remembered: list[Outcome] = []
        self._changing = asyncio.Lock()
        self._is_closed = False

    @property
    def is_at_rest(self) -> bool:
        """Whether no lane here has an offer in hand."""
        return all(one.lane.is_at_rest for one in self._known.values())

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the daemon has not heard of yet, each with the name of whose it is."""
        untold = [
            msgspec.structs.replace(outcome, name=one.name)
            for one in self._known.values()
            for outcome in one.lane.outcomes
        ]
        return (*self._remembered, *untold)

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Take up what an earlier version of this process had not told yet."""
        self._remembered.extend(outcomes)

    async def settle(self) -> None:
        """Wait until all that was being said is said, or the connection lost."""
        for one in list(self._known.values()):
            await one.lane.settle()

    def name_of(self, key: str) -> str:
        """Give the name of one; empty for what is none that is known."""
        known = self._known.get(key)
        return known.name if known is not None else ""

    def connected(self) -> None:
        """The daemon knows nothing of us yet: every one begins anew, and keeps its name."""
        self._refused.clear()
        for one in self._known.values():
            one.lane.lose()  # the numbers of lanes are those of a connection
            one.word, one.is_told = None, False
        if not self._is_closed:
            self._spawn(self._change())

    def look(self) -> None:
        """See who has come and gone, and tell what each does."""
        if self._is_closed or not self._bus.is_connected:
            return
        for key, one in self._known.items():
            if one.is_told:
                self._tell(key, one)
        if not self._changing.locked() and self._next() is not None:
            self._spawn(self._change())

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer that is for a lane here, and give any other to whom it is for."""
        for one in self._known.values():
            otherwise = partial(one.lane.claim, otherwise=otherwise)
        otherwise(line)

    def prove(self, mark: str) -> None:
        """A text that was given up is seen after all."""
        for one in self._known.values():
            one.lane.prove(mark)

    def close(self) -> None:
        """The agent has gone, and with it all that it started: the daemon ends them with it."""
        self._is_closed = True
        for one in self._known.values():
            one.lane.end()

    # Changes

    def _next(self) -> tuple[str, bool] | None:
        """Say who is to begin, or to end, next: its key, and whether it begins."""
        living = self._below.living()
        for key in reversed(self._known):
            one = self._known[key]
            if key not in living:
                return key, not one.is_told and bool(one.lane.outcomes)  # what it has read is still to say
        for key in living:
            if key not in self._refused and (key not in self._known or not self._known[key].is_told):
                return key, True
        return None

    async def _change(self) -> None:
        async with self._changing:
            try:
                while not self._is_closed and self._bus.is_connected and (due := self._next()) is not None:
                    await (self._begin(due[0]) if due[1] else self._end(due[0]))
            except PalaverError as error:
                _logger.info("sub-agents wait for the daemon: %s", error)

    async def _begin(self, key: str) -> None:
        known = self._known.get(key)
        parent, kind = self._below.living().get(key) or ("", "")
        if known is not None:
            above, kind = known.parent, known.kind
        elif parent in self._refused:
            self._refused.add(key)
            return
        else:
            above = self.name_of(parent)
        try:
            name = _named(await self._bus.ask(SubBeginOp(name=above, key=key, type=kind))).name
        except Unavailable:
            raise
        except PalaverError as refusal:
            _logger.warning("a sub-agent is not on the bus: %s: %s", refusal.code, refusal)
            self._forget(key)
            self._refused.add(key)
            return
        await self._open(key, self._take(key, name, above, kind))

    def _take(self, key: str, name: str, above: str, kind: str) -> _SubAgent:
        """Know one by the name that the daemon gives it."""
        one = self._known.get(key)
        if one is None or one.name != name:
            self._forget(key)
            lane = NativeLane(self._bus, partial(self._below.carry, key), self._on_change, name=name)
            lane.remember(
                tuple(
                    msgspec.structs.replace(told, name="") for told in self._remembered if told.name == name
                )
            )
            self._remembered = [told for told in self._remembered if told.name != name]
            one = self._known[key] = _SubAgent(name=name, parent=above, kind=kind, lane=lane)
            self._on_begun(key, name)
        one.is_told = True
        return one

    async def _open(self, key: str, one: _SubAgent) -> None:
        self._tell(key, one)
        if one.lane.is_at_rest:
            await one.lane.open()
        else:
            self._spawn(one.lane.try_open())  # nobody else waits for what it has in hand

    async def _end(self, key: str) -> None:
        one = self._known[key]
        if not self._below.is_waiting(key):
            await one.lane.settle()  # what it has read is said before it has gone
        one.lane.lose()  # nothing more is put to it
        try:
            await self._bus.ask(SubEndOp(name=one.parent, key=key, reason=self._below.ending))
        except Unavailable:
            raise  # with the next connection it is told again
        except PalaverError as refusal:
            _logger.info("the end of a sub-agent was not taken: %s: %s", refusal.code, refusal)
        self._forget(key)

    def _forget(self, key: str) -> None:
        if (one := self._known.pop(key, None)) is not None:
            one.lane.end()

    def _tell(self, key: str, one: _SubAgent) -> None:
        level = self._below.level_of(key)
        one.lane.set_level(level.gate, is_paused=level.is_paused)
        if (word := self._below.word_of(key)) != one.word:
            one.word = word
            self._bus.mention(status_of(word, one.name))
