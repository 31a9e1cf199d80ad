"""The texts that hooks pass to a model: its messages. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from palaver.doors.argv.message_page import injection_line
from palaver.model.envelope import Event
from palaver.model.forms import Line, format_injection

LIMIT_TEXT: Final = 8000
"""Characters of messages in one hook. A harness moves more than about 10,000 into a file."""


def mail_text(agent: str, events: Sequence[Event], *, device: str, hints: str = "") -> str:
    """Return messages as one fenced text for the agent. A message that is too long is cut and says so.

    `device` is this machine; messages from another device show its name.
    """
    if not events:
        return ""
    lines = [_cut(injection_line(event, agent, device)) for event in events]
    return format_injection(lines, hints=hints)


def _cut(line: Line) -> Line:
    if len(line.text) <= LIMIT_TEXT:
        return line
    return replace(line, text=f"{line.text[:LIMIT_TEXT]}… (cut; all of it: pal show {line.seq})")
