"""Track which terminals holders own. A process at one of them is its agent's, and never the human.

Includes agents that have left: their processes may still run. The terminal of a process is read from the
system each time, because a process can get one after its start.
"""

from collections.abc import Callable
from typing import Final

from palaver.links.process import Process, read_process
from palaver.model.agent import Agent, Seat

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
