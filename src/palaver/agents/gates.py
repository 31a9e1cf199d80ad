"""Whether a key may be written to a terminal now. Pure: the same look and facts give the same answer.

A gate opens on positive proof only. What is not known is closed, and whoever asks must write in the same
step: an answer of a moment ago is worth nothing.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from palaver.agents.look import Composer, Look
from palaver.model.delivery import AgentState

HUMAN_QUIET_MS: Final = 500
"""How long a person must have left the keyboard alone."""


REASONS: Final = (
    *("exited", "gone", "shell", "foreground"),
    *("unreadable", "dialog", "compacting", "starting", "passthrough", "human"),
    *("draft", "composer"),
)
"""Every word that a closed gate can say, the strongest first."""

PASSING: Final = frozenset({"unreadable", "composer", "human"})
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
    is_passthrough: bool = False
    """A person has taken the keyboard."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The answer; `reason` is one word and empty when open."""

    is_open: bool
    reason: str = ""


OPEN: Final = Gate(is_open=True)


def check(look: Look, facts: Facts, *, ours: bool = False) -> Gate:
    """Say whether text or Enter may be written. `ours`: the draft in the composer is our own.

    When several of the `REASONS` hold, the first is given.
    """
    closed = _check_process(look, facts) or _check_screen(look, facts) or _check_composer(look, ours=ours)
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


def _check_screen(look: Look, facts: Facts) -> str:
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
    if facts.is_passthrough:
        return "passthrough"
    if look.human_key_ms is not None and facts.now_ms - look.human_key_ms < HUMAN_QUIET_MS:
        return "human"
    return ""


def _check_composer(look: Look, *, ours: bool) -> str:
    if look.composer is Composer.EMPTY or (ours and look.composer is Composer.DRAFT):
        return ""
    return "draft" if look.composer is Composer.DRAFT else "composer"


SHELLS: Final = frozenset(
    {
        "sh",
        "bash",
        "zsh",
        "dash",
        "ash",
        "ksh",
        "mksh",
        "fish",
        "tcsh",
        "csh",
        "nu",
        "pwsh",
        "elvish",
        "xonsh",
    }
)
_TAKES_VALUE: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})


def is_plain_shell(argv: Sequence[str]) -> bool:
    """Tell whether a process is a shell that would run what is typed: one with neither script nor command."""
    if not argv:
        return False
    words = list(argv)
    program = words.pop(0).rsplit("/", 1)[-1].lstrip("-")
    if program == "busybox" and words:
        program = words.pop(0)
    if program not in SHELLS:
        return False
    while words:
        word = words.pop(0)
        if word in _TAKES_VALUE:
            del words[:1]
        elif word == "-s":
            return True
        elif word.startswith("--"):
            continue
        elif word.startswith(("-", "+")):
            if "c" in word[1:] and word.startswith("-"):
                return "i" in word[1:]
            if "s" in word[1:] or "i" in word[1:]:
                return True
        else:
            return False
    return True


def judge_foreground(
    group: int, foreground_group: int | None, members: Iterable[Sequence[str]]
) -> Foreground:
    """Say who reads the terminal.

    `group` is the process group that was started, `foreground_group` the terminal's (None when it has none),
    `members` the arguments of every live process in the foreground group. A group in which a plain shell
    lives is a shell's: it may be the one that reads.
    """
    commands = [tuple(argv) for argv in members]
    if foreground_group is None or not commands:
        return Foreground.GONE
    if any(is_plain_shell(argv) for argv in commands):
        return Foreground.SHELL
    return Foreground.AGENT if foreground_group == group else Foreground.OTHER
