"""Which process, mark or harness session belongs to which agent. Looks at no process and knows no rights."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.harness.marks import SEAT_MARK, SESSION_MARKS
from palaver.links.process import Process
from palaver.model.agent import Agent, Seat

_Table = dict[object, dict[str, Agent]]


def seat_mark(seat: Seat, name: str, secret: bytes = b"") -> str:
    """Return the value of PALAVER_SEAT for the processes of a seat. Nobody computes it without the secret."""
    parts = repr((seat.boot, seat.pid, seat.start, seat.key, name))
    return hmac.new(secret, parts.encode(), "sha256").hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Anchored:
    """The nearest process of a chain that is somebody."""

    index: int
    """Where it stands in the chain; 0 is the caller itself."""
    agents: Sequence[Agent]
    """Who sits there, by name: several where one process runs several sessions."""
    subagents: Sequence[Agent] = ()
    """The sub-agents of those, by name: only who brings the key of one is that one."""
    secret: bytes = b""
    """The secret of which the marks of these seats are made."""


class SeatIndex:
    """The seats of the agents here, by anchor process, by seat mark and by harness session.

    Agents that have left or live on another device have no seat here. Sub-agents are kept apart: they share
    the process of their parent, and never make it unclear who asks. A seat of an earlier boot has no
    process any more; its marks still mean it.
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
        """Take in an agent as it is now, in place of what was known of that name."""
        self.drop(agent.name)
        if agent.seat is not None:
            self.remember(agent.seat)
        if agent.left or agent.remote:
            return
        self._agents[agent.name] = agent
        for table, key in self._places(agent):
            table.setdefault(key, {})[agent.name] = agent

    def remember(self, seat: Seat) -> None:
        """Take in that an agent sits at a process, or sat there before. It is never forgotten."""
        if seat.boot == self.boot:
            self._former.add((seat.pid, seat.start))
            self._first_start = min(seat.start, self._first_start or seat.start)

    def was_seat(self, chain: Sequence[Process]) -> bool:
        """Whether an agent sits or has sat at a process of the chain."""
        return any((process.pid, process.start) in self._former for process in chain)

    def is_older_than_all(self, process: Process) -> bool:
        """Whether a process started before every agent of this boot, so that none can have started it."""
        return self._first_start is None or process.start < self._first_start

    def mark(self, seat: Seat, name: str) -> str:
        """Return the value of PALAVER_SEAT for the processes of an agent's seat."""
        return seat_mark(seat, name, self.secret)

    def drop(self, name: str) -> None:
        """Forget an agent; nothing happens when it is not known."""
        agent = self._agents.pop(name, None)
        if agent is None:
            return
        for table, key in self._places(agent):
            here = table[key]
            del here[name]
            if not here:
                del table[key]

    def _places(self, agent: Agent) -> list[tuple[_Table, object]]:
        places: list[tuple[_Table, object]] = []
        if agent.parent:
            if agent.seat is not None and agent.seat.boot == self.boot:
                places.append((self._subagents, (agent.seat.pid, agent.seat.start)))
            return places
        if agent.seat is not None:
            places.append((self._marks, self.mark(agent.seat, agent.name)))
            if agent.seat.boot == self.boot:
                places.append((self._anchors, (agent.seat.pid, agent.seat.start)))
        # What lives on a connection keeps the hash of a secret there, and no session of a harness.
        if agent.session and not agent.link:
            places.append((self._sessions, (agent.harness, agent.session)))
        return places

    def is_anchor(self, process: Process) -> bool:
        """Whether somebody sits at this very process."""
        return (process.pid, process.start) in self._anchors

    def at(self, process: Process | Seat) -> list[Agent]:
        """Give those whose anchor is this very process, by name."""
        return self._in(self._anchors, process)

    def subagents_at(self, process: Process | Seat) -> list[Agent]:
        """Give the sub-agents inside this very process, by name."""
        return self._in(self._subagents, process)

    def _in(self, table: _Table, process: Process | Seat) -> list[Agent]:
        here = table.get((process.pid, process.start), {})
        return [here[name] for name in sorted(here)]

    def nearest(self, chain: Sequence[Process]) -> Anchored | None:
        """Give the first process of the chain that is somebody, or None."""
        for index, process in enumerate(chain):
            if self.is_anchor(process):
                return Anchored(index, self.at(process), self.subagents_at(process), self.secret)
        return None

    def marked(self, marks: Mapping[str, str]) -> list[Agent]:
        """Give everybody these environment entries mean, the innermost first.

        Marks of an outer harness are inherited by an inner one, so several can be meant; the process that
        started last is inside the others.
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
