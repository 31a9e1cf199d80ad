"""Ends the wait for a lane that says nothing. It knows moments only; delivery acts at them.

While its agent is idle, a lane has a bounded time to say what became of an offer. A message that no lane has
in hand, because a connection was lost, has a bounded time to be claimed by the next connection.
"""

from collections.abc import Callable, Sequence
from typing import Final

from palaver.clock import Clock
from palaver.delivery.lane import IDLE_WAIT_S, Lane

CLAIM_S: Final = IDLE_WAIT_S


class Silence:
    """The moments at which waiting ends. `changed` is told when the next one may be sooner."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._offers: dict[Lane, dict[int, float]] = {}
        """For each open offer of an idle agent the moment at which the wait for it ends."""
        self._strays: dict[str, float] = {}
        """Agents for which something was submitted that nobody has in hand."""

    def watch(self, lanes: Sequence[Lane], *, is_idle: bool) -> None:
        """Begin to wait for what is open on the lanes of an idle agent; stop when it is not idle."""
        now_s = self._clock.monotonic_s()
        for lane in lanes:
            known = self._offers.pop(lane, {})
            if is_idle and lane.offers:
                end_s = now_s + lane.ability.idle_wait_s
                self._offers[lane] = {number: known.get(number, end_s) for number in lane.offers}
                if not known.keys() >= lane.offers.keys():
                    self._changed()

    def stray(self, agent: str) -> None:
        """Begin to wait until somebody claims what nobody has in hand for an agent."""
        self._strays[agent] = self._clock.monotonic_s() + CLAIM_S
        self._changed()

    def forget(self, lane: Lane) -> None:
        """A lane is gone."""
        self._offers.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return how long nothing falls due, or None for ever."""
        moments = [*self._strays.values()]
        for offers in self._offers.values():
            moments += offers.values()
        return max(0.0, min(moments) - self._clock.monotonic_s()) if moments else None

    def take_silent(self) -> list[tuple[Lane, int]]:
        """Return the offers whose wait is over; for one that stays open the wait begins anew."""
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
        """Return the agents whose messages nobody has claimed in time, once."""
        now_s = self._clock.monotonic_s()
        over = [agent for agent, end_s in self._strays.items() if end_s <= now_s]
        for agent in over:
            del self._strays[agent]
        return over
