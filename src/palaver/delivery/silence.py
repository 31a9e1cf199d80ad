"""Deadlines for lanes that report no outcome. This module only keeps deadlines; delivery acts on them.

While its agent is idle, a lane has a limited time to report the outcome of an offer. A submitted message that
no lane has claimed, because a connection was lost, has a limited time to be claimed by the next connection.
"""

from collections.abc import Callable, Sequence
from typing import Final

from palaver.clock import Clock
from palaver.delivery.lane import IDLE_WAIT_S, Lane

CLAIM_S: Final = IDLE_WAIT_S


class Silence:
    """The ends of all waits. `changed` is called when the next one may be earlier."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._offers: dict[Lane, dict[int, float]] = {}
        """For each open offer of an idle agent, the time at which the wait ends."""
        self._strays: dict[str, float] = {}
        """Agents with submitted messages that no lane has claimed, and the time at which the wait ends."""

    def watch(self, lanes: Sequence[Lane], *, is_idle: bool) -> None:
        """Start the wait for the open offers of an idle agent. Stop it if the agent is not idle."""
        now_s = self._clock.monotonic_s()
        for lane in lanes:
            known = self._offers.pop(lane, {})
            if is_idle and lane.offers:
                end_s = now_s + lane.ability.idle_wait_s
                self._offers[lane] = {number: known.get(number, end_s) for number in lane.offers}
                if not known.keys() >= lane.offers.keys():
                    self._changed()

    def stray(self, agent: str) -> None:
        """Start the wait for a lane that claims the submitted messages of an agent."""
        self._strays[agent] = self._clock.monotonic_s() + CLAIM_S
        self._changed()

    def forget(self, lane: Lane) -> None:
        """Drop the waits of a lane."""
        self._offers.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        moments = [*self._strays.values()]
        for offers in self._offers.values():
            moments += offers.values()
        return max(0.0, min(moments) - self._clock.monotonic_s()) if moments else None

    def take_silent(self) -> list[tuple[Lane, int]]:
        """Return the offers whose wait is over. For an offer that stays open, the wait starts again."""
        now_s = self._clock.monotonic_s()
        over = [
            (lane, number)
            for lane, offers in self._offers.items()
            for number, end_s in offers.items()
            if end_s <= now_s
        ]
        for lane, number in over:
            self._offers[lane][number] = now_s + lane.ability.idle_wait_s
        return over

    def take_strays(self) -> list[str]:
        """Return, once, the agents whose messages were not claimed in time."""
        now_s = self._clock.monotonic_s()
        over = [agent for agent, end_s in self._strays.items() if end_s <= now_s]
        for agent in over:
            del self._strays[agent]
        return over
