"""Which agents are present: their seat's process is alive, or they have a link. Not stored.

Reports once per agent when it is offline: its process has ended, or its last link was lost and no new one was
opened within the grace period. A holder has the same grace period to report how the process that it runs
ended.
"""

from collections.abc import Callable
from typing import Protocol

from palaver.model.agent import Agent, Seat

LINK_GRACE_S = 10.0


class Watch(Protocol):
    """Reports the end of a seat's process; implemented by `ProcessWatch`."""

    def add(self, seat: Seat, callback: Callable[[], None]) -> None: ...

    def remove(self, seat: Seat) -> None: ...

    def close(self) -> None: ...


class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
Gone = Callable[[str, Seat | None, str], None]
"""Called with the name, the seat it had, and the reason."""


class Presence:
    """Follows the agents of this device. Belongs to the loop's thread."""

    def __init__(self, watch: Watch, gone: Gone, call_later: CallLater) -> None:
        self._watch = watch
        self._gone = gone
        self._call_later = call_later
        self._seats: dict[str, Seat] = {}
        self._ended: dict[str, Seat] = {}
        self._links: dict[str, int] = {}
        self._timers: dict[str, Timer] = {}
        self._parents: dict[str, str] = {}

    def is_present(self, name: str) -> bool:
        """Whether the agent's process is alive, or it has a link. A sub-agent is present with its parent."""
        while (parent := self._parents.get(name)) is not None:
            name = parent
        return name in self._seats or name in self._links

    def put(self, agent: Agent) -> None:
        """Record the current state of an agent in the log. The end of a sub-agent is reported by others."""
        if agent.parent and not agent.left:
            self._parents[agent.name] = agent.parent
            return
        self._parents.pop(agent.name, None)
        seat = None if agent.left or agent.remote else agent.seat
        if seat is not None and self._ended.get(agent.name) == seat:
            return  # Its holder is still within the grace period.
        self._ended.pop(agent.name, None)
        known = self._seats.get(agent.name)
        if known != seat:
            self._forget_seat(agent.name)
            if seat is not None:
                self._seats[agent.name] = seat
                is_held = bool(agent.holder)
                self._watch.add(seat, lambda: self._seat_ended(agent.name, seat, is_held=is_held))
        if agent.left:
            self._stop_timer(agent.name)
        elif agent.link and agent.name not in self._links and agent.name not in self._timers:
            self._start_timer(agent.name)

    def link_opened(self, name: str) -> None:
        """Record one more connection of the agent."""
        self._stop_timer(name)
        self._links[name] = self._links.get(name, 0) + 1

    def link_closed(self, name: str) -> None:
        """Record one connection less; after the last one the grace period begins."""
        left = self._links.get(name, 0) - 1
        if left > 0:
            self._links[name] = left
        else:
            self._links.pop(name, None)
            self._start_timer(name)

    def close(self) -> None:
        """Stop watching, and report nothing more."""
        self._watch.close()
        for name in list(self._timers):
            self._stop_timer(name)

    def _seat_ended(self, name: str, seat: Seat, *, is_held: bool) -> None:
        if self._seats.get(name) == seat:
            del self._seats[name]
            if is_held:
                self._ended[name] = seat
                self._stop_timer(name)
                self._timers[name] = self._call_later(LINK_GRACE_S, lambda: self._never_said(name, seat))
            elif name not in self._links:
                self._gone(name, seat, "its process ended")

    def _never_said(self, name: str, seat: Seat) -> None:
        del self._timers[name]
        if self._ended.get(name) == seat:
            self._gone(name, seat, "its process ended")

    def _forget_seat(self, name: str) -> None:
        if (seat := self._seats.pop(name, None)) is not None:
            self._watch.remove(seat)

    def _start_timer(self, name: str) -> None:
        self._timers[name] = self._call_later(LINK_GRACE_S, lambda: self._grace_over(name))

    def _stop_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    def _grace_over(self, name: str) -> None:
        del self._timers[name]
        if name not in self._seats:
            self._gone(name, None, "its connection was lost")
