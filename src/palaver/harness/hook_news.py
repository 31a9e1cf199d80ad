"""The content of a hook in one form for all harnesses, and functions to read it. Pure."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from palaver.model.delivery import AgentState
from palaver.model.visible import exact

LIMIT_DETAIL: Final = 200
"""Characters of a detail, which describes what an agent is doing or is asked."""
LIMIT_COMMAND: Final = 1000

# Characters that must not be in an event's text, and line ends: a detail is one line.
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class Step(enum.Enum):
    """The position of a hook in a conversation, seen from the model.

    Between two requests to the model come the results of all tools that it called, one by one, and then, if
    the harness has such a hook, all of them together.
    """

    START = "start"
    """A session begins, or continues after its context was compacted."""
    PROMPT = "prompt"
    """The model receives a prompt: a request follows that contains it."""
    CALL = "call"
    """The model has replied and calls a tool. Another tool of the same reply may have run before."""
    RESULT = "result"
    """A tool has ended. Others of the same reply may still run."""
    BATCH = "batch"
    """Every tool of a reply has ended: a request follows that contains the results."""
    TURN_END = "turn_end"
    """The model has replied and calls no more tools."""
    END = "end"
    """The session has ended."""
    ASIDE = "aside"
    """Any other hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookNews:
    """The content of one hook. Fields without information are empty."""

    event: str
    step: Step = Step.ASIDE
    session: str = ""
    source: str = ""
    """Why a session starts: `startup`, `resume`, `clear`, `compact`."""
    is_deaf: bool = False
    """A session starts here and takes no text: its instructions are added to its first prompt."""
    state: AgentState | None = None
    """None: the hook does not show what the agent is doing."""
    detail: str = ""
    tool: str = ""
    command: str = ""
    file: str = ""
    """The file that is being changed; a file that is only read is not named here."""
    transcript: str = ""
    cwd: str = ""
    agent_id: str = ""
    """Set inside a sub-agent: the conversation is the sub-agent's, not the session's."""
    agent_type: str = ""
    delegates: int = 0
    """1 when a tool starts that is a sub-agent whose own hooks carry no mark, -1 when it ends."""
    is_unmarked: bool = False
    """It may be a hook of such a sub-agent: nothing in it shows whose hook it is."""
    call: str = ""
    """The harness's id of the tool call."""
    is_over: bool = False
    """A sub-agent ends with this hook, unless the reply makes it continue."""
    is_alone: bool = False
    """No sub-agent of the session runs any more."""
    prompt: str = ""
    is_new: bool = False
    """The session had no agent before this hook, and must receive its name."""
    is_woken: bool = False
    """The harness starts a process with this session that can wake it."""
    permission: Mapping[str, object] | None = None
    """The tool use that a person is asked to allow."""
    result_of: Mapping[str, object] | None = None
    """The tool that has ended, with its input: a permission request for it is settled."""
    is_failed: bool = False
    """The turn has ended without a reply, and the harness has removed its last prompt from the conversation.

    Other texts that were added in the turn may be lost."""
    can_overlap: bool = False
    """The harness may work on a second prompt at the same time, and then does not report the end of this."""
    stop_active: bool = False
    """The turn goes on only because a hook wanted it."""
    is_usage_limit: bool = False
    resets: str = ""
    """When the usage limit resets, in the harness's words."""


def one_line(text: str, limit: int = LIMIT_DETAIL) -> str:
    """Return a text as it may be in an event: one short line without invisible characters."""
    shown = exact(_UNFIT.sub(" ", text)).strip()
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def text_in(data: Mapping[str, object], *names: str) -> str:
    """Return the first of the named members that is a non-empty string; empty if there is no such member."""
    for name in names:
        if isinstance(value := data.get(name), str) and value:
            return value
    return ""


def as_map(value: object) -> Mapping[str, object]:
    """Return an object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Mapping[str, object]]:
    """Return the objects of a list; an empty list for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_number(value: object) -> int:
    """Return a whole number; 0 for any other value."""
    return value if isinstance(value, int) else 0
