"""What a hook says, in one form for all harnesses, and the words that go into it. Pure."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from palaver.model.delivery import AgentState
from palaver.model.visible import exact

LIMIT_DETAIL: Final = 200
"""Characters of what an agent is doing, or is asked."""
LIMIT_COMMAND: Final = 1000

# What may not stand in a text of ours, and line ends: a detail is one line.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class Step(enum.Enum):
    """Where in a conversation a hook stands, seen from the model.

    Between two requests to the model stand all results of the tools that it called, one by one, and then,
    where the harness says so, all of them together.
    """

    START = "start"
    """A session begins, or goes on after its context was made shorter."""
    PROMPT = "prompt"
    """Something is put to the model: a request follows that holds it."""
    CALL = "call"
    """The model has answered and calls a tool. A tool of the same answer may have run before."""
    RESULT = "result"
    """A tool has ended. Others of the same answer may still run."""
    BATCH = "batch"
    """Every tool of an answer has ended: a request follows that holds the results."""
    TURN_END = "turn_end"
    """The model has answered and calls nothing more."""
    END = "end"
    """The session is over."""
    ASIDE = "aside"
    """All else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookNews:
    """One hook. What it does not say is empty."""

    event: str
    step: Step = Step.ASIDE
    session: str = ""
    source: str = ""
    """Why a session starts: `startup`, `resume`, `clear`, `compact`."""
    is_deaf: bool = False
    """A session starts here and takes no text: what it must know is given with its first prompt."""
    state: AgentState | None = None
    """None: it says nothing about what the agent is doing."""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""
    """The file that is being changed; one that is only read is not named here."""
    transcript: str = ""
    cwd: str = ""
    agent_id: str = ""
    """Set inside a sub-agent: the conversation is its own, not that of the session."""
    agent_type: str = ""
    delegates: int = 0
    """1 where a tool begins that is a sub-agent whose own hooks carry no mark, -1 where it ends."""
    is_unmarked: bool = False
    """It may be a hook of such a sub-agent: nothing in it says whose it is."""
    call: str = ""
    """The harness's id of the call of a tool that this is about."""
    is_over: bool = False
    """A sub-agent ends with this, unless it is told to go on."""
    is_alone: bool = False
    """No sub-agent of the session runs any more."""
    prompt: str = ""
    is_new: bool = False
    """The session was nobody before this, and is to be told its name."""
    is_woken: bool = False
    """Something of the harness comes up with this session that can wake it."""
    permission: Mapping[str, object] | None = None
    """What a person is asked to allow."""
    result_of: Mapping[str, object] | None = None
    """The tool that has ended, and its input: what it was asked leave for is settled."""
    is_failed: bool = False
    """The turn has ended without an answer: what was put to the model in it may be gone."""
    stop_active: bool = False
    """The turn goes on only because a hook wanted it."""
    is_usage_limit: bool = False
    resets: str = ""
    """When the allowance is there again, in the harness's words."""


def one_line(text: str, limit: int = LIMIT_DETAIL) -> str:
    """Give a text as it may stand in an event: one line, not long, and nothing in it that is not seen."""
    shown = exact(_UNFIT.sub(" ", text)).strip()
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def text_in(data: Mapping[str, object], *names: str) -> str:
    """Give the first of some members that is a text and not empty."""
    for name in names:
        if isinstance(value := data.get(name), str) and value:
            return value
    return ""


def as_map(value: object) -> Mapping[str, object]:
    """Give an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Mapping[str, object]]:
    """Give the objects of a list; none for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_number(value: object) -> int:
    """Give a whole number; 0 for anything else."""
    return value if isinstance(value, int) else 0
