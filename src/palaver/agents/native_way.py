"""A harness's own way in: whom it reaches, and how whoever has to do with one sees it."""

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
    """All whom one way in reaches: the agent, those below it, and the person whom they ask.

    What the bus sees of it is the same, whatever the harness is.
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
        """`carry` puts a text to the agent itself; `on_child` hears the key and the name of each below it."""
        self._spawn = spawn
        self.lane = NativeLane(bus, carry, on_change)
        self.subagents = Subagents(bus, below, spawn=spawn, on_change=on_change, on_begun=on_child)
        self.permissions = Permissions(bus, asker, spawn=spawn, name_of=self.subagents.name_of)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is in hand, for the agent or one below it."""
        return self.lane.is_at_rest and self.subagents.is_at_rest

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the daemon has not heard of yet, for the agent or one below it."""
        return self.lane.outcomes + self.subagents.outcomes

    def remember(self, outcomes: tuple[Outcome, ...]) -> None:
        """Take up what an earlier version of this process had not told yet."""
        self.lane.remember(tuple(one for one in outcomes if not one.name))
        self.subagents.remember(tuple(one for one in outcomes if one.name))

    def connected(self, *, is_there: bool) -> None:
        """The bus knows of us anew: tell it all that it must know beside the state.

        `is_there`: the harness can be reached, so its lane opens as soon as nothing is in hand.
        """
        self.lane.lose()  # the numbers of lanes are those of a connection
        if is_there:
            self._spawn(self.lane.try_open())
        self.subagents.connected()
        self.permissions.connected()

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer that is for one of the lanes here, and give any other to whom it is for."""
        self.lane.claim(line, lambda other: self.subagents.claim(other, otherwise))

    def decide(self, line: Line) -> None:
        """Take a person's word on what the harness asks leave for."""
        self.permissions.decide(line)

    async def settle(self) -> None:
        """Wait until all that was being said is said."""
        await self.lane.settle()
        await self.subagents.settle()

    def close(self) -> None:
        """Nobody can be reached any more: what was in hand stays in doubt."""
        self.subagents.close()
        self.lane.close()


class WayIn(Protocol):
    """One agent, reached by what its harness has for that."""

    @property
    def reach(self) -> Reach:
        """The agent and those below it, as the bus knows them."""

    @property
    def word(self) -> Word | None:
        """What the agent does, while that is known."""

    @property
    def is_over(self) -> bool:
        """It is gone for good, or could never be reached."""

    def start(self) -> None:
        """Reach the harness, once it is up; again is nothing."""

    def close(self) -> None:
        """Let go of the harness."""
