"""What a terminal shows at one moment: the state of its program and of its composer. Values only."""

import enum
from dataclasses import dataclass

from palaver.harness.prompt import Prompt
from palaver.model.delivery import AgentState


class Composer(enum.StrEnum):
    """What stands in the place where a person types."""

    EMPTY = "empty"
    DRAFT = "draft"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The screen and what is known about its program, at one moment."""

    state: AgentState
    reason: str = ""
    """Why: `thinking`, `tool_use`, `permission`, `compacting`, `usage_limit`, another word, or nothing."""
    has_dialog: bool = False
    """A dialog is open that a key would answer."""
    composer: Composer = Composer.UNKNOWN
    draft: str = ""
    """What stands in the composer, as far as it can be read; lines joined by line feeds."""
    has_composer_rule: bool = False
    """The program's composer can be read from the screen; otherwise `composer` comes from a person's keys."""
    prompt: Prompt = Prompt.OTHER
    """What the line before the cursor shows, of a program without a composer rule."""
    is_named_prompt: bool = False
    """The user has named this line as a prompt: with `--prompt`, or in a profile file."""
    prompt_line: str = ""
    """That line, without our own text and without blanks at its ends."""
    is_told: bool = False
    """The program itself, or a hook of it, says its state; otherwise it is guessed from its output."""
    is_readable: bool = True
    has_started: bool = True
    """Something has shown that the program is ready. One that shows nothing at all may be idle without."""
    has_paste_mode: bool = False
    """The program asked for bracketed paste."""
    is_alternate: bool = False
    title: str = ""
    text: str = ""
    """The whole screen, rows joined by line feeds."""
    before_cursor: str = ""
    """The text that ends at the cursor, over as many rows as it wraps."""
    output_count: int = 0
    """How many times the program wrote something; it rises with every piece of output."""
    output_ms: int | None = None
    """When it last did."""
    human_key_ms: int | None = None
    """When a person last pressed a key."""
    human_key_count: int = 0
