"""Decide whether a key may be written to a terminal now. Pure: the result depends only on the arguments.

A gate opens only on positive proof; if something is unknown, it stays closed. The caller must write in the
same step, without awaiting in between, because the result is valid only at that instant.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from palaver.harness.base import OPEN, Gate, Prompt
from palaver.protocol.events import AgentState
from palaver.terminal.keyboard import HUMAN_QUIET_MS, HUMAN_SHOWN_MS
from palaver.terminal.screen import Composer, ScreenState
from palaver.terminal.shells import ProgramNames, is_shell

REASONS: Final = (
    *("exited", "gone", "shell", "foreground", "tool"),
    *("secret", "unreadable", "dialog", "compacting", "starting", "deaf", "passthrough", "human"),
    *("draft", "composer", "prompt"),
)
"""Every reason of a closed gate. If several apply, the first one is reported."""

PASSING: Final = frozenset({"unreadable", "composer", "deaf", "human"})
"""Reasons that often go away within a second: a half-drawn frame, a key just pressed."""


class Foreground(enum.StrEnum):
    """The kind of program that reads input from the terminal."""

    AGENT = "agent"
    SHELL = "shell"
    OTHER = "other"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """Facts that the screen does not show, valid only in the step in which they were read."""

    now_ms: int
    foreground: Foreground
    has_tool: bool = False
    """A process other than the agent waits for input: a tool that the agent started."""
    is_unproven: bool = False
    """No process is known to be the agent yet, and a child of the started program waits for input."""
    is_passthrough: bool = False
    """A person has taken the keyboard."""
    is_secret: bool = False
    """The terminal reads a line without echo: the program asks for a secret."""
    has_unread: bool = False
    """Earlier input is still in the terminal: the program has not read it."""
    is_reading: bool = True
    """False if it is certain that no process waits for input."""
    is_waiting: bool = False
    """True if it is certain that the agent waits for input."""
    is_raw: bool = False
    """The program reads single keys (the terminal is not in line mode)."""
    edits_lines: bool = False
    """The agent has loaded a library that reads single keys and edits whole lines (readline)."""
    takes_commands: bool = False
    """An editor, pager or similar program without a known composer is in front: keys are commands."""


def check(look: ScreenState, facts: GateFacts, *, ours: bool = False, needs_reader: bool = True) -> Gate:
    """Return whether text or Enter may be written. `ours`: the draft in the composer is our own.

    `needs_reader`: false for keys that the terminal itself acts on, such as Ctrl-C. If several of the
    `REASONS` apply, the first one is reported.
    """
    closed = (
        _check_process(look, facts)
        or _check_screen(look, facts, needs_reader=needs_reader)
        or _check_person(look, facts)
        or _check_composer(look, facts, ours=ours)
        or _check_prompt(look, facts, ours=ours, needs_reader=needs_reader)
    )
    return Gate(is_open=False, reason=closed) if closed else OPEN


def check_raw(look: ScreenState, facts: GateFacts) -> Gate:
    """Return whether a person's own bytes may be written: the agent's process must be in the foreground."""
    closed = _check_process(look, facts)
    return Gate(is_open=False, reason=closed) if closed else OPEN


def _check_process(look: ScreenState, facts: GateFacts) -> str:
    # After session_end the program may still run: raw keys stay possible, and `_check_screen` stops messages.
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


def _check_screen(look: ScreenState, facts: GateFacts, *, needs_reader: bool) -> str:
    # A tool would read our text as its own input, for example as an answer to a prompt.
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
    # Text that no process reads now would be joined with later input.
    if facts.has_unread or (needs_reader and not facts.is_reading):
        return "deaf"
    # A program without any output counts as idle, but it has not shown yet that it has started.
    return "" if look.has_started else "starting"


def _check_person(look: ScreenState, facts: GateFacts) -> str:
    if facts.is_passthrough:
        return "passthrough"
    if look.human_key_ms is None:
        return ""
    # Until the program has shown the effect of a key, the draft on the screen may be incomplete.
    since_ms = facts.now_ms - look.human_key_ms
    is_shown = look.output_ms is not None and look.output_ms >= look.human_key_ms
    return "human" if since_ms < (HUMAN_QUIET_MS if is_shown else HUMAN_SHOWN_MS) else ""


def _check_composer(look: ScreenState, facts: GateFacts, *, ours: bool) -> str:
    if facts.takes_commands:
        return "composer"
    if look.composer is Composer.EMPTY or (ours and look.composer is Composer.DRAFT):
        return ""
    return "draft" if look.composer is Composer.DRAFT else "composer"


def _check_prompt(look: ScreenState, facts: GateFacts, *, ours: bool, needs_reader: bool) -> str:
    """Require proof that a program without a composer rule accepts a message at this line."""
    if look.has_composer_rule:
        return ""
    if facts.is_raw and not look.has_paste_mode and not facts.edits_lines:
        return "prompt"  # each key may answer a question
    if not needs_reader:
        return ""
    # In line mode, the program did not request bracketed paste: an earlier program left it on.
    has_paste = look.has_paste_mode and facts.is_raw
    is_proven = look.prompt is Prompt.KNOWN or (has_paste and look.prompt is Prompt.PLAIN)
    # After the paste, the whole line before the cursor may be our text, wrapped in any way.
    is_ours = ours and (has_paste or not look.prompt_line)
    return "" if is_proven or is_ours else "prompt"


def judge_foreground(group: int, foreground_group: int | None, members: Iterable[ProgramNames]) -> Foreground:
    """Return the kind of program that reads the terminal.

    `group` is the process group that was started, `foreground_group` the one in the foreground of the
    terminal (or None), `members` every live process in the foreground group. A group with a shell in it
    counts as a shell, because the shell may be the process that reads.
    """
    processes = tuple(members)
    if foreground_group is None or not processes:
        return Foreground.GONE
    if any(map(is_shell, processes)):
        return Foreground.SHELL
    return Foreground.AGENT if foreground_group == group else Foreground.OTHER
