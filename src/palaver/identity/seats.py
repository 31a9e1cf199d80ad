"""Map processes, marks and harness sessions to agents. Reads no process and knows no rights."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.marks import SEAT_MARK, SESSION_MARKS
from palaver.identity.process import Process
from palaver.protocol.agents import Agent, Seat

_Table = dict[object, dict[str, Agent]]


def seat_mark(seat: Seat, name: str, secret: bytes = b"") -> str:
    """Return the value of PALAVER_SEAT for the processes of a seat.

    It cannot be computed without the secret.
    """
    parts = repr((seat.boot, seat.pid, seat.start, seat.key, name))
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
        for table, key in self._places(agent):
            table.setdefault(key, {})[agent.name] = agent

    def remember(self, seat: Seat) -> None:
        """Record that an agent has, or had, its seat at a process. It is never forgotten."""
        if seat.boot == self.boot:
            self._former.add((seat.pid, seat.start))
            self._first_start = min(seat.start, self._first_start or seat.start)

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
        for table, key in self._places(agent):
            here = table[key]
            del here[name]
            if not here:
                del table[key]

    def _places(self, agent: Agent) -> list[tuple[_Table, object]]:
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
        started = seat.start if seat is not None and seat.boot == self.boot else -1
        return started, agent.joined, agent.name
