"""Seats and presence of all agents, kept in step with the state."""

from collections.abc import Callable, Sequence

from palaver.links.holders import Holders
from palaver.links.presence import CallLater, Presence
from palaver.links.process import boot_id
from palaver.links.seats import SeatIndex
from palaver.links.terminals import AgentTerminals, HolderTerminals
from palaver.links.watch import ProcessWatch
from palaver.log.api import Log
from palaver.log.fold import agent_of
from palaver.log.state import read_agent, read_agents, read_seats
from palaver.model.agent import Agent, Seat
from palaver.model.envelope import Event
from palaver.model.life import AGENT_TYPES
from palaver.model.message import HUMAN

Gone = Callable[[str, Seat | None, str], None]


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
        self._unsubscribe = self._log.subscribe(self._follow)
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
            is_news = event.type in AGENT_TYPES
            if is_news and (agent := read_agent(self._log.rows, agent_of(event))) is not None:
                self._put(agent)

    def _put(self, agent: Agent) -> None:
        self.seats.put(agent)
        self.presence.put(agent)
        self.terminals.put(agent)
        self.agent_terminals.put(agent)
        self.holders.put(agent)
