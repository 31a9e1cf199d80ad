"""The state of a terminal at one instant: its program and its composer. Values only."""

import enum
from dataclasses import dataclass

from palaver.harness.prompt import Prompt
from palaver.model.delivery import AgentState


class Composer(enum.StrEnum):
    """Whether the input field contains a text."""

    EMPTY = "empty"
    DRAFT = "draft"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The screen and the state of its program at one instant."""

    state: AgentState
    reason: str = ""
    """Reason for the state: `thinking`, `tool_use`, `permission`, `compacting`, `usage_limit`, … or empty."""
    has_dialog: bool = False
    """A dialog is open that a key would answer."""
    composer: Composer = Composer.UNKNOWN
    draft: str = ""
    """The text in the composer, as far as it can be read; lines joined by line feeds."""
    has_composer_rule: bool = False
    """The program's composer can be read from the screen; otherwise `composer` comes from a person's keys."""
    prompt: Prompt = Prompt.OTHER
    """The kind of line before the cursor, for a program without a composer rule."""
    is_named_prompt: bool = False
    """The user has named this line as a prompt: with `--prompt`, or in a profile file."""
    prompt_line: str = ""
    """That line without our own text, stripped."""
    is_told: bool = False
    """The program or one of its hooks reported the state; otherwise it is inferred from the output."""
    is_readable: bool = True
    has_started: bool = True
    """The program has shown that it is ready. A program without output can be idle without this."""
    has_paste_mode: bool = False
    """The program has requested bracketed paste."""
    is_alternate: bool = False
    title: str = ""
    text: str = ""
    """The whole screen, rows joined by line feeds."""
    before_cursor: str = ""
    """The text that ends at the cursor, including the rows that it wraps over."""
    output_count: int = 0
    """How many pieces of output the program has written."""
    output_ms: int | None = None
    """When the program last wrote output."""
    human_key_ms: int | None = None
    """When a person last pressed a key."""
    human_key_count: int = 0
