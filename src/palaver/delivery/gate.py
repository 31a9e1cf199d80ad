"""Decide which priorities an agent accepts in its state. Pure; evaluated for each delivery."""

from bisect import insort
from dataclasses import dataclass
from typing import Final

from palaver.protocol.agents import Agent
from palaver.protocol.events import AgentState
from palaver.protocol.message import Priority
from palaver.state.rows import mail_key, priority_of_key

# --------------------
# A queue with the four priorities: the order of messages, and which may pass now. Pure.
#
# The order: interrupt (FIFO) > normal (FIFO) > idle-first (LIFO) > idle (FIFO)


def can_pass(priority: Priority, *, idle: bool, blocked: bool, paused: bool) -> bool:
    """Return whether messages of a priority may be delivered to an agent in this state.

    Paused or blocked: only interrupts. Otherwise normal messages always, and the two idle priorities if idle.
    """
    if priority is Priority.INTERRUPT:
        return True
    if paused or blocked:
        return False
    return priority is Priority.NORMAL or idle


class Queue:
    """Waiting messages in the order in which they go.

    Level-triggered: adding a message triggers nothing; a call returns the messages that may pass now.
    """

    def __init__(self) -> None:
        self._line: list[tuple[str, int]] = []
        self.is_paused = False

    def __len__(self) -> int:
        return len(self._line)

    def add(self, seq: int, priority: Priority) -> None:
        """Add one message in the order of its priority."""
        insort(self._line, (mail_key("", priority, seq), seq))

    def next(self, *, idle: bool, blocked: bool) -> int | None:
        """Remove and return the first message that may pass, or None."""
        for index, (key, seq) in enumerate(self._line):
            if can_pass(priority_of_key(key), idle=idle, blocked=blocked, paused=self.is_paused):
                del self._line[index]
                return seq
        return None

    def take(self, limit: int, *, idle: bool, blocked: bool) -> list[int]:
        """Remove and return up to `limit` messages that may pass, in order."""
        taken: list[int] = []
        while len(taken) < limit and (seq := self.next(idle=idle, blocked=blocked)) is not None:
            taken.append(seq)
        return taken


# --------------------
# The gate that follows from the state of an agent, for readers to which messages are pushed.

_AT_WORK: Final[frozenset[str]] = frozenset({AgentState.STARTING, AgentState.ACTIVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGate:
    """The state of an agent, as far as it decides which messages may go."""

    idle: bool
    blocked: bool
    paused: bool

    def can_pass(self, priority: Priority) -> bool:
        """Return whether messages of a priority may go now."""
        return can_pass(priority, idle=self.idle, blocked=self.blocked, paused=self.paused)


def gate_of_pushed(agent: Agent | None) -> StateGate:
    """Return the gate for a reader to which an agent's messages are pushed.

    An agent that never reported its state counts as idle, and so does a person. Otherwise their messages
    would wait indefinitely.
    """
    if agent is None:
        return StateGate(idle=True, blocked=False, paused=False)
    is_blocked = agent.state == AgentState.BLOCKED
    return StateGate(idle=agent.state not in _AT_WORK, blocked=is_blocked, paused=agent.paused)
