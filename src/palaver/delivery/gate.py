"""Decide which priorities an agent accepts in its state. Pure; evaluated for each delivery."""

from dataclasses import dataclass
from typing import Final

from palaver.delivery.queue import can_pass
from palaver.model.agent import Agent
from palaver.model.delivery import AgentState
from palaver.model.priority import Priority

_AT_WORK: Final[frozenset[str]] = frozenset({AgentState.STARTING, AgentState.ACTIVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The state of an agent, as far as it decides which messages may go."""

    idle: bool
    blocked: bool
    paused: bool

    def can_pass(self, priority: Priority) -> bool:
        """Return whether messages of a priority may go now."""
        return can_pass(priority, idle=self.idle, blocked=self.blocked, paused=self.paused)


def gate_of_pushed(agent: Agent | None) -> Gate:
    """Return the gate for a reader to which an agent's messages are pushed.

    An agent that never reported its state counts as idle, and so does a person. Otherwise their messages
    would wait indefinitely.
    """
    if agent is None:
        return Gate(idle=True, blocked=False, paused=False)
    is_blocked = agent.state == AgentState.BLOCKED
    return Gate(idle=agent.state not in _AT_WORK, blocked=is_blocked, paused=agent.paused)
