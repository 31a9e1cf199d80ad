"""What a running Claude Code says of itself in a file of its own, as its version 2.1 writes it. Pure.

`sessions/<pid>.json` in its folder: `idle`, or `shell` where something of its own runs beside it, such as a
monitor; `busy`, also while only a sub-agent works; `waiting`, and for what. `claude agents --json` prints the
same. Hooks say more and sooner, but none comes when a person stops a turn or says no. While it makes its
context shorter the file says idle.
"""

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.harness.hook_news import one_line
from palaver.harness.hook_states import COMPACTING, THINKING, TOOL_USE
from palaver.model.delivery import AgentState

LOOKED_UP: Final = frozenset({"claude"})
"""Harnesses that have such a file."""
LIMIT_BYTES: Final = 64 * 1024
LIMIT_COMPACTING_MS: Final = 300_000
"""Nobody makes a context shorter for so long: somebody stopped it."""
_FOLDER: Final = "/projects/"
_QUESTION: Final = "a question"


class Rest(enum.Enum):
    """What such a file can say."""

    RESTING = "resting"
    BUSY = "busy"
    WAITING = "waiting"


_WORDS: Final = {"idle": Rest.RESTING, "shell": Rest.RESTING, "busy": Rest.BUSY, "waiting": Rest.WAITING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One look at the file."""

    rest: Rest
    waits_for: str = ""


class _File(msgspec.Struct, rename="camel"):
    pid: int
    status: str = ""
    waiting_for: str | None = None


def registry_path(transcript: str, home: str, pid: int) -> str:
    """Say where the file of a process is: beside its transcripts, else in the account's own folder."""
    folder, found, _ = transcript.rpartition(_FOLDER)
    return f"{folder if found else f'{home}/.claude'}/sessions/{pid}.json"


def read_registered(content: bytes, pid: int) -> Registered | None:
    """Read the file of a process; None when it says nothing that is known."""
    try:
        found = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    rest = _WORDS.get(found.status)
    if rest is None or found.pid != pid:
        return None
    return Registered(rest=rest, waits_for=one_line(found.waiting_for or ""))


def is_doubtful(state: str) -> bool:
    """Whether a state can be over without a hook that says so."""
    return state in (AgentState.ACTIVE, AgentState.BLOCKED)


def corrected(
    state: str, detail: str, since_ms: int, found: Registered, *, has_subagents: bool = False
) -> tuple[AgentState, str] | None:
    """Give state and detail where the file shows that those of the hooks are over; None when they may hold.

    `since_ms` is for how long nothing else was said. Whoever waits for more allowance is left alone before.
    `has_subagents`: it may be one of them that is busy.
    """
    if found.rest is Rest.RESTING:
        is_made_shorter = detail == COMPACTING and since_ms < LIMIT_COMPACTING_MS
        return None if state == AgentState.IDLE or is_made_shorter else (AgentState.IDLE, "")
    if found.rest is Rest.WAITING:
        return None if state == AgentState.BLOCKED else (AgentState.BLOCKED, found.waits_for or _QUESTION)
    if state == AgentState.BLOCKED:
        return AgentState.ACTIVE, TOOL_USE
    is_at_work = state == AgentState.IDLE and not has_subagents
    return (AgentState.ACTIVE, THINKING) if is_at_work else None
