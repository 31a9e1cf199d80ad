"""What a native lane knows of its agent: what it does now, and what can come through. Values only."""

from dataclasses import dataclass

from palaver.agents.terminal.gates import Gate
from palaver.model.delivery import AgentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What the agent does now."""

    state: AgentState
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """What can come through now; paused, only interrupts."""

    gate: Gate
    is_paused: bool = False
