"""The texts that hooks put before a model: its instructions, and its mail. Writes nothing down."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from palaver.doors.argv.message_page import injection_line
from palaver.model.envelope import Event
from palaver.model.forms import Line, format_injection

LIMIT_TEXT: Final = 8000
"""Characters of messages in one hook: more than about 10,000 a harness puts into a file."""


def mail_text(agent: str, events: Sequence[Event], *, device: str, hints: str = "") -> str:
    """Give messages in one fence, as the agent reads them; one that is too long is cut, and says so.

    `device` is this machine: messages of another one carry its name.
    """
    if not events:
        return ""
    lines = [_cut(injection_line(event, agent, device)) for event in events]
    return format_injection(lines, hints=hints)


def _cut(line: Line) -> Line:
    if len(line.text) <= LIMIT_TEXT:
        return line
    return replace(line, text=f"{line.text[:LIMIT_TEXT]}… (cut; all of it: pal show {line.seq})")
