"""Profiles: how a terminal reads the screen of its program, and which keys it presses. Pure.

A profile contains facts and rules; it keeps no state, reads no clock and writes nothing. The rules receive a
`View`, one snapshot of the screen, and never report more than the snapshot shows.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from palaver.model.delivery import AgentState
from palaver.model.terminal import USAGE_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot of a screen, passed to the rules."""

    lines: tuple[str, ...]
    """Every row, without blanks at its end."""
    bright: tuple[str, ...]
    """The same rows with faint text blanked out: hints that a program shows before the user types."""
    row: int
    column: int
    """Where the cursor is, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleRule:
    """A window title that shows what the program is doing."""

    pattern: re.Pattern[str]
    state: AgentState
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """The keys that stop a busy program. They are pressed only while it is busy."""

    keys: bytes
    presses: int = 1
    """How many times in a row they are pressed for one try."""
    most: int = 1
    """The number of tries."""
    wait_ms: int = 5_000
    """How long to wait for idle after each try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """One step of a key sequence: the bytes, and how long to wait for the program afterwards."""

    keys: bytes
    wait_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One program, as seen through a terminal."""

    name: str
    starts_twice: bool = False
    """It starts itself again as a child process, which then silently changes its session."""
    read_composer: Callable[[View], str | None] | None = None
    """Returns the text in the composer; None if no composer is visible.

    Without this rule the program has no composer that we know, and typed text is known only from the user's
    keys.
    """
    takes_messages: tuple[re.Pattern[str], ...] = ()
    """Prompts of a program without a composer rule.

    A pattern that matches the whole line up to the cursor shows that the program takes a message there.
    """
    has_known_prompts: bool = False
    """`takes_messages` has all of its prompts: any other line asks something."""
    has_named_prompt: bool = False
    """The user named one of its prompts, so a process that the program started may be the agent there."""
    dialogs: tuple[re.Pattern[str], ...] = ()
    """A match anywhere on the screen is an open dialog."""
    read_dialog: Callable[[View], str | None] | None = None
    """Returns what an open dialog is about, as a status detail; None if no dialog is visible.

    Used in addition to `dialogs`, for a program that shows which of its dialogs is open.
    """
    read_limit: Callable[[View], str] | None = None
    """Returns a status detail if the last turn ended at a usage limit; else empty.

    The detail is `usage limit` or, for example, `usage limit, resets 3pm (UTC)`.
    """
    prompts: tuple[re.Pattern[str], ...] = ()
    """A match on the cursor's line, up to the cursor, is a question that Enter would answer.

    So is a match on the line above, if the cursor's line is empty or only a prompt.
    """
    questions: tuple[re.Pattern[str], ...] = ()
    """Like `prompts`, but a match on the line above counts only if the cursor's line is empty.

    A sentence above a prompt may be anything.
    """
    busy: tuple[re.Pattern[str], ...] = ()
    own_work: tuple[re.Pattern[str], ...] = ()
    """Signs that the program itself works, for when its reported state may be that of a sub-agent."""
    compacting: tuple[re.Pattern[str], ...] = ()
    usage_limits: tuple[re.Pattern[str], ...] = ()
    titles: tuple[TitleRule, ...] = ()
    opens_native: bool = False
    """Its plugin opens a native lane itself, in a process other than the holder."""
    has_paste: bool = False
    """It always enables bracketed paste; while it does not, its composer is not ready, or is not its own."""
    folded_paste: re.Pattern[str] | None = None
    """The text that the composer shows instead of a long paste."""
    queue_key: bytes = b"\r"
    """Submits the composer's text while the program is busy, to run after the current turn."""
    interrupt: Interrupt = Interrupt(keys=b"\x03", most=3)
    quit: tuple[Press, ...] = ()
    """Keys that ask the program to exit; empty if only a signal can end it."""
    settle_ms: int = 300
    """Between a paste and Enter: with less, some programs take the Enter as part of the paste."""
    idle_after_ms: int = 2_000
    """Silence that means idle, for a program that does not report its state."""
    composer_wait_ms: int = 0
    """How long the first composer is ignored, unless a hook reports that the session has begun.

    Some harnesses draw it before they have loaded the session that they resume.
    """
    start_limit_ms: int = 10_000
    """The longest start of a program without a composer rule that shows nothing and reports no state.

    After this time it counts as started if it reads keys one by one.
    """


USAGE_LIMITS: Final = (
    re.compile(r"You've hit your (?:[\w']+ )*(?:session|usage|weekly|monthly)(?: \w+)* ?limit"),
    re.compile(r"\busage_limit_reached\b"),
)


def is_usage_limit(text: str) -> bool:
    """Whether a program reports a reached usage limit. A temporary slowdown does not count."""
    return any(pattern.search(text) for pattern in USAGE_LIMITS)


def limit_said(profile: Profile, view: View, text: str) -> str:
    """Return a status detail if an idle program shows a reached usage limit; else empty."""
    if profile.read_limit is not None:
        return profile.read_limit(view)
    return USAGE_LIMIT if any(pattern.search(text) for pattern in profile.usage_limits) else ""
