"""Which agents are present: their seat's process is alive, or they have a link. Not stored.

Reports once per agent when it is offline: its process has ended, or its last link was lost and no new one was
opened within the grace period. A holder has the same grace period to report how the process that it runs
ended.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.clock import CallLater, Timer
from palaver.identity.environment import runs_holder
from palaver.identity.process import Process, boot_id, is_alive, read_process
from palaver.identity.seats import SeatIndex
from palaver.log.api import Log
from palaver.protocol.agents import Agent, Seat
from palaver.protocol.envelope import Event
from palaver.protocol.events import AGENT_TYPES
from palaver.protocol.message import HUMAN
from palaver.state.agents import read_agent, read_agents, read_seats
from palaver.state.fold import agent_of

LINK_GRACE_S = 10.0


class ExitWatch(Protocol):
    """Reports the end of a seat's process; implemented by `ProcessWatch`."""

    def add(self, seat: Seat, callback: Callable[[], None]) -> None: ...

    def remove(self, seat: Seat) -> None: ...

    def close(self) -> None: ...


Gone = Callable[[str, Seat | None, str], None]
"""Called with the name, the seat it had, and the reason."""


class Presence:
    """Follows the agents of this device. Belongs to the loop's thread."""

    def __init__(self, watch: ExitWatch, gone: Gone, call_later: CallLater) -> None:
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


# --------------------
# Track which processes are holders, and which agents they run. A process below one is never the human.
#
# A holder adopts every process that its agent leaves running. So a process that has left its session, its
# terminal and its environment still has the holder above it. Read-only; `caller.py` identifies the caller.


@dataclass(frozen=True, slots=True)
class HolderAbove:
    """The nearest holder above a caller."""

    index: int
    """Its index in the chain."""
    seats: Sequence[Seat]
    """The seats that it runs.

    Empty for another program that runs agents: the owner of its other children is unclear.
    """


class Holders:
    """The holders of this home, identified by pid and start time. Belongs to one thread.

    A holder is found above the process it runs, even before it has reconnected to a new daemon. Any other
    program is known once it has held an agent.
    """

    def __init__(
        self,
        boot: str,
        read: Callable[[int], Process | None] = read_process,
        is_holder: Callable[[int], bool] = runs_holder,
    ) -> None:
        self._boot = boot
        self._read = read
        self._is_holder = is_holder
        self._known: dict[tuple[int, int], list[Seat]] = {}
        self._looked_at: dict[str, Seat] = {}

    def put(self, agent: Agent) -> None:
        """Record the current state of an agent, and find the holder above it."""
        seat = agent.seat if agent.holder else None
        if seat is None or seat.boot != self._boot or self._looked_at.get(agent.name) == seat:
            return
        self._looked_at[agent.name] = seat
        child = self._read(seat.pid)
        parent = self._read(child.ppid) if child is not None and child.start == seat.start else None
        # The parent may have adopted the process: the process that adopts every orphan is not a holder.
        if parent is not None and self._is_holder(parent.pid):
            self.meet(parent)
            self._known[parent.pid, parent.start].append(seat)

    def meet(self, process: Process) -> None:
        """Record that a process holds an agent."""
        if (process.pid, process.start) not in self._known:
            self._forget_ended()
            self._known[process.pid, process.start] = []

    def above(self, chain: Sequence[Process]) -> HolderAbove | None:
        """Return the nearest holder above the caller (the first process of the chain), or None."""
        for index, process in enumerate(chain):
            seats = self._known.get((process.pid, process.start))
            if seats is not None and index:
                return HolderAbove(index, tuple(seats))
        return None

    def _forget_ended(self) -> None:
        for pid, start in list(self._known):
            process = self._read(pid)
            if process is None or process.start != start:
                del self._known[pid, start]


# --------------------
# Track which terminals holders own. A process at one of them is its agent's, and never the human.
#
# Includes agents that have left: their processes may still run. The terminal of a process is read from the
# system each time, because a process can get one after its start.

_STOPPED: Final = ("T", "t")


class HolderTerminals:
    """A set of terminals, as device numbers. Belongs to one thread."""

    def __init__(self, boot: str, read: Callable[[int], Process | None] = read_process) -> None:
        self._boot = boot
        self._read = read
        self._seats: dict[str, Seat] = {}
        self._known: dict[Seat, int] = {}

    def put(self, agent: Agent) -> None:
        """Record the current state of an agent.

        An earlier process of its holder counts until it has ended.
        """
        if agent.holder and agent.seat is not None and agent.seat.boot == self._boot:
            self._seats[f"{agent.name} {agent.seat.pid} {agent.seat.start}"] = agent.seat

    def __contains__(self, tty: object) -> bool:
        """Whether a holder owns this terminal."""
        self._look()
        return tty in self._known.values()

    def _look(self) -> None:
        for name, seat in list(self._seats.items()):
            process = self._read(seat.pid)
            if process is None or process.start != seat.start or process.is_zombie:
                del self._seats[name]
                self._known.pop(seat, None)
            elif process.tty:
                self._known[seat] = process.tty


class AgentTerminals:
    """People's terminals at which agents without a holder run. Belongs to one thread.

    While an agent runs at a person's terminal, the system does not show which of the two a process there
    belongs to: a process can be given another parent (CLONE_PARENT), and can type for the person (TIOCSTI).
    """

    def __init__(self, boot: str, read: Callable[[int], Process | None] = read_process) -> None:
        self._boot = boot
        self._read = read
        self._seats: dict[int, set[tuple[int, int]]] = {}

    def put(self, agent: Agent) -> None:
        """Record the current state of an agent. One that has left counts until its process has ended."""
        seat = agent.seat
        if seat is None or agent.holder or seat.boot != self._boot:
            return
        process = self._read(seat.pid)
        if process is not None and process.start == seat.start and process.tty:
            self._seats.setdefault(process.tty, set()).add((seat.pid, seat.start))

    def has_agent(self, tty: int) -> bool:
        """Whether an agent runs at this terminal now; a stopped one does not count."""
        seats = self._seats.get(tty, set())
        for pid, start in list(seats):
            process = self._read(pid)
            if process is None or process.start != start or process.is_zombie or process.tty != tty:
                seats.discard((pid, start))
            elif process.state not in _STOPPED:
                return True
        if not seats:
            self._seats.pop(tty, None)
        return False


# --------------------
# Report the end of a seat's process. Ends no process itself.

_POLL_S: Final = 1.0
_PIDFD_OPEN: Final[Callable[[int], int] | None] = getattr(os, "pidfd_open", None)


class ProcessWatch:
    """Watches seats from one event loop: by pidfd, or by polling if there are no pidfds.

    A callback is called once, on the loop, after the process has ended; for a seat that has already ended, at
    the next turn of the loop. It is not called after the seat was removed or the watch closed.
    """

    def __init__(
        self, *, poll_s: float = _POLL_S, pidfd_open: Callable[[int], int] | None = _PIDFD_OPEN
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll_s = poll_s
        self._pidfd_open = pidfd_open
        self._stops: dict[Seat, Callable[[], None]] = {}

    def add(self, seat: Seat, callback: Callable[[], None]) -> None:
        """Watch a seat; a second callback for the same seat replaces the first."""
        self.remove(seat)
        pidfd = self._open(seat.pid)
        # Checked after opening: if the process is alive now, the pidfd refers to it.
        if not is_alive(seat):
            if pidfd is not None:
                os.close(pidfd)
            handle = self._loop.call_soon(self._ended, seat, callback)
            self._stops[seat] = handle.cancel
        elif pidfd is None:
            self._poll(seat, callback)
        else:
            self._loop.add_reader(pidfd, self._ended, seat, callback)
            self._stops[seat] = lambda: self._close(pidfd)

    def remove(self, seat: Seat) -> None:
        """Stop watching a seat; does nothing if it is not watched."""
        if stop := self._stops.pop(seat, None):
            stop()

    def close(self) -> None:
        """Stop watching all seats."""
        for seat in list(self._stops):
            self.remove(seat)

    def _open(self, pid: int) -> int | None:
        try:
            return None if self._pidfd_open is None else self._pidfd_open(pid)
        except OSError:  # it has ended, there are no file descriptors left, or a sandbox forbids it
            return None

    def _close(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)

    def _poll(self, seat: Seat, callback: Callable[[], None]) -> None:
        if not is_alive(seat):
            self._ended(seat, callback)
            return
        self._stops[seat] = self._loop.call_later(self._poll_s, self._poll, seat, callback).cancel

    def _ended(self, seat: Seat, callback: Callable[[], None]) -> None:
        self.remove(seat)
        callback()


# --------------------
# Seats and presence of all agents, kept in step with the state.


class Roll:
    """The seats, presence, terminals and holders of all agents. Empty until it starts."""

    def __init__(self, log: Log, gone: Gone, call_later: CallLater, secret: bytes) -> None:
        """`gone` is called with an agent that is offline, its seat, and the reason.

        `secret` signs the marks.
        """
        boot = boot_id()
        self._log = log
        self._unsubscribe: Callable[[], None] = lambda: None
        self.presence = Presence(ProcessWatch(), gone, call_later)
        self.seats = SeatIndex(boot, secret=secret)
        self.terminals = HolderTerminals(boot)
        self.agent_terminals = AgentTerminals(boot)
        self.holders = Holders(boot)

    def start(self) -> None:
        """Read the state, and from then on every change, before its commit returns."""
        self._unsubscribe = self._log.subscribe(self._follow, AGENT_TYPES)
        for seat in read_seats(self._log.rows, self.seats.boot):
            self.seats.remember(seat)
        for agent in read_agents(self._log.rows):
            self._put(agent)

    def close(self) -> None:
        """Stop watching."""
        self._unsubscribe()
        self.presence.close()

    def is_in_reach(self, name: str) -> bool:
        """Whether a member of a room is present: a person always is, at any terminal."""
        return name == HUMAN or self.presence.is_present(name)

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if (agent := read_agent(self._log.rows, agent_of(event))) is not None:
                self._put(agent)

    def _put(self, agent: Agent) -> None:
        self.seats.put(agent)
        self.presence.put(agent)
        self.terminals.put(agent)
        self.agent_terminals.put(agent)
        self.holders.put(agent)
