"""Read the state that a running Claude Code 2.1 writes to its registry file. Pure.

The file is `sessions/<pid>.json` in its folder. Its status is `idle`; `shell` (idle, but a child process such
as a monitor runs); `busy`, also while only a sub-agent works; or `waiting`, with a reason. `claude agents
--json` prints the same. Hooks report more and sooner, but no hook is called when the user stops a turn or
rejects a tool. While it compacts its context the file says idle.
"""

import enum
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.harness.hooks import COMPACTING, THINKING, TOOL_USE, one_line
from palaver.protocol.events import AgentState

LOOKED_UP: Final = frozenset({"claude"})
"""Harnesses that have such a file."""
LIMIT_BYTES: Final = 64 * 1024
LIMIT_COMPACTING_MS: Final = 300_000
"""Milliseconds. No compaction takes this long: the user must have stopped it."""
_FOLDER: Final = "/projects/"
_QUESTION: Final = "a question"


class Rest(enum.Enum):
    """The states in the file."""

    RESTING = "resting"
    BUSY = "busy"
    WAITING = "waiting"


_WORDS: Final = {"idle": Rest.RESTING, "shell": Rest.RESTING, "busy": Rest.BUSY, "waiting": Rest.WAITING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The content of the file at one time."""

    rest: Rest
    waits_for: str = ""


class _RegistryFile(msgspec.Struct, rename="camel"):
    pid: int
    status: str = ""
    waiting_for: str | None = None


def registry_path(transcript: str, home: str, pid: int) -> str:
    """Return the path of a process's file: next to its transcripts, else in the account's folder."""
    folder, found, _ = transcript.rpartition(_FOLDER)
    return f"{folder if found else f'{home}/.claude'}/sessions/{pid}.json"


def read_registered(content: bytes, pid: int) -> Registered | None:
    """Read the file of a process; None if its status is unknown or it is of another process."""
    try:
        found = msgspec.json.decode(content, type=_RegistryFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    rest = _WORDS.get(found.status)
    if rest is None or found.pid != pid:
        return None
    return Registered(rest=rest, waits_for=one_line(found.waiting_for or ""))


def is_doubtful(state: str) -> bool:
    """Whether a state can end without a hook that reports it."""
    return state in (AgentState.ACTIVE, AgentState.BLOCKED)


def corrected(
    state: str, detail: str, since_ms: int, found: Registered, *, has_subagents: bool = False
) -> tuple[AgentState, str] | None:
    """Return the state and detail from the file if those from the hooks are over; None if they may hold.

    `since_ms` is the time since the last other report. The caller must not call this for an agent that waits
    for a usage limit to reset. With `has_subagents`, the busy process may be a sub-agent.
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
