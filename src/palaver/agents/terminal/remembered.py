"""The state of a screen without its cells, for the process that takes over. Values only."""

import msgspec

from palaver.agents.terminal.keyboard import Draft
from palaver.agents.terminal.signals import Heard


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Reported status, the draft of a person, startup, readability and accepted prompts."""

    heard: Heard
    draft: Draft
    started_ms: int
    is_started: bool
    is_readable: bool
    outputs: int
    output_ms: int | None
    prompts: tuple[str, ...] = ()
    """Prompts at which the program accepted a message."""
