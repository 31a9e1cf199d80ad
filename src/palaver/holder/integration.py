"""Connect a native integration to the bus: the agent, its sub-agents and their permissions."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from palaver.client.wire import ReplyLine
from palaver.clock import Clock
from palaver.harness.base import AgentReport, Gate
from palaver.harness.hooks import USED_UP, USED_UP_ASKED
from palaver.harness.usage_limits import fix_limit, is_counted_from_then, limit_ends_ms
from palaver.holder.connection import HolderConnection
from palaver.holder.native_lane import Asker, Carry, NativeLane, Permissions
from palaver.holder.subagents import NativeSubagents, SubagentSource
from palaver.holder.tasks import Spawn
from palaver.protocol.events import AgentState, Outcome
from palaver.terminal.screen import Look

# --------------------
# The interface between a native integration and the bus: the agent, its sub-agents and their permissions.

Tell = Callable[[], None]


class NativeReach:
    """Connects one integration to the bus: the agent, its sub-agents, and their permission requests.

    It is the same for every harness.
    """

    def __init__(
        self,
        bus: HolderConnection,
        carry: Carry,
        below: SubagentSource,
        asker: Asker,
        *,
        spawn: Spawn,
        on_change: Tell,
        on_child: Callable[[str, str], None] = lambda key, name: None,
    ) -> None:
        """`carry` sends a text to the agent; `on_child` receives the key and name of each sub-agent."""
        self._spawn = spawn
        self.lane = NativeLane(bus, carry, on_change)
        self.subagents = NativeSubagents(bus, below, spawn=spawn, on_change=on_change, on_begun=on_child)
        self.permissions = Permissions(bus, asker, spawn=spawn, name_of=self.subagents.name_of)

    @property
    def is_at_rest(self) -> bool:
        """Whether no offer is in progress, for the agent and its sub-agents."""
        return self.lane.is_at_rest and self.subagents.is_at_rest

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes that the daemon does not have yet, for the agent and its sub-agents."""
        return self.lane.outcomes + self.subagents.outcomes

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Add the unreported outcomes of an earlier version of this process."""
        self.lane.remember(tuple(one for one in outcomes if not one.name))
        self.subagents.remember(tuple(one for one in outcomes if one.name))

    def connected(self, *, is_there: bool) -> None:
        """Report everything except the agent's status on a new connection.

        `is_there`: the harness can be reached, so its lane opens as soon as no offer is in progress.
        """
        self.lane.lose()  # Lane numbers are valid on one connection only.
        if is_there:
            self._spawn(self.lane.try_open())
        self.subagents.connected()
        self.permissions.connected()

    def claim(self, line: ReplyLine, otherwise: Callable[[ReplyLine], None]) -> None:
        """Take an offer for one of the lanes here, and pass any other to `otherwise`."""
        self.lane.claim(line, lambda other: self.subagents.claim(other, otherwise))

    def decide(self, line: ReplyLine) -> None:
        """Apply the user's decision on a permission request."""
        self.permissions.decide(line)

    async def settle(self) -> None:
        """Wait until all outcomes are reported."""
        await self.lane.settle()
        await self.subagents.settle()

    def close(self) -> None:
        """Close all lanes because the harness cannot be reached. Offers in progress become unconfirmed."""
        self.subagents.close()
        self.lane.close()


class WayIn(Protocol):
    """A native integration of one agent."""

    @property
    def reach(self) -> NativeReach:
        """The lanes and permission requests of the agent and its sub-agents."""

    @property
    def word(self) -> AgentReport | None:
        """The status of the agent; None while unknown."""

    @property
    def is_over(self) -> bool:
        """Whether the integration has ended permanently or could never be reached."""

    def start(self) -> None:
        """Connect to the harness once it runs. Repeats have no effect."""

    def close(self) -> None:
        """Disconnect from the harness."""


# --------------------
# A usage limit that only the screen shows, and how long to believe it.
#
# A screen can show the limit long after it has ended. So the end is computed once, when the limit first
# appears, and after that time the agent counts as idle whatever the screen shows.

_STALE_MS: Final = 12 * 60 * 60_000
"""For this long after its end, the same text on a screen is the old limit and not a new one."""
GRACE_MS: Final = 5_000
"""For this long after the dialog about a limit was answered, the turn may still end because of the limit."""


class LimitWatch:
    """Derives the agent state from the usage limit shown on an idle screen."""

    def __init__(self, clock: Clock, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the state must be checked again, such as at the end of the limit."""
        self._clock = clock
        self._on_end = on_end
        self._shown = ""
        self._detail = ""
        self._ends_ms: int | None = None
        self._before = ("", "", 0)
        """The last limit whose end was known: its text on the screen, its detail, and its end."""
        self._timer: asyncio.TimerHandle | None = None
        self._asked: AgentReport | None = None
        self._answered_ms: int | None = None

    def see(self, word: AgentReport) -> AgentReport:
        """Return the state of the agent: blocked while its usage limit is reached, as far as known."""
        word = self._see_dialog(word)
        shown = word.detail if word.state is AgentState.IDLE and word.detail.startswith(USED_UP) else ""
        if shown != self._shown:
            self._begin(shown)
        if not shown:
            return word
        if self._ends_ms is not None and self._clock.now_ms() >= self._ends_ms:
            return AgentReport(state=AgentState.IDLE)
        return AgentReport(state=AgentState.BLOCKED, detail=self._detail)

    def _see_dialog(self, word: AgentReport) -> AgentReport:
        """Keep the state of an answered limit dialog for `GRACE_MS`, until its effect is visible."""
        if word.state is AgentState.BLOCKED and word.detail.startswith(USED_UP_ASKED):
            self._asked, self._answered_ms = word, None
        elif self._asked is not None and word.state is AgentState.ACTIVE:
            now_ms = int(self._clock.monotonic_s() * 1000)
            self._answered_ms = now_ms if self._answered_ms is None else self._answered_ms
            left_ms = self._answered_ms + GRACE_MS - now_ms
            if left_ms > 0:
                self._look_in(left_ms)
                return self._asked
            self._asked = None
        else:
            self._asked = None
        return word

    def close(self) -> None:
        """Forget the limit and cancel the timer."""
        self._begin("")

    def _look_in(self, wait_ms: int) -> None:
        """Call `on_end` after `wait_ms`, instead of any earlier plan."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_end)

    def _begin(self, shown: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock.now_ms()
        words, detail, ends_ms = self._before
        self._shown = shown
        if shown and shown == words and not is_counted_from_then(shown) and now_ms < ends_ms + _STALE_MS:
            self._detail, self._ends_ms = detail, ends_ms
        else:
            self._detail = fix_limit(shown, now_ms)
            self._ends_ms = limit_ends_ms(self._detail, now_ms)
        if self._ends_ms is not None:
            self._before = shown, self._detail, self._ends_ms
            self._look_in(max(0, self._ends_ms - now_ms))


# --------------------
# Choose between the native integration of a harness and its terminal.
#
# While the native integration works, nothing is typed: it carries the messages and reports the agent's
# status, the terminal lane is closed, and the user can type as usual. When it has ended or could never be
# reached, the terminal lane is used.

_NATIVE: Final = Gate(is_open=False, reason="native")


Make = Callable[[str, HolderConnection, Clock, Spawn, Tell, Tell], WayIn]
"""Takes the address, the bus, the clock, the task spawner, and callbacks for a status and an outcome."""


# Each integration is imported when its holder starts, so that no other harness waits for it to load.


def _codex(
    address: str, bus: HolderConnection, clock: Clock, spawn: Spawn, on_word: Tell, on_change: Tell
) -> WayIn:
    from palaver.harness.codex.integration import CodexLane

    return CodexLane(Path(address), bus, clock=clock, spawn=spawn, on_word=on_word, on_change=on_change)


def _opencode(
    address: str, bus: HolderConnection, clock: Clock, spawn: Spawn, on_word: Tell, on_change: Tell
) -> WayIn:
    from palaver.holder.opencode import opencode_lane

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
        bus: HolderConnection,
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

    def take(self, line: ReplyLine, otherwise: Callable[[ReplyLine], None]) -> None:
        """Take an offer for the native lanes, and pass any other to `otherwise`."""
        if self._way is None:
            otherwise(line)
        else:
            self._way.reach.claim(line, otherwise)

    def decide(self, line: ReplyLine) -> None:
        """Apply the user's decision on a request of the harness."""
        if self._way is not None:
            self._way.reach.decide(line)

    def see(self, look: Look, gate: Gate) -> tuple[AgentReport, Gate]:
        """Return the agent's status and the gate of the terminal lane.

        The status comes from the integration if there is one, and the terminal lane is closed then.
        """
        seen = self._limit.see(AgentReport(state=look.state, detail=look.reason))
        way = self._way
        if way is None or way.is_over or look.state is AgentState.EXITED:
            return seen, gate
        if look.state is not AgentState.STARTING:
            way.start()
        word = way.word or AgentReport(state=AgentState.STARTING)
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
