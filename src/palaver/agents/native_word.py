"""What a native lane knows of its agent: what it does, what it asks, what can come through. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from palaver.agents.terminal.gates import Gate
from palaver.model.delivery import AgentState
from palaver.model.lines.program_ops import StatusOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What the agent does now."""

    state: AgentState
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


def running(word: Word) -> Word:
    """Give what is said of a program that runs: when a session of it is over, it may begin another."""
    return replace(word, state=AgentState.IDLE) if word.state is AgentState.EXITED else word


def status_of(word: Word, name: str = "") -> StatusOp:
    """Write what an agent does for the daemon; `name` is whose word it is, empty for who says it."""
    return StatusOp(
        name=name,
        state=word.state,
        detail=word.detail,
        tool=word.tool,
        command=word.command,
        file=word.file,
    )


@dataclass(frozen=True, slots=True)
class Level:
    """What can come through now; paused, only interrupts."""

    gate: Gate
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person is asked: what the harness calls it, and all that it says of it, exactly as it stands."""

    id: int | str
    session: str
    text: str = ""
    """In a few words."""
    tool: str = ""
    """Empty: it is answered at the terminal alone."""
    given: Mapping[str, object] = field(default_factory=dict)
    call: tuple[str, str] = ("", "")
    """The call of a tool that it is about, where the harness names one and says nothing more of it."""

    @property
    def request(self) -> str:
        """What the bus knows it by."""
        return str(self.id)

    @property
    def is_answerable(self) -> bool:
        """Whether a person can say yes or no to it from elsewhere."""
        return bool(self.tool)
