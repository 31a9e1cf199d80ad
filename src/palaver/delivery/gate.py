"""What an agent lets pass, by its state. Pure: it is asked anew whenever something may go."""

from dataclasses import dataclass
from typing import Final

from palaver.delivery.queue import can_pass
from palaver.model.agent import Agent
from palaver.model.delivery import AgentState
from palaver.model.priority import Priority

_AT_WORK: Final[frozenset[str]] = frozenset({AgentState.STARTING, AgentState.ACTIVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What an agent lets pass, as its state has it."""

    idle: bool
    blocked: bool
    paused: bool

    def can_pass(self, priority: Priority) -> bool:
        """Tell whether mail of a priority may go now."""
        return can_pass(priority, idle=self.idle, blocked=self.blocked, paused=self.paused)


def gate_of_pushed(agent: Agent | None) -> Gate:
    """Give the gate for whoever is pushed an agent's mail.

    One that never said what it does counts as idle, and so does a person: nothing waits for ever because
    nobody reports.
    """
    if agent is None:
        return Gate(idle=True, blocked=False, paused=False)
    is_blocked = agent.state == AgentState.BLOCKED
    return Gate(idle=agent.state not in _AT_WORK, blocked=is_blocked, paused=agent.paused)
