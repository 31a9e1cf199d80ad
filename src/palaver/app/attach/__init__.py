"""`pal attach`: a user's view of one agent's terminal, with a line to write to it.

This module has the sizes only, and imports very little, because the start of an agent waits for it.
"""

from collections.abc import Mapping
from typing import Final

from palaver.protocol.agent_socket import MIN_ROWS

LINES: Final = 2
"""Rows that the agent does not get."""
LEAST_COLS: Final = 12


def has_bar(cols: int, rows: int) -> bool:
    """Whether a terminal has room for the status line and the bar."""
    return rows >= MIN_ROWS + LINES and cols >= LEAST_COLS


def agent_size(cols: int, rows: int) -> tuple[int, int]:
    """Return the size of an agent's terminal on a terminal of this size."""
    return (cols, rows - LINES) if has_bar(cols, rows) else (cols, rows)


def screen_size(cols: int, rows: int, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the size that a new agent gets on a terminal of this size; a dumb one has no bar."""
    return (cols, rows) if environment.get("TERM", "dumb") == "dumb" else agent_size(cols, rows)
