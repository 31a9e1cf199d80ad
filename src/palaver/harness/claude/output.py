"""Read and write the texts of Claude Code: notices, registry file, screen and transcript. Pure."""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from palaver.harness.base import USAGE_LIMITS, Interrupt, KeyPress, Profile, TitleRule, View
from palaver.harness.hooks import COMPACTING, THINKING, TOOL_USE, one_line
from palaver.harness.transcripts import (
    ASSISTANT,
    SYSTEM,
    USER,
    Gathering,
    TranscriptFolder,
    items,
    joined,
    mapping,
    read_object,
    texts_in,
    time_ms,
    word,
)
from palaver.protocol.agent_text import MessageLine, format_one_line
from palaver.protocol.events import AgentState
from palaver.protocol.message import INTENTS
from palaver.protocol.transcript import ToolCall, TranscriptEntry

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
"""Events that may follow each other without a pause. Claude Code takes ten; a dropped event is lost."""
EVENT_EVERY_S: Final = 2.1
"""After this time one more event may go. Claude Code counts two seconds."""
LIMIT_WAKE: Final = 6000
"""Characters of all messages that wake a session at once. The hook of that prompt adds the rest."""

# No match may span two notices: a text of the user between them is not a line of the monitor.
_NOTICE: Final = re.compile(
    r"<task-notification>(?:(?!</task-notification>).)*?<event>(?P<lines>.*?)</event>"
    r"|<task-notification>\s*<summary>[^<]*</summary>\s*</task-notification>\s*"
    r"<system-reminder>(?P<reminder>.*?)</system-reminder>",
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
        # With all events available, the time until now is dropped: it must not allow more than this many in a
        # row.
        if self.events >= EVENTS_AT_ONCE or not 0 <= now_s - self.since_s < EVENTS_AT_ONCE * EVENT_EVERY_S:
            self.events, self.since_s = EVENTS_AT_ONCE, now_s
            return
        # Only whole intervals are used up, so that the rest of one counts for the next event.
        more = int((now_s - self.since_s) / EVENT_EVERY_S)
        self.since_s += more * EVENT_EVERY_S
        self.events = min(EVENTS_AT_ONCE, self.events + more)


def monitor_lines(messages: Sequence[MessageLine]) -> list[tuple[str, bool]]:
    """Write messages as lines that are not cut, even together.

    Return with each whether it is the whole message.
    """
    # One character less for each, because the line ends count too.
    limit = min(LIMIT_LINE, LIMIT_TOGETHER // max(1, len(messages)) - 1)
    return [format_one_line(message, limit) for message in messages]


def wake_lines(messages: Sequence[MessageLine]) -> list[tuple[str, bool]]:
    """Write messages as the lines that wake a session. Return with each whether it is the whole message.

    The caller writes a line before them, because Claude Code adds its own text before the first line.
    """
    limit = LIMIT_WAKE // max(1, len(messages))
    written = [format_one_line(message, limit) for message in messages]
    shown = [(text, _FRAME.sub(r"<\\", text), is_whole) for text, is_whole in written]
    # A message that was changed is not whole: the hook of that prompt then adds the original text.
    return [(safe, is_whole and safe == text) for text, safe, is_whole in shown]


def seqs_in_notice(prompt: str) -> frozenset[int]:
    """Return the seqs of the messages whose lines a prompt shows; empty for any other prompt.

    Only lines inside the tags of Claude Code count: a person may paste such a line into a prompt.
    """
    return frozenset(
        int(found[1])
        for notice in _NOTICE.finditer(prompt)
        for found in _SEQ.finditer(notice["lines"] or notice["reminder"] or "")
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
    # Pids are reused: a file that a killed process left may be in the place of a new one.
    if rest is None or found.pid != pid:
        return None
    return Registered(rest=rest, waits_for=one_line(found.waiting_for or ""))


def can_end_unreported(state: str) -> bool:
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
        # During a compaction the file says idle too: the hook is right until no compaction can last.
        is_made_shorter = detail == COMPACTING and since_ms < LIMIT_COMPACTING_MS
        return None if state == AgentState.IDLE or is_made_shorter else (AgentState.IDLE, "")
    if found.rest is Rest.WAITING:
        return None if state == AgentState.BLOCKED else (AgentState.BLOCKED, found.waits_for or _QUESTION)
    # The dialog was answered at the terminal, which no hook reports: the tool runs.
    if state == AgentState.BLOCKED:
        return AgentState.ACTIVE, TOOL_USE
    is_at_work = state == AgentState.IDLE and not has_subagents
    return (AgentState.ACTIVE, THINKING) if is_at_work else None


# --------------------
# The screen, as version 2.1 draws it, and the profile for its terminal.
#
# The composer is between two rules, after `❯`. A dialog replaces it. While busy, the last rows show `esc to
# interrupt` (unless the user has a custom status line); Claude Code also reports its state by OSC 7501 once
# its probe was answered. Escape interrupts it; a prompt that had no reply yet then returns to the composer as
# a draft. By OSC 7501 it also reports `working` while only sub-agents work; it lists those in its last rows.

_RULE: Final = re.compile(r"─{8,}")
_PROMPT: Final = re.compile(r"(?P<mode>[❯>!#])(?:\s|$)")


def read_composer(view: View) -> str | None:
    """Return the text between the two rules around the cursor; None if there is no composer."""
    top = view.row - 1
    while top >= 0 and not _RULE.match(view.lines[top]):
        top -= 1
    bottom = view.row + 1
    while bottom < len(view.lines) and not _RULE.match(view.lines[bottom]):
        bottom += 1
    if top < 0 or bottom >= len(view.lines) or _RULE.match(view.lines[view.row]):
        return None
    # A frame without the sign of the composer is a dialog or a part of the conversation.
    prompt = _PROMPT.match(view.lines[top + 1])
    if prompt is None:
        return None
    rows = [row[2:] for row in view.bright[top + 1 : bottom]]
    # In the shell and memory modes Enter does something else, so the composer never counts as empty there.
    return "\n".join(rows) if prompt["mode"] in "❯>" else "\n".join((prompt["mode"], *rows))


PROFILE: Final = Profile(
    name="claude",
    opens_native=True,
    read_composer=read_composer,
    dialogs=(
        re.compile(r"^ +❯ \d+\. ", re.MULTILINE),
        re.compile(r"^ (?:Esc to cancel|Enter to (?:confirm|select))\b.*\Z", re.MULTILINE),
    ),
    busy=(re.compile(r"\besc to interrupt\b[^\n]*\Z"),),
    own_work=(
        # Only below the last rule: the conversation above it may contain the same words.
        re.compile(r"─{8}(?!.*─{8}).*\besc to interrupt\b", re.DOTALL),
        re.compile(r"^[·✢✳✶✻✽*] \S[^\n]*…", re.MULTILINE),
    ),
    compacting=(re.compile(r"^[·✢✳✶✻✽*] Compacting\b", re.MULTILINE),),
    usage_limits=USAGE_LIMITS,
    titles=(
        TitleRule(pattern=re.compile(r"^[◐◑◒◓\u2800-\u28ff] "), state=AgentState.ACTIVE),
        TitleRule(pattern=re.compile(r"^✳ "), state=AgentState.IDLE),
    ),
    has_paste=True,
    folded_paste=re.compile(r"\[Pasted text #\d+(?: \+\d+ lines)?\]"),
    interrupt=Interrupt(keys=b"\x1b"),
    quit=(KeyPress(keys=b"\x03", wait_ms=300), KeyPress(keys=b"\x03", wait_ms=5_000)),
)


# --------------------
# The transcript: JSON lines, one file per session.
#
# Each block of a reply is one line; lines with the same message id are one turn. Branches that a person left
# by going back stay in the file and are read in file order. Lines of sub-agents are skipped, unless the file
# is that of a sub-agent, and so are Claude Code's internal lines.

_BY_MACHINE: Final = re.compile(r"\s*<(?:local-command|bash-|command-|task-notification|system-reminder)")
"""How a text begins that has the user role but was written by a program."""


class ClaudeTranscript:
    """Reads the lines of one session."""

    def entries(self, lines: Iterable[bytes]) -> Iterator[TranscriptEntry]:
        gathering = Gathering()
        is_of_subagent: bool | None = None
        for line in lines:
            whole = read_object(line)
            if whole is None:
                continue
            is_aside = whole.get("isSidechain") is True
            # The first line that has this field shows whether the whole file is that of a sub-agent.
            if is_of_subagent is None and "isSidechain" in whole:
                is_of_subagent = is_aside
            if not is_aside or is_of_subagent:
                yield from _read(gathering, whole)
        yield from gathering.rest()


def _read(gathering: Gathering, whole: Mapping[str, object]) -> Iterator[TranscriptEntry]:
    kind, ts = whole.get("type"), time_ms(whole.get("timestamp"))
    message = mapping(whole.get("message"))
    if kind == ASSISTANT and message:
        yield from _read_assistant(gathering, whole, message, ts)
    elif kind == USER and message:
        yield from _read_user(gathering, whole, message, ts)
    elif kind == SYSTEM and (text := word(whole.get("content"))):
        yield from gathering.add_text(SYSTEM, text, whole, ts)
    elif kind == "attachment":
        role, text = _read_attachment(mapping(whole.get("attachment")))
        if text:
            yield from gathering.add_text(role, text, whole, ts)


def _read_assistant(
    gathering: Gathering, whole: Mapping[str, object], message: Mapping[str, object], ts: int
) -> Iterator[TranscriptEntry]:
    content = message.get("content")
    text = texts_in(content)
    # Claude Code writes its own errors with the role of the model.
    if whole.get("isApiErrorMessage") is True:
        yield from gathering.add_text(SYSTEM, text, whole, ts)
        return
    blocks = [block for block in map(mapping, items(content)) if block.get("type") == "tool_use"]
    if not text and not blocks:
        return  # only its thinking, or nothing yet
    calls = [
        (word(block.get("id")), ToolCall(name=word(block.get("name")), input=block.get("input")))
        for block in blocks
    ]
    key = word(message.get("id")) or word(whole.get("uuid"))
    yield from gathering.assistant(key, text, calls, whole, ts)


def _read_user(
    gathering: Gathering, whole: Mapping[str, object], message: Mapping[str, object], ts: int
) -> Iterator[TranscriptEntry]:
    content = message.get("content")
    # Results first: a text of the user ends the turn that has their calls, and a result after that would be
    # an entry without its call.
    for block in map(mapping, items(content)):
        if block.get("type") == "tool_result":
            yield from gathering.answered(
                word(block.get("tool_use_id")),
                texts_in(block.get("content")),
                is_error=block.get("is_error") is True,
                whole=whole,
                ts=ts,
            )
    if text := texts_in(content):
        is_ours = whole.get("isMeta") is True or whole.get("isCompactSummary") is True
        role = SYSTEM if is_ours or _BY_MACHINE.match(text) else USER
        yield from gathering.add_text(role, text, whole, ts)


def _read_attachment(attachment: Mapping[str, object]) -> tuple[str, str]:
    """Return role and text of an attachment. Most attachments are not part of the conversation."""
    kind = attachment.get("type")
    if kind == "queued_command":
        is_prompt = (
            attachment.get("commandMode", "prompt") == "prompt" and attachment.get("isMeta") is not True
        )
        text = texts_in(attachment.get("prompt"))
        return USER if is_prompt and not _BY_MACHINE.match(text) else SYSTEM, text
    if kind == "hook_additional_context":
        return SYSTEM, joined(map(word, items(attachment.get("content"))))
    return SYSTEM, ""


def claude_folders(session: str, environment: Mapping[str, str]) -> tuple[TranscriptFolder, ...]:
    """Return where the transcript may be, most likely first. A sub-agent's is below that of its parent."""
    patterns = (f"*/{session}.jsonl", f"*/*/subagents/agent-{session}.jsonl")
    folders = _folders(environment)
    return tuple(
        TranscriptFolder(f"{folder}/projects", pattern) for pattern in patterns for folder in folders
    )


def claude_registry(pid: int, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files in which a running Claude Code names its session, which changes after `/clear`."""
    return tuple(f"{folder}/sessions/{pid}.json" for folder in _folders(environment))


def session_in_registry(content: bytes, pid: int) -> str:
    """Read the session id from such a file; empty if it is not there."""
    found = read_object(content) or {}
    return word(found.get("sessionId")) if found.get("pid") == pid else ""


def _folders(environment: Mapping[str, str]) -> list[str]:
    home = environment.get("HOME", "")
    return [
        folder
        for folder in (environment.get("CLAUDE_CONFIG_DIR", ""), f"{home}/.claude" if home else "")
        if folder
    ]
