"""The interface between a native integration and the bus: the agent, its sub-agents and their permissions."""

from collections.abc import Callable
from typing import Protocol

from palaver.agents.bus import Bus
from palaver.agents.native_lane import Carry, NativeLane
from palaver.agents.native_permissions import Asker, Permissions
from palaver.agents.native_subagents import Below, Subagents
from palaver.agents.native_word import Word
from palaver.agents.work import Spawn
from palaver.client.wire import Line
from palaver.model.last_report import Outcome

Tell = Callable[[], None]


class Reach:
    """Connects one integration to the bus: the agent, its sub-agents, and their permission requests.

    It is the same for every harness.
    """

    def __init__(
        self,
        bus: Bus,
        carry: Carry,
        below: Below,
        asker: Asker,
        *,
        spawn: Spawn,
        on_change: Tell,
        on_child: Callable[[str, str], None] = lambda key, name: None,
    ) -> None:
        """`carry` sends a text to the agent; `on_child` receives the key and name of each sub-agent."""
        self._spawn = spawn
        self.lane = NativeLane(bus, carry, on_change)
        self.subagents = Subagents(bus, below, spawn=spawn, on_change=on_change, on_begun=on_child)
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

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer for one of the lanes here, and pass any other to `otherwise`."""
        self.lane.claim(line, lambda other: self.subagents.claim(other, otherwise))

    def decide(self, line: Line) -> None:
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
    def reach(self) -> Reach:
        """The lanes and permission requests of the agent and its sub-agents."""

    @property
    def word(self) -> Word | None:
        """The status of the agent; None while unknown."""

    @property
    def is_over(self) -> bool:
        """Whether the integration has ended permanently or could never be reached."""

    def start(self) -> None:
        """Connect to the harness once it runs. Repeats have no effect."""

    def close(self) -> None:
        """Disconnect from the harness."""
