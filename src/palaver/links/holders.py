"""Which processes are holders, and whom each of them runs. What stands below one is never the human.

A holder adopts whatever its agent leaves behind, so that a process which has left its session, its terminal
and its environment still has the holder above it. Looks only; who is asking, `doorstep.py` works out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palaver.links.environment import runs_holder
from palaver.links.process import Process, read_process
from palaver.model.agent import Agent, Seat


@dataclass(frozen=True, slots=True)
class Below:
    """The nearest holder above a caller."""

    index: int
    """Where it stands in the chain."""
    seats: Sequence[Seat]
    """What it runs. Empty for another program that holds agents: whose its other children are is unclear."""


class Holders:
    """The holders of this home that are known by number and start. Belongs to one thread.

    Palaver's own is found above the process it runs, also by a daemon to which it has not come back yet. Any
    other is known once it has held an agent.
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
        """Take in an agent as it is now, and find the holder above it."""
        seat = agent.seat if agent.holder else None
        if seat is None or seat.boot != self._boot or self._looked_at.get(agent.name) == seat:
            return
        self._looked_at[agent.name] = seat
        child = self._read(seat.pid)
        parent = self._read(child.ppid) if child is not None and child.start == seat.start else None
        # Whoever is above may have adopted it: the holder is not the one that every orphan ends up with.
        if parent is not None and self._is_holder(parent.pid):
            self.meet(parent)
            self._known[parent.pid, parent.start].append(seat)

    def meet(self, process: Process) -> None:
        """A process holds an agent."""
        if (process.pid, process.start) not in self._known:
            self._forget_ended()
            self._known[process.pid, process.start] = []

    def above(self, chain: Sequence[Process]) -> Below | None:
        """Give the nearest holder above the caller, which begins the chain, or None."""
        for index, process in enumerate(chain):
            seats = self._known.get((process.pid, process.start))
            if seats is not None and index:
                return Below(index, tuple(seats))
        return None

    def _forget_ended(self) -> None:
        for pid, start in list(self._known):
            process = self._read(pid)
            if process is None or process.start != start:
                del self._known[pid, start]
