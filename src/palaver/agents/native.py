"""The harness's own way in beside its terminal, where it has one: which lane carries, and whose word counts.

While the way in is there, nothing is typed: the terminal is closed to mail, and open to a person as ever.
When it is gone, or could never be reached, the terminal is what is left.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from palaver.agents.bus import Bus
from palaver.agents.limit import LimitWatch
from palaver.agents.native_way import Tell, WayIn
from palaver.agents.native_word import Word
from palaver.agents.terminal.gates import Gate
from palaver.agents.terminal.look import Look
from palaver.agents.work import Spawn
from palaver.client.wire import Line
from palaver.clock import Clock
from palaver.model.delivery import AgentState
from palaver.model.last_report import Outcome

_NATIVE: Final = Gate(is_open=False, reason="native")


Make = Callable[[str, Bus, Clock, Spawn, Tell, Tell], WayIn]
"""Takes the address, the bus, the clock, what runs work, and who is told of a new word and of an outcome."""


# Each integration is imported when its holder starts, so that no other harness waits for it to load.


def _codex(address: str, bus: Bus, clock: Clock, spawn: Spawn, on_word: Tell, on_change: Tell) -> WayIn:
    from palaver.agents.codex.lane import CodexLane

    return CodexLane(Path(address), bus, clock=clock, spawn=spawn, on_word=on_word, on_change=on_change)


def _opencode(address: str, bus: Bus, clock: Clock, spawn: Spawn, on_word: Tell, on_change: Tell) -> WayIn:
    from palaver.agents.opencode.held_lane import opencode_lane

    return opencode_lane(Path(address), bus, clock=clock, spawn=spawn, on_word=on_word, on_change=on_change)


WAYS_IN: Final[dict[str, Make]] = {"codex": _codex, "opencode": _opencode}
"""By harness."""


class Native:
    """What a holder knows of its agent's own way in; of one that has none, nothing."""

    def __init__(
        self,
        harness: str,
        address: str,
        bus: Bus,
        *,
        clock: Clock,
        spawn: Spawn,
        on_word: Tell,
        on_change: Tell,
    ) -> None:
        """`address` is where the way in will be: a path, or a URL. Empty: there is none."""
        self.address = address
        self._limit = LimitWatch(clock, on_word)
        make = WAYS_IN.get(harness) if address else None
        self._way = make(address, bus, clock, spawn, on_word, on_change) if make is not None else None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is in hand, for the agent or one of its sub-agents."""
        return self._way is None or self._way.reach.is_at_rest

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the daemon has not heard of yet, for the agent or one of its sub-agents."""
        return () if self._way is None else self._way.reach.outcomes

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Take up what an earlier version of this process had not told yet."""
        if self._way is not None:
            self._way.reach.remember(outcomes)

    def connected(self) -> None:
        """Open the lane on a new connection of the bus, as soon as nothing is in hand."""
        if self._way is not None:
            self._way.reach.connected(is_there=self._way.word is not None)

    def take(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer that is for this lane, and give any other to whom it is for."""
        if self._way is None:
            otherwise(line)
        else:
            self._way.reach.claim(line, otherwise)

    def decide(self, line: Line) -> None:
        """Take a person's word on what the harness asks."""
        if self._way is not None:
            self._way.reach.decide(line)

    def see(self, look: Look, gate: Gate) -> tuple[Word, Gate]:
        """Give what the agent does and what may be typed: the harness knows the first better."""
        seen = self._limit.see(Word(state=look.state, detail=look.reason))
        way = self._way
        if way is None or way.is_over or look.state is AgentState.EXITED:
            return seen, gate
        if look.state is not AgentState.STARTING:
            way.start()
        word = way.word or Word(state=AgentState.STARTING)
        # A dialog of its start is a person's to answer, and mail waits behind it as behind any; all else is
        # not yet known well enough.
        is_asked = word.state is AgentState.STARTING and look.state is AgentState.BLOCKED
        return (seen, _NATIVE if gate.is_open else gate) if is_asked else (word, _NATIVE)

    async def settle(self) -> None:
        """Wait until all that was being said is said."""
        if self._way is not None:
            await self._way.reach.settle()

    def ended(self) -> None:
        """The agent has ended: let go of its way in."""
        self._limit.close()
        if self._way is not None:
            self._way.reach.lane.end()
            self._way.close()

    def clear(self) -> None:
        """Take away what the way in left on the disk: its folder is its own."""
        if self._way is not None and self.address.startswith("/"):
            shutil.rmtree(Path(self.address).parent, ignore_errors=True)
