"""What a holder knows of its screen besides the cells, handed to the process that takes over. Values only."""

import msgspec

from palaver.agents.terminal.keyboard import Draft
from palaver.agents.terminal.signals import Heard


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What was heard, what a person typed, and how far the screen could be believed."""

    heard: Heard
    draft: Draft
    started_ms: int
    is_started: bool
    is_readable: bool
    outputs: int
    output_ms: int | None
    prompts: tuple[str, ...] = ()
    """Prompts under which the program took a message."""
