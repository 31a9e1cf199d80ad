"""Track which processes are holders, and which agents they run. A process below one is never the human.

A holder adopts every process that its agent leaves running. So a process that has left its session, its
terminal and its environment still has the holder above it. Read-only; `doorstep.py` identifies the caller.
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

    def above(self, chain: Sequence[Process]) -> Below | None:
        """Return the nearest holder above the caller (the first process of the chain), or None."""
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
