"""Types the lines that people send from their input bars, one by one, each with its Enter a moment later.

A line waits, in order, while a message of the bus is being typed; a message waits while a line is. Nothing is
merged with anything. While a dialog is open nothing is typed: neither a line, nor the Enter of one that was
typed just before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.agents.typing.typing import ENTER
from palaver.errors import BadRequest, PalaverError, Unavailable

LIMIT_LINES: Final = 100

_BEHIND_S: Final = 0.02
"""How long to wait for output that is not read yet."""
_OPEN: Final = r"a dialog is open, and a line would answer it: Ctrl-\ p gives you the agent's keyboard"
_OPENED: Final = "a dialog opened: the line is in the agent's input and Enter was not pressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, and what is called with its outcome."""

    text: str
    typed: Callable[[], None]
    """Called in the step in which the line is typed, before its first key."""
    refused: Callable[[PalaverError, str], None]
    """Called with the reason; with the text too when none of it was typed."""


class Ground(Protocol):
    """The terminal, as the bar needs it."""

    def is_current(self) -> bool:
        """Read what the program has written until now; False when that is not done yet."""
        ...

    def can_begin(self) -> bool:
        """Whether no message is being typed."""
        ...

    def has_dialog(self, ours: str) -> bool:
        """Whether a key would answer a dialog. `ours` is the line that was typed, if one was."""
        ...

    def press_line(self, text: str) -> None:
        """Write a line, without its Enter."""
        ...

    def press_for_person(self, keys: bytes) -> None:
        """Write a person's keys."""
        ...

    def on_rest(self) -> None:
        """Take in that the last line was sent."""
        ...


class InputBar:
    """The lines of all input bars of one terminal."""

    def __init__(self, ground: Ground, *, settle_ms: int) -> None:
        self._ground = ground
        self._settle_s = settle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._lines: deque[Line] = deque()
        self._typed: Line | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_typing(self) -> bool:
        """Whether a line was typed without its Enter."""
        return self._typed is not None

    def add(self, line: Line) -> None:
        """Type a line after those that wait; raises Unavailable when too many do."""
        if len(self._lines) >= LIMIT_LINES:
            raise Unavailable(f"{LIMIT_LINES} lines wait to be typed already: let the agent read them first")
        self._lines.append(line)
        self.go_on()

    def go_on(self) -> None:
        """Type the next line, if there is one and nothing else is being typed."""
        while self._lines and self._typed is None and self._ground.can_begin():
            if not self._ground.is_current():
                self._again(_BEHIND_S, self.go_on)
                return
            line = self._lines.popleft()
            if self._ground.has_dialog(""):
                line.refused(BadRequest(_OPEN), line.text)
                continue
            self._typed = line
            line.typed()
            self._again(self._settle_s, self._enter)
            # No await between the look above and the keys.
            self._ground.press_line(line.text)

    def close(self) -> None:
        """Type no more."""
        self._lines.clear()
        self._typed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self) -> None:
        line = self._typed
        assert line is not None
        if not self._ground.is_current():
            self._again(_BEHIND_S, self._enter)
            return
        self._typed = None
        if self._ground.has_dialog(line.text):
            line.refused(BadRequest(_OPENED), "")
        else:
            self._ground.press_for_person(ENTER)
        self.go_on()
        if self._typed is None:
            self._ground.on_rest()

    def _again(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)
