"""When a lane is looked at again although nothing has happened: its 'not now' has lasted, or its gate.

Pending mail and an open gate is enough, so 'not now' must end by itself too; what waits behind a closed gate
for long is told to its senders. Knows moments only: what is done at them is delivery's.
"""

from collections.abc import Callable
from typing import Final

from palaver.clock import Clock
from palaver.delivery.lane import Lane

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
SHUT_S: Final = 30.0
"""So long mail may wait behind a closed gate before its senders are told."""
STUCK_S: Final = 2.0
"""So long an offer may stand behind a dialog. One that only just left may have opened it itself."""


NATIVE_S: Final = 5.0
"""How long a native lane may take to connect before the terminal is used. It tries every half second."""


class Patience:
    """The moments of all lanes. `changed` is told when the next one may be sooner."""

    def __init__(self, clock: Clock, changed: Callable[[], None], *, native_wait_s: float = NATIVE_S) -> None:
        self._clock = clock
        self._native_wait_s = native_wait_s
        self._changed = changed
        self._deferred: dict[Lane, float] = {}
        self._shut: dict[Lane, float] = {}
        self._stuck: dict[Lane, float] = {}
        self._awaiting: dict[Lane, float] = {}

    def defer(self, lane: Lane, *, is_raw: bool) -> None:
        """A lane said 'not now'. The pause doubles while it says nothing else."""
        pause_s = min(FIRST_PAUSE_S * 2**lane.deferrals, LONGEST_PAUSE_S)
        lane.deferrals += 1
        if is_raw:
            lane.are_keys_deferred = True
        else:
            lane.is_deferred = True
        self._set(self._deferred, lane, pause_s)

    def try_again(self, lane: Lane) -> None:
        """Look at a lane again after a pause: what was to go through it could not be written down."""
        if lane not in self._deferred:
            self._set(self._deferred, lane, FIRST_PAUSE_S)

    def resume(self, lane: Lane) -> None:
        """Something is different now: 'not now' is over."""
        lane.is_deferred = lane.are_keys_deferred = False
        self._deferred.pop(lane, None)

    def watch(self, lane: Lane, *, is_asleep: bool = False) -> None:
        """Look at what waits behind the gate of a lane, and at what is open on it, once that has lasted.

        `is_asleep`: it is open, and the agent rests where nothing can wake it.
        """
        if lane.level.is_open and not is_asleep:
            self._shut.pop(lane, None)
        elif lane not in self._shut:
            self._set(self._shut, lane, SHUT_S)
        if not (lane.is_behind_dialog and lane.offers):
            self._stuck.pop(lane, None)
        elif lane not in self._stuck:
            self._set(self._stuck, lane, STUCK_S)

    def watch_again(self, lane: Lane, wait_s: float) -> None:
        """Something behind the gate has not waited for long enough yet."""
        self._set(self._shut, lane, min(wait_s, SHUT_S))

    def await_native(self, lane: Lane) -> None:
        """Keep a terminal closed until a native lane of its agent is open, or for a time."""
        lane.awaits_native = True
        self._set(self._awaiting, lane, self._native_wait_s)

    def stop_awaiting(self, lane: Lane) -> None:
        """Let a terminal be used: a native lane has come, and goes first by itself, or has had its time."""
        lane.awaits_native = False
        self._awaiting.pop(lane, None)

    def forget(self, lane: Lane) -> None:
        """A lane is gone."""
        for moments in (self._deferred, self._shut, self._stuck, self._awaiting):
            moments.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Give how long nothing falls due, or None for ever."""
        kinds = (self._deferred, self._shut, self._stuck, self._awaiting)
        moments = [moment for kind in kinds for moment in kind.values()]
        return max(0.0, min(moments) - self._clock.monotonic_s()) if moments else None

    def take_deferred(self) -> list[Lane]:
        """Give the lanes whose pause is over, once."""
        return self._take(self._deferred)

    def take_shut(self) -> list[Lane]:
        """Give the lanes whose gate has been closed for long, once."""
        return self._take(self._shut)

    def take_stuck(self) -> list[Lane]:
        """Give the lanes on which an offer has stood behind a dialog for long, once."""
        return self._take(self._stuck)

    def take_awaiting(self) -> list[Lane]:
        """Return the terminals that have waited long enough for a native lane, once."""
        return self._take(self._awaiting)

    def _take(self, moments: dict[Lane, float]) -> list[Lane]:
        now_s = self._clock.monotonic_s()
        over = [lane for lane, moment_s in moments.items() if moment_s <= now_s]
        for lane in over:
            del moments[lane]
        return over

    def _set(self, moments: dict[Lane, float], lane: Lane, wait_s: float) -> None:
        moments[lane] = self._clock.monotonic_s() + wait_s
        self._changed()
