"""Choose between the native integration of a harness and its terminal.

While the native integration works, nothing is typed: it carries the messages and reports the agent's status,
the terminal lane is closed, and the user can type as usual. When it has ended or could never be reached, the
terminal lane is used.
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
"""Takes the address, the bus, the clock, the task spawner, and callbacks for a status and an outcome."""


# Each integration is imported when its holder starts, so that no other harness waits for it to load.


def _codex(address: str, bus: Bus, clock: Clock, spawn: Spawn, on_word: Tell, on_change: Tell) -> WayIn:
    from palaver.agents.codex.lane import CodexLane

    return CodexLane(Path(address), bus, clock=clock, spawn=spawn, on_word=on_word, on_change=on_change)


def _opencode(address: str, bus: Bus, clock: Clock, spawn: Spawn, on_word: Tell, on_change: Tell) -> WayIn:
    from palaver.agents.opencode.held_lane import opencode_lane

    return opencode_lane(Path(address), bus, clock=clock, spawn=spawn, on_word=on_word, on_change=on_change)


WAYS_IN: Final[dict[str, Make]] = {"codex": _codex, "opencode": _opencode}
"""The constructors of native integrations by harness."""


class Native:
    """The native integration of one agent, from the view of its holder.

    Does nothing if there is no integration.
    """

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
        """`address` is the future address of the integration: a path or a URL. Empty means no integration."""
        self.address = address
        self._limit = LimitWatch(clock, on_word)
        make = WAYS_IN.get(harness) if address else None
        self._way = make(address, bus, clock, spawn, on_word, on_change) if make is not None else None

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress, for the agent and its sub-agents."""
        return self._way is None or self._way.reach.is_at_rest

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet, for the agent and its sub-agents."""
        return () if self._way is None else self._way.reach.outcomes

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        if self._way is not None:
            self._way.reach.remember(outcomes)

    def connected(self) -> None:
        """Open the native lane on a new connection, as soon as no offer is in progress."""
        if self._way is not None:
            self._way.reach.connected(is_there=self._way.word is not None)

    def take(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer for the native lanes, and pass any other to `otherwise`."""
        if self._way is None:
            otherwise(line)
        else:
            self._way.reach.claim(line, otherwise)

    def decide(self, line: Line) -> None:
        """Apply the user's decision on a request of the harness."""
        if self._way is not None:
            self._way.reach.decide(line)

    def see(self, look: Look, gate: Gate) -> tuple[Word, Gate]:
        """Return the agent's status and the gate of the terminal lane.

        The status comes from the integration if there is one, and the terminal lane is closed then.
        """
        seen = self._limit.see(Word(state=look.state, detail=look.reason))
        way = self._way
        if way is None or way.is_over or look.state is AgentState.EXITED:
            return seen, gate
        if look.state is not AgentState.STARTING:
            way.start()
        word = way.word or Word(state=AgentState.STARTING)
        # A dialog at the start must be answered by the user, and messages wait for that as usual. Any other
        # screen is not conclusive before the integration has a status.
        is_asked = word.state is AgentState.STARTING and look.state is AgentState.BLOCKED
        return (seen, _NATIVE if gate.is_open else gate) if is_asked else (word, _NATIVE)

    async def settle(self) -> None:
        """Wait until all outcomes are reported."""
        if self._way is not None:
            await self._way.reach.settle()

    def ended(self) -> None:
        """Close the integration: the agent has ended."""
        self._limit.close()
        if self._way is not None:
            self._way.reach.lane.end()
            self._way.close()

    def clear(self) -> None:
        """Remove the integration's files; it has its own directory."""
        if self._way is not None and self.address.startswith("/"):
            shutil.rmtree(Path(self.address).parent, ignore_errors=True)
