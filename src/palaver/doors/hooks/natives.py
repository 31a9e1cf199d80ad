"""The native lanes of an agent's harness besides its hooks: monitors, and wakes that work only once.

Hooks prove the messages on these lanes. While a monitor runs, a wake has no task and is ended. A wake that
has left carries nothing more; until its lines are in a prompt or a turn has ended, no other message may
overtake them. If the session became active at that moment, the lines go along with tool results and no hook
shows them. But lines still unread at the end of a turn are the next prompt, so a different prompt proves that
they went.

Lines of a monitor are always shown in a prompt, also in the middle of a turn. If a whole turn has passed
since they were written and no prompt has shown them, the harness has dropped them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from palaver.delivery.lane import Lane
from palaver.harness.claude_monitor import places_in_notice
from palaver.harness.hook_news import HookNews, Step

_TURNS_MISSED: Final = 2
"""The first turn may have ended just when the lines were written. Only the second is a whole turn."""


@dataclass(slots=True, eq=False)
class Wake:
    """A process that waits to wake the agent. `end` stops it without output."""

    end: Callable[[], None]
    lane: Lane | None = None
    """None until it may have messages to carry."""


@dataclass(slots=True, eq=False)
class Natives:
    """The native lanes of one agent. Use it only on the event loop's thread."""

    monitors: list[Lane] = field(default_factory=list)
    wake: Wake | None = None
    left: dict[Lane, Step] = field(default_factory=dict)
    """Wakes that have left, and the progress of the turn since: START (no progress), BATCH, TURN_END."""
    turns: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """For each offer that a monitor has written and no prompt has shown, the number of turns ended since."""

    @property
    def lanes(self) -> list[Lane]:
        """Return the lanes with messages that a hook may prove."""
        return [*self.monitors, *self.left]

    @property
    def is_empty(self) -> bool:
        return not (self.monitors or self.left or self.wake)

    def wait(self, wake: Wake) -> None:
        """Register a wake; an earlier one is ended."""
        self.end_wake()
        self.wake = wake

    def end_wake(self) -> None:
        """End the waiting wake, if there is one."""
        if self.wake is not None:
            wake, self.wake = self.wake, None
            wake.end()

    def forget(self, wake: Wake) -> None:
        """Remove a wake that has ended."""
        if self.wake is wake:
            self.wake = None

    def hear(self, news: HookNews) -> frozenset[int]:
        """Process a hook. Return the messages of wakes that it proves."""
        if news.agent_id:
            return frozenset()
        if news.step is Step.END:  # at once, because the next session may begin before this is stored
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
        """Record that a wake has messages and leaves now."""
        self.forget(wake)
        assert wake.lane is not None  # a wake without a lane has no messages
        self.left[wake.lane] = Step.START

    def take_back(self, lane: Lane) -> None:
        """Stop following a wake whose lines may never have been written; hooks prove nothing about them."""
        self.left.pop(lane, None)

    def arrived(self, lane: Lane) -> None:
        """Record that the lines of a lane are in a prompt."""
        if lane in self.left:
            lane.is_spent = True

    def arrivals(self) -> list[tuple[Lane, int]]:
        """Return the offers that monitors have shown in a prompt and no hook has proven yet."""
        return [(lane, number) for lane in self.monitors for number in lane.arrived if number in lane.offers]

    def take_dropped(self) -> list[tuple[Lane, int]]:
        """Return the offers of monitors that were not shown during a whole turn. Each is returned once."""
        dropped = [one for one, ended in self.turns.items() if ended >= _TURNS_MISSED]
        for one in dropped:
            del self.turns[one]
        return dropped

    def part(self, *, only_spent: bool = False) -> "Natives":
        """Return the part that belongs to an ended session. Its wakes are removed here; monitors stay.

        `only_spent`: the next session may have begun already, and a wake that has just left may belong to it.
        """
        gone = {lane: step for lane, step in self.left.items() if lane.is_spent or not only_spent}
        for lane in gone:
            del self.left[lane]
        return Natives(monitors=list(self.monitors), left=gone)

    def take_settled(self) -> list[Lane]:
        """Remove and return the wakes whose offers are all settled."""
        settled = [lane for lane in self.left if not lane.offers]
        for lane in settled:
            del self.left[lane]
        return settled

    def take_left(self) -> list[Lane]:
        """Remove and return all wakes that have left, because their conversation has ended."""
        left = list(self.left)
        self.left.clear()
        return left
