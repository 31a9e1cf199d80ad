"""Deadlines at which a lane is checked again without an event: after a deferral or at a closed gate.

A waiting message and an open gate are enough for delivery, so a deferral must also end by time. Senders are
notified of messages that wait long at a closed gate. This module only keeps deadlines; delivery acts on them.
"""

from collections.abc import Callable
from typing import Final

from palaver.clock import Clock
from palaver.delivery.lane import Lane

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""The pause after a deferral doubles from the first to the longest value."""
SHUT_S: Final = 30.0
"""How long messages may wait at a closed gate before their senders are notified."""
STUCK_S: Final = 2.0
"""How long an offer may be stuck at a dialog. A new offer may have opened the dialog itself."""


NATIVE_S: Final = 5.0
"""How long a native lane may take to connect before the terminal is used. It tries every half second."""


class Patience:
    """The deadlines of all lanes. `changed` is called when the next one may be earlier."""

    def __init__(self, clock: Clock, changed: Callable[[], None], *, native_wait_s: float = NATIVE_S) -> None:
        self._clock = clock
        self._native_wait_s = native_wait_s
        self._changed = changed
        self._deferred: dict[Lane, float] = {}
        self._shut: dict[Lane, float] = {}
        self._stuck: dict[Lane, float] = {}
        self._awaiting: dict[Lane, float] = {}

    def defer(self, lane: Lane, *, is_raw: bool) -> None:
        """Record a deferral. The pause doubles with each deferral in a row."""
        pause_s = min(FIRST_PAUSE_S * 2**lane.deferrals, LONGEST_PAUSE_S)
        lane.deferrals += 1
        if is_raw:
            lane.are_keys_deferred = True
        else:
            lane.is_deferred = True
        self._set(self._deferred, lane, pause_s)

    def try_again(self, lane: Lane) -> None:
        """Check a lane again after a pause, because a write failed."""
        if lane not in self._deferred:
            self._set(self._deferred, lane, FIRST_PAUSE_S)

    def resume(self, lane: Lane) -> None:
        """End a deferral, because something has changed."""
        lane.is_deferred = lane.are_keys_deferred = False
        self._deferred.pop(lane, None)

    def watch(self, lane: Lane, *, is_asleep: bool = False) -> None:
        """Set or clear the deadlines for a closed gate, and for offers that are stuck at a dialog.

        `is_asleep`: the gate is open, but the agent is idle and no lane can wake it.
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
        """Check a closed gate again after `wait_s`, because some messages have not waited long enough."""
        self._set(self._shut, lane, min(wait_s, SHUT_S))

    def await_native(self, lane: Lane) -> None:
        """Keep a terminal closed until a native lane of its agent opens, for a limited time."""
        lane.awaits_native = True
        self._set(self._awaiting, lane, self._native_wait_s)

    def stop_awaiting(self, lane: Lane) -> None:
        """Allow the use of a terminal: a native lane has opened and takes precedence, or the time is over."""
        lane.awaits_native = False
        self._awaiting.pop(lane, None)

    def forget(self, lane: Lane) -> None:
        """Drop all deadlines of a lane."""
        for moments in (self._deferred, self._shut, self._stuck, self._awaiting):
            moments.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        kinds = (self._deferred, self._shut, self._stuck, self._awaiting)
        moments = [moment for kind in kinds for moment in kind.values()]
        return max(0.0, min(moments) - self._clock.monotonic_s()) if moments else None

    def take_deferred(self) -> list[Lane]:
        """Return, once, the lanes whose pause is over."""
        return self._take(self._deferred)

    def take_shut(self) -> list[Lane]:
        """Return, once, the lanes whose gate has been closed for `SHUT_S`."""
        return self._take(self._shut)

    def take_stuck(self) -> list[Lane]:
        """Return, once, the lanes on which an offer has been stuck at a dialog for `STUCK_S`."""
        return self._take(self._stuck)

    def take_awaiting(self) -> list[Lane]:
        """Return, once, the terminals that have waited long enough for a native lane."""
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
