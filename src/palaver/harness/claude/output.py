"""Read the output of Claude Code 2.1: its screen in a terminal, and its transcript. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from palaver.harness.base import USAGE_LIMITS, Interrupt, KeyPress, Profile, TitleRule, View
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
from palaver.protocol.events import AgentState
from palaver.protocol.transcript import ToolCall, TranscriptEntry

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
