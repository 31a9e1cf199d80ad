"""What Claude Code does with the lines of a monitor, as its version 2.1 does it. Pure.

A line is cut after 500 characters, and lines that come together after 3,000. The session is shown them as a
prompt of its own, of which a hook is told first: so the hook can add what was cut, and it is known that they
arrived.
"""

import re
from collections.abc import Sequence
from typing import Final

from palaver.model.forms import Line, format_one_line
from palaver.model.message import INTENTS

LIMIT_LINE: Final = 480
LIMIT_TOGETHER: Final = 2800
LIMIT_MESSAGES: Final = 10
"""More at once would leave too little room for each."""

_NOTICE: Final = re.compile(r"<task-notification>.*?<event>(.*?)</event>", re.DOTALL)
_PLACE: Final = re.compile(
    rf"^\[(?:(?:{'|'.join(INTENTS)})(?::[^\n]{{1,300}}?)?|thread:[^\n]{{1,300}}?|new message) #(\d{{1,18}})"
    r"(?::[A-Za-z0-9]+)?\] ",
    re.MULTILINE,
)


def monitor_lines(messages: Sequence[Line]) -> list[tuple[str, bool]]:
    """Write messages as lines that arrive uncut together; say of each whether it is all of the message."""
    limit = min(LIMIT_LINE, LIMIT_TOGETHER // max(1, len(messages)) - 1)
    return [format_one_line(message, limit) for message in messages]


def places_in_notice(prompt: str) -> frozenset[int]:
    """Give the messages whose lines a prompt shows; none when it is not such a prompt."""
    return frozenset(
        int(found[1]) for notice in _NOTICE.finditer(prompt) for found in _PLACE.finditer(notice[1])
    )
