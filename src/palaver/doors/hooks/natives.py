"""The lanes of an agent's harness that are open beside its hooks: monitors, and wakes that can happen once.

What goes through them is proven by hooks. Where a monitor runs, nothing is left to a wake: it is told to end.
A wake that has left carries nothing more. Until its lines stand in a prompt, or a turn has ended, nothing may
overtake them. To a session that went to work in that moment they go with results, and no hook shows them: but
what still waits at the end of a turn is the very next prompt, so that another prompt proves that they went.

Lines of a monitor are always shown in a prompt, also in the middle of a turn. If a whole turn has passed
since they were written, and no prompt has shown them, the harness has dropped them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from palaver.delivery.lane import Lane
from palaver.harness.claude_monitor import places_in_notice
from palaver.harness.hook_news import HookNews, Step

_TURNS_MISSED: Final = 2
"""The first turn may have ended in the moment in which the lines were written. The second one is whole."""


@dataclass(slots=True, eq=False)
class Wake:
    """A process that waits to wake the agent; `end` lets it go with nothing said."""

    end: Callable[[], None]
    lane: Lane | None = None
    """None until it may have something to say."""


@dataclass(slots=True, eq=False)
class Natives:
    """What one agent has. Belongs to the loop's thread."""

    monitors: list[Lane] = field(default_factory=list)
    wake: Wake | None = None
    left: dict[Lane, Step] = field(default_factory=dict)
    """Wakes that have left, and how far the turn has come since: START is nowhere, then BATCH, TURN_END."""
    turns: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """For each offer that a monitor has written and no prompt has shown, how many turns have ended since."""

    @property
    def lanes(self) -> list[Lane]:
        """Those on which something may be that a hook can prove."""
        return [*self.monitors, *self.left]

    @property
    def is_empty(self) -> bool:
        return not (self.monitors or self.left or self.wake)

    def wait(self, wake: Wake) -> None:
        """Something waits to wake the agent; what waited before ends."""
        self.end_wake()
        self.wake = wake

    def end_wake(self) -> None:
        """Nothing more is left to what waits."""
        if self.wake is not None:
            wake, self.wake = self.wake, None
            wake.end()

    def forget(self, wake: Wake) -> None:
        """What waited has gone."""
        if self.wake is wake:
            self.wake = None

    def hear(self, news: HookNews) -> frozenset[int]:
        """Take a hook in; gives what it proves of wakes that have left."""
        if news.agent_id:
            return frozenset()
        if news.step is Step.END:  # not when that is written down: the next session may begin before
            self.end_wake()
        for lane, step in self.left.items():
            if news.step is Step.BATCH or (news.step is Step.TURN_END and step is not Step.START):
                self.left[lane] = news.step
            lane.is_spent = lane.is_spent or news.step is Step.TURN_END
        if news.step is Step.TURN_END and not news.stop_active:
            on_their_way = [
                (lane, number)
                for lane in self.monitors
                for number in lane.offers
                if number not in lane.arrived
            ]
            self.turns = {one: self.turns.get(one, 0) + 1 for one in on_their_way}
        if news.step is not Step.PROMPT:
            return frozenset()
        shown = places_in_notice(news.prompt)
        over = [lane for lane, step in self.left.items() if step is Step.TURN_END]
        return frozenset(seq for lane in over for offer in lane.offers.values() for seq in offer.seqs) - shown

    def leave(self, wake: Wake) -> None:
        """What waited has something to say, and goes now."""
        self.forget(wake)
        assert wake.lane is not None  # else it could have nothing to say
        self.left[wake.lane] = Step.START

    def take_back(self, lane: Lane) -> None:
        """What was to go with a wake may never have been said: hooks prove nothing of it."""
        self.left.pop(lane, None)

    def arrived(self, lane: Lane) -> None:
        """The lines of a lane stand in a prompt."""
        if lane in self.left:
            lane.is_spent = True

    def arrivals(self) -> list[tuple[Lane, int]]:
        """Give what monitors have shown in a prompt and no hook has proven yet."""
        return [(lane, number) for lane in self.monitors for number in lane.arrived if number in lane.offers]

    def take_dropped(self) -> list[tuple[Lane, int]]:
        """Give the offers of monitors that a whole turn has not shown, once."""
        dropped = [one for one, ended in self.turns.items() if ended >= _TURNS_MISSED]
        for one in dropped:
            del self.turns[one]
        return dropped

    def part(self, *, only_spent: bool = False) -> "Natives":
        """Give what belongs to a session that is over. Its wakes are forgotten here; monitors stay.

        `only_spent`: the next session may have begun already, and a wake that has just left may be its own.
        """
        gone = {lane: step for lane, step in self.left.items() if lane.is_spent or not only_spent}
        for lane in gone:
            del self.left[lane]
        return Natives(monitors=list(self.monitors), left=gone)

    def take_settled(self) -> list[Lane]:
        """Give the wakes of which all is known, once."""
        settled = [lane for lane in self.left if not lane.offers]
        for lane in settled:
            del self.left[lane]
        return settled

    def take_left(self) -> list[Lane]:
        """Give all wakes that have left, once: the conversation they went to is over."""
        left = list(self.left)
        self.left.clear()
        return left
