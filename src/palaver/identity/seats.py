"""Which processes and terminals belong to which agents. Knows no rights."""

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.marks import SEAT_MARK, SESSION_MARKS
from palaver.identity.process import Process, read_process, runs_holder
from palaver.protocol.agents import Agent, Seat

# --------------------
# Map processes, marks and harness sessions to agents. Reads no process.


_Table = dict[object, dict[str, Agent]]


def seat_mark(seat: Seat, name: str, secret: bytes = b"") -> str:
    """Return the value of PALAVER_SEAT for the processes of a seat.

    It cannot be computed without the secret.
    """
    # `repr` quotes the parts, so that no two different seats make the same text.
    parts = repr((seat.boot, seat.pid, seat.start, seat.key, name))
    # Running processes have this value in their environment: after a change here they would be scripts.
    return hmac.new(secret, parts.encode(), "sha256").hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Anchored:
    """The nearest process of a chain that has an agent."""

    index: int
    """Its index in the chain; 0 is the caller itself."""
    agents: Sequence[Agent]
    """The agents there, by name: several if one process runs several sessions."""
    subagents: Sequence[Agent] = ()
    """Their sub-agents, by name. A caller is one of them only with its key."""
    secret: bytes = b""
    """The secret that the marks of these seats are made with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSeat:
    """The process of an automatic turn, or of its triage. It acts as the agent, present or not."""

    agent: Agent
    session: str
    is_triage: bool = False


class SeatIndex:
    """The seats of the agents on this device, by anchor process, seat mark and harness session.

    Agents that have left or are on another device have no seat here. Sub-agents are kept apart: they share
    the process of their parent, and never make a caller ambiguous. A seat of an earlier boot has no process
    any more; its marks still select it.
    """

    def __init__(self, boot: str, agents: Sequence[Agent] = (), *, secret: bytes = b"") -> None:
        self.boot: Final = boot
        self.secret: Final = secret
        self._first_start: int | None = None
        self._agents: dict[str, Agent] = {}
        self._anchors: _Table = {}
        self._marks: _Table = {}
        self._sessions: _Table = {}
        self._subagents: _Table = {}
        self._former: set[tuple[int, int]] = set()
        self._turns: dict[tuple[int, int], TurnSeat] = {}
        for agent in agents:
            self.put(agent)

    def put(self, agent: Agent) -> None:
        """Record the current state of an agent, replacing the earlier one."""
        self.drop(agent.name)
        if agent.seat is not None:
            self.remember(agent.seat)
        if agent.left or agent.remote:
            return
        self._agents[agent.name] = agent
        for table, key in self._entries(agent):
            table.setdefault(key, {})[agent.name] = agent

    def remember(self, seat: Seat) -> None:
        """Record that an agent has, or had, its seat at a process.

        It is never forgotten, because this process and those below it must never become the human.
        """
        if seat.boot == self.boot:
            self._former.add((seat.pid, seat.start))
            self._first_start = min(seat.start, self._first_start or seat.start)

    def begin_turn(self, seat: Seat, turn: TurnSeat) -> None:
        """Record the process of an automatic turn."""
        # A process that the turn leaves running must not become the human when the turn has ended.
        self.remember(seat)
        self._turns[seat.pid, seat.start] = turn

    def end_turn(self, seat: Seat) -> None:
        """Forget the process of an automatic turn, because the turn has ended."""
        self._turns.pop((seat.pid, seat.start), None)

    def turn_above(self, chain: Sequence[Process]) -> TurnSeat | None:
        """Return the automatic turn that a caller is part of; None if an agent's own process is nearer."""
        for process in chain:
            if (turn := self._turns.get((process.pid, process.start))) is not None:
                return turn
            if self.is_anchor(process):
                return None
        return None

    def was_seat(self, chain: Sequence[Process]) -> bool:
        """Whether an agent has, or had, its seat at a process of the chain."""
        return any((process.pid, process.start) in self._former for process in chain)

    def is_older_than_all(self, process: Process) -> bool:
        """Whether a process started before every agent of this boot, so that no agent can have started it."""
        return self._first_start is None or process.start < self._first_start

    def mark(self, seat: Seat, name: str) -> str:
        """Return the value of PALAVER_SEAT for the processes of an agent's seat."""
        return seat_mark(seat, name, self.secret)

    def drop(self, name: str) -> None:
        """Forget an agent; does nothing if it is not known."""
        agent = self._agents.pop(name, None)
        if agent is None:
            return
        # `agent` is the stored state, because its seat and session are the keys of the entries.
        for table, key in self._entries(agent):
            here = table[key]
            del here[name]
            if not here:
                del table[key]

    def _entries(self, agent: Agent) -> list[tuple[_Table, object]]:
        entries: list[tuple[_Table, object]] = []
        if agent.parent:
            if agent.seat is not None and agent.seat.boot == self.boot:
                entries.append((self._subagents, (agent.seat.pid, agent.seat.start)))
            return entries
        if agent.seat is not None:
            entries.append((self._marks, self.mark(agent.seat, agent.name)))
            if agent.seat.boot == self.boot:
                entries.append((self._anchors, (agent.seat.pid, agent.seat.start)))
        # An agent on a connection has the hash of a secret as its session, not a harness session.
        if agent.session and not agent.link:
            entries.append((self._sessions, (agent.harness, agent.session)))
        return entries

    def is_anchor(self, process: Process) -> bool:
        """Whether an agent has its seat at exactly this process."""
        return (process.pid, process.start) in self._anchors

    def at(self, process: Process | Seat) -> list[Agent]:
        """Return the agents whose anchor is exactly this process, by name."""
        return self._in(self._anchors, process)

    def subagents_at(self, process: Process | Seat) -> list[Agent]:
        """Return the sub-agents inside exactly this process, by name."""
        return self._in(self._subagents, process)

    def _in(self, table: _Table, process: Process | Seat) -> list[Agent]:
        here = table.get((process.pid, process.start), {})
        return [here[name] for name in sorted(here)]

    def nearest(self, chain: Sequence[Process]) -> Anchored | None:
        """Return the first process of the chain that has an agent, or None."""
        for index, process in enumerate(chain):
            if self.is_anchor(process):
                return Anchored(index, self.at(process), self.subagents_at(process), self.secret)
        return None

    def marked(self, marks: Mapping[str, str]) -> list[Agent]:
        """Return every agent that these environment entries select, innermost first.

        An inner harness inherits the marks of an outer one, so several can match; the process that started
        last is inside the others.
        """
        found: dict[str, Agent] = {}
        if mark := marks.get(SEAT_MARK):
            found |= self._marks.get(mark, {})
        for harness, names in SESSION_MARKS.items():
            for name in names:
                if session := marks.get(name):
                    found |= self._sessions.get((harness, session), {})
        return sorted(found.values(), key=self._depth, reverse=True)

    def _depth(self, agent: Agent) -> tuple[int, int, str]:
        seat = agent.seat
        # Start times count from boot, so one of an earlier boot cannot be compared with these.
        started = seat.start if seat is not None and seat.boot == self.boot else -1
        return started, agent.joined, agent.name


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
        # Looked at once for each seat, because this is called for every event that changes the agent.
        self._looked_at[agent.name] = seat
        child = self._read(seat.pid)
        # With another start time the pid belongs to another process by now.
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
            # The holder itself, at index 0, is not below itself.
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
            # The process is part of the key, so that a new seat of the agent does not replace the old one.
            self._seats[f"{agent.name} {agent.seat.pid} {agent.seat.start}"] = agent.seat

    def __contains__(self, tty: object) -> bool:
        """Whether a holder owns this terminal."""
        self._look()
        return tty in self._known.values()

    def _look(self) -> None:
        # A copy, because ended seats are deleted in the loop.
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
            # A stopped one can neither type nor start a process, so the person may use the terminal.
            elif process.state not in _STOPPED:
                return True
        if not seats:
            self._seats.pop(tty, None)
        return False
