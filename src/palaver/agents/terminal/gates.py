"""Whether a key may be written to a terminal now. Pure: the same look and facts give the same answer.

A gate opens on positive proof only. What is not known is closed, and whoever asks must write in the same
step: an answer of a moment ago is worth nothing.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from palaver.agents.terminal.look import Composer, Look
from palaver.agents.terminal.shells import Process, is_shell
from palaver.harness.prompt import Prompt
from palaver.model.delivery import AgentState

HUMAN_QUIET_MS: Final = 500
"""How long a person must have left the keyboard alone."""
HUMAN_SHOWN_MS: Final = 5_000
"""How long a person's key may take to show: until then nobody knows what it did."""


REASONS: Final = (
    *("exited", "gone", "shell", "foreground", "tool"),
    *("secret", "unreadable", "dialog", "compacting", "starting", "deaf", "passthrough", "human"),
    *("draft", "composer", "prompt"),
)
"""Every word that a closed gate can say, the strongest first."""

PASSING: Final = frozenset({"unreadable", "composer", "deaf", "human"})
"""Reasons that often pass within a moment: a frame half drawn, a key just pressed."""


class Foreground(enum.StrEnum):
    """Who reads what is written to the terminal."""

    AGENT = "agent"
    SHELL = "shell"
    OTHER = "other"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the screen cannot show, as it is in this very step."""

    now_ms: int
    foreground: Foreground
    has_tool: bool = False
    """A process that is not the agent waits for what is typed: a tool that the agent started."""
    is_unproven: bool = False
    """No process is known as the agent yet, and one waits that the started program has started."""
    is_passthrough: bool = False
    """A person has taken the keyboard."""
    is_secret: bool = False
    """The terminal takes a line and shows nothing of it: somebody is asked for a secret."""
    has_unread: bool = False
    """What was typed before waits in the terminal: the program has not read it."""
    is_reading: bool = True
    """False when it is sure that no process waits for what is typed."""
    is_waiting: bool = False
    """True when it is sure that the agent waits for what is typed."""
    is_raw: bool = False
    """The program takes keys one by one."""
    edits_lines: bool = False
    """The agent has a library loaded that reads whole lines although it takes keys one by one (readline)."""
    takes_commands: bool = False
    """An editor, a pager or the like is in front, with no composer that we know: each key is a command."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The answer; `reason` is one word and empty when open."""

    is_open: bool
    reason: str = ""


OPEN: Final = Gate(is_open=True)


def check(look: Look, facts: Facts, *, ours: bool = False, needs_reader: bool = True) -> Gate:
    """Say whether text or Enter may be written. `ours`: the draft in the composer is our own.

    `needs_reader`: false for keys that the terminal itself understands, such as Ctrl-C. When several of the
    `REASONS` hold, the first is given.
    """
    closed = (
        _check_process(look, facts)
        or _check_screen(look, facts, needs_reader=needs_reader)
        or _check_person(look, facts)
        or _check_composer(look, facts, ours=ours)
        or _check_prompt(look, facts, ours=ours, needs_reader=needs_reader)
    )
    return Gate(is_open=False, reason=closed) if closed else OPEN


def check_raw(look: Look, facts: Facts) -> Gate:
    """Say whether a person's own bytes may be written: the agent's process must be there to read them."""
    closed = _check_process(look, facts)
    return Gate(is_open=False, reason=closed) if closed else OPEN


def _check_process(look: Look, facts: Facts) -> str:
    if look.state is AgentState.EXITED and look.reason != "session_end":
        return "exited"
    match facts.foreground:
        case Foreground.AGENT:
            return ""
        case Foreground.SHELL:
            return "shell"
        case Foreground.GONE:
            return "gone"
        case Foreground.OTHER:
            return "foreground"


def _check_screen(look: Look, facts: Facts, *, needs_reader: bool) -> str:
    if facts.has_tool or (facts.is_unproven and not look.is_named_prompt):
        return "tool"
    if facts.is_secret:
        return "secret"
    if not look.is_readable:
        return "unreadable"
    if look.has_dialog or look.state is AgentState.BLOCKED:
        return "dialog"
    if look.reason == "compacting":
        return "compacting"
    if look.state is AgentState.STARTING:
        return "starting"
    if look.state is AgentState.EXITED:
        return "exited"
    if facts.has_unread or (needs_reader and not facts.is_reading):
        return "deaf"
    # One that was quiet from its first moment on counts as idle, and still has shown nothing.
    return "" if look.has_started else "starting"


def _check_person(look: Look, facts: Facts) -> str:
    if facts.is_passthrough:
        return "passthrough"
    if look.human_key_ms is None:
        return ""
    since_ms = facts.now_ms - look.human_key_ms
    is_shown = look.output_ms is not None and look.output_ms >= look.human_key_ms
    return "human" if since_ms < (HUMAN_QUIET_MS if is_shown else HUMAN_SHOWN_MS) else ""


def _check_composer(look: Look, facts: Facts, *, ours: bool) -> str:
    if facts.takes_commands:
        return "composer"
    if look.composer is Composer.EMPTY or (ours and look.composer is Composer.DRAFT):
        return ""
    return "draft" if look.composer is Composer.DRAFT else "composer"


def _check_prompt(look: Look, facts: Facts, *, ours: bool, needs_reader: bool) -> str:
    """Ask a program without a composer rule for proof that it takes a message at this line."""
    if look.has_composer_rule:
        return ""
    if facts.is_raw and not look.has_paste_mode and not facts.edits_lines:
        return "prompt"  # each key may be an answer
    if not needs_reader:
        return ""
    # The terminal hands on whole lines: bracketed paste was left on by another program.
    has_paste = look.has_paste_mode and facts.is_raw
    is_proven = look.prompt is Prompt.KNOWN or (has_paste and look.prompt is Prompt.PLAIN)
    # Once pasted, the line before the cursor may be all ours, wrapped as the program likes.
    is_ours = ours and (has_paste or not look.prompt_line)
    return "" if is_proven or is_ours else "prompt"


def judge_foreground(group: int, foreground_group: int | None, members: Iterable[Process]) -> Foreground:
    """Say who reads the terminal.

    `group` is the process group that was started, `foreground_group` the terminal's (None when it has none),
    `members` every live process in the foreground group. A group in which a shell lives is a shell's: it may
    be the one that reads.
    """
    processes = tuple(members)
    if foreground_group is None or not processes:
        return Foreground.GONE
    if any(map(is_shell, processes)):
        return Foreground.SHELL
    return Foreground.AGENT if foreground_group == group else Foreground.OTHER
