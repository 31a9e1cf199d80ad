"""The knowledge of a native lane about its agent: status, open requests and gate. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from palaver.agents.terminal.gates import Gate
from palaver.model.delivery import AgentState
from palaver.model.lines.program_ops import StatusOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The status of an agent."""

    state: AgentState
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""


def running(word: Word) -> Word:
    """Return the status of a running program: an ended session counts as idle, as the next one may begin."""
    return replace(word, state=AgentState.IDLE) if word.state is AgentState.EXITED else word


def status_of(word: Word, name: str = "") -> StatusOp:
    """Return the status request for the daemon; `name` is the sub-agent, empty for the agent itself."""
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
    """Whether a message can be delivered now. If paused, only interrupts can."""

    gate: Gate
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An open request to the user: its id in the harness, and its content exactly as the harness sent it."""

    id: int | str
    session: str
    text: str = ""
    """A short description."""
    tool: str = ""
    """The name of the tool; empty if the request can be answered only at the terminal."""
    given: Mapping[str, object] = field(default_factory=dict)
    call: tuple[str, str] = ("", "")
    """The message and call ids of a tool call, if the harness refers to one without describing it."""

    @property
    def request(self) -> str:
        """The id of the request on the bus."""
        return str(self.id)

    @property
    def is_answerable(self) -> bool:
        """Whether the user can decide it remotely."""
        return bool(self.tool)
