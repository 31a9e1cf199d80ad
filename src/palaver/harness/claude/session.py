"""A running session of Claude Code 2.1: the lines that wake it, and the file with its state. Pure."""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.harness.hooks import COMPACTING, THINKING, TOOL_USE, one_line
from palaver.protocol.agent_text import MessageLine, format_one_line
from palaver.protocol.events import AgentState
from palaver.protocol.message import INTENTS

# --------------------
# Lines for a monitor of Claude Code, and for a hook that wakes it.
#
# Claude Code cuts a line of a monitor after 500 characters, and lines that arrive together after 3,000. The
# output of a hook that wakes a session is not cut. Claude Code shows these lines to the session as a prompt
# and calls a hook for that prompt first, so the hook can add what was cut, and it proves that the lines
# arrived.
#
# Claude Code limits how often a monitor may write. Lines within 200 ms are one event. A monitor has ten
# events to begin with and one more every two seconds; an event above that is dropped silently, and a monitor
# that writes too much for 30 seconds is ended. `MonitorPace` counts the events and stays below the limit.

LIMIT_LINE: Final = 480
LIMIT_TOGETHER: Final = 2800
LIMIT_MESSAGES: Final = 10
"""More messages at once would leave too little room for each."""
EVENTS_AT_ONCE: Final = 8
"""Events that may follow each other without a pause. Claude Code takes ten."""
EVENT_EVERY_S: Final = 2.1
"""After this time one more event may go. Claude Code counts two seconds."""
LIMIT_WAKE: Final = 6000
"""Characters of all messages that wake a session at once. The hook of that prompt adds the rest."""

_NOTICE: Final = re.compile(
    r"<task-notification>(?:(?!</task-notification>).)*?<event>(?P<lines>.*?)</event>"
    r"|<task-notification>\s*<summary>[^<]*</summary>\s*</task-notification>\s*"
    r"<system-reminder>(?P<said>.*?)</system-reminder>",
    re.DOTALL,
)
_FRAME: Final = re.compile(r"<(?=\s*/?\s*(?:system-reminder|task-notification|event)\b)", re.IGNORECASE)
"""Tags that a message must not open or close: Claude Code uses them around the message."""
_SEQ: Final = re.compile(
    rf"^\[(?:(?:{'|'.join(INTENTS)})(?::[^\n]{{1,300}}?)?|thread:[^\n]{{1,300}}?|new message) #(\d{{1,18}})"
    r"(?::[A-Za-z0-9]+)?\] ",
    re.MULTILINE,
)


@dataclass(slots=True)
class MonitorPace:
    """The events that a monitor may still write. Times are seconds of the system's monotonic clock."""

    events: int = EVENTS_AT_ONCE
    since_s: float = 0.0
    """When the last event was added."""

    def wait_s(self, now_s: float) -> float:
        """Return how long the next event must wait; 0 means that it can go now."""
        self._refill(now_s)
        return 0.0 if self.events else max(0.0, self.since_s + EVENT_EVERY_S - now_s)

    def spend(self, now_s: float) -> None:
        """Count one event that goes now."""
        self._refill(now_s)
        self.events = max(0, self.events - 1)

    def _refill(self, now_s: float) -> None:
        if self.events >= EVENTS_AT_ONCE or not 0 <= now_s - self.since_s < EVENTS_AT_ONCE * EVENT_EVERY_S:
            self.events, self.since_s = EVENTS_AT_ONCE, now_s
            return
        more = int((now_s - self.since_s) / EVENT_EVERY_S)
        self.since_s += more * EVENT_EVERY_S
        self.events = min(EVENTS_AT_ONCE, self.events + more)


def monitor_lines(messages: Sequence[MessageLine]) -> list[tuple[str, bool]]:
    """Write messages as lines that are not cut, even together.

    Return with each whether it is the whole message.
    """
    limit = min(LIMIT_LINE, LIMIT_TOGETHER // max(1, len(messages)) - 1)
    return [format_one_line(message, limit) for message in messages]


def wake_lines(messages: Sequence[MessageLine]) -> list[tuple[str, bool]]:
    """Write messages as the lines that wake a session. Return with each whether it is the whole message.

    The caller writes a line before them, because Claude Code adds its own text before the first line.
    """
    limit = LIMIT_WAKE // max(1, len(messages))
    written = [format_one_line(message, limit) for message in messages]
    shown = [(text, _FRAME.sub(r"<\\", text), is_whole) for text, is_whole in written]
    return [(safe, is_whole and safe == text) for text, safe, is_whole in shown]


def seqs_in_notice(prompt: str) -> frozenset[int]:
    """Return the seqs of the messages whose lines a prompt shows; empty for any other prompt."""
    return frozenset(
        int(found[1])
        for notice in _NOTICE.finditer(prompt)
        for found in _SEQ.finditer(notice["lines"] or notice["said"] or "")
    )


# --------------------
# The state that a running Claude Code writes to its registry file.
#
# The file is `sessions/<pid>.json` in its folder. Its status is `idle`; `shell` (idle, but a child process
# such as a monitor runs); `busy`, also while only a sub-agent works; or `waiting`, with a reason. `claude
# agents --json` prints the same. Hooks report more and sooner, but no hook is called when the user stops a
# turn or rejects a tool. While it compacts its context the file says idle.

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
