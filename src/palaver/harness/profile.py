"""What a terminal must know of the program in it: how its screen reads, and which keys it takes. Pure.

A profile holds facts and rules; it keeps no state, reads no clock and writes nothing. The rules get a `View`,
one still picture of the screen, and never say more than the picture shows.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from palaver.model.delivery import AgentState
from palaver.model.terminal import USAGE_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A still picture of a screen, handed to the rules."""

    lines: tuple[str, ...]
    """Every row, without blanks at its end."""
    bright: tuple[str, ...]
    """The same rows with faint text blanked out: hints that a program shows where nobody has typed yet."""
    row: int
    column: int
    """Where the cursor is, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleRule:
    """A window title that says what the program is doing."""

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
    """How many tries there are."""
    wait_ms: int = 5_000
    """How long to wait for idle after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """One step of a sequence of keys: the bytes, and how long to leave the program to it."""

    keys: bytes
    wait_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One program, as seen through a terminal."""

    name: str
    starts_twice: bool = False
    """It starts itself again as a child, which then changes its session without a word."""
    read_composer: Callable[[View], str | None] | None = None
    """Gives what is typed in the composer, None where no composer can be seen. No rule at all: the program
    has no composer that we know, and what a person types is told from their keys."""
    takes_messages: tuple[re.Pattern[str], ...] = ()
    """For a program without a composer rule: any of them, on the whole line up to the cursor, shows that the
    program takes a message there."""
    has_known_prompts: bool = False
    """`takes_messages` has all of its prompts: at any other line it asks something."""
    dialogs: tuple[re.Pattern[str], ...] = ()
    """Any of them on the screen is an open dialog."""
    read_dialog: Callable[[View], str | None] | None = None
    """Says what an open dialog is about, in the words of a status; None where none can be seen. Beside
    `dialogs`, for a program that shows which of its dialogs it is."""
    read_limit: Callable[[View], str] | None = None
    """Says that the last turn ended because the allowance is used up, in the words of a status: `usage limit`
    or `usage limit, resets 3pm (UTC)`; nothing where it did not."""
    prompts: tuple[re.Pattern[str], ...] = ()
    """Any of them on the cursor's line, up to the cursor, is a question that Enter would answer; so it is on
    the line above, where the cursor's is empty or no more than a prompt."""
    questions: tuple[re.Pattern[str], ...] = ()
    """The same, but above a prompt a sentence may be anybody's; only above an empty line it counts."""
    busy: tuple[re.Pattern[str], ...] = ()
    own_work: tuple[re.Pattern[str], ...] = ()
    """Signs that it works itself, for when what it says of itself is true of a sub-agent too."""
    compacting: tuple[re.Pattern[str], ...] = ()
    usage_limits: tuple[re.Pattern[str], ...] = ()
    titles: tuple[TitleRule, ...] = ()
    opens_native: bool = False
    """Its plugin opens a native lane by itself, in a process that is not the holder's."""
    has_paste: bool = False
    """It always asks for bracketed paste; where it does not, its composer is not ready, or not its own."""
    folded_paste: re.Pattern[str] | None = None
    """What the composer shows in place of a long paste."""
    queue_key: bytes = b"\r"
    """Sends the composer's text while the program is busy, so that it comes after what it is at."""
    interrupt: Interrupt = Interrupt(keys=b"\x03", most=3)
    quit: tuple[Press, ...] = ()
    """Asks the program to end by itself; empty when it knows no polite way but a signal."""
    settle_ms: int = 300
    """Between a paste and Enter: less, and some programs take the Enter for part of the paste."""
    idle_after_ms: int = 2_000
    """Silence that means idle, for a program that does not say what it is doing."""
    composer_wait_ms: int = 0
    """How long the first composer is not believed, unless a hook says that the session has begun: some
    harnesses draw it before they have loaded the conversation that goes on."""
    start_limit_ms: int = 10_000
    """After this a program with no composer rule that has shown nothing, and of which nobody can say whether
    it waits, is taken to be past its start when it takes keys one by one."""


USAGE_LIMITS: Final = (
    re.compile(r"You've hit your (?:[\w']+ )*(?:session|usage|weekly|monthly)(?: \w+)* ?limit"),
    re.compile(r"\busage_limit_reached\b"),
)


def is_usage_limit(text: str) -> bool:
    """Tell whether a program says that its allowance is used up; being slowed down is something else."""
    return any(pattern.search(text) for pattern in USAGE_LIMITS)


def limit_said(profile: Profile, view: View, text: str) -> str:
    """Say that a program at rest shows a used-up allowance; nothing when it does not."""
    if profile.read_limit is not None:
        return profile.read_limit(view)
    return USAGE_LIMIT if any(pattern.search(text) for pattern in profile.usage_limits) else ""
