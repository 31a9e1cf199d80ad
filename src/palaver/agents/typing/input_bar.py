"""Type the lines that people send from their input bars: one at a time, in order.

Enter follows each line after a short delay. Lines wait while a message is being typed, and a message waits
while a line is being typed; the two are never merged. While a dialog is open, nothing is typed, and Enter is
not pressed for a line that was typed just before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from palaver.agents.typing.typing import ENTER
from palaver.errors import BadRequest, PalaverError, Unavailable

LIMIT_LINES: Final = 100
"""Lines that may wait to be typed."""

_BEHIND_S: Final = 0.02
"""Delay before the next attempt, in seconds, while some of the program's output has not been read."""
_OPEN: Final = r"a dialog is open, and a line would answer it: Ctrl-\ p gives you the agent's keyboard"
_OPENED: Final = "a dialog opened: the line is in the agent's input and Enter was not pressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, and the callbacks for its outcome."""

    text: str
    typed: Callable[[], None]
    """Called just before the first key of the line is written, in the same step."""
    refused: Callable[[PalaverError, str], None]
    """Called with the reason, and with the text if no part of it was typed (otherwise an empty text)."""


class Ground(Protocol):
    """The parts of the terminal that an input bar uses."""

    def is_current(self) -> bool:
        """Read the program's output up to now. Return False if some of it is still unread."""
        ...

    def can_begin(self) -> bool:
        """Return whether a line may start: no message is being typed."""
        ...

    def has_dialog(self, ours: str) -> bool:
        """Return whether a key would answer a dialog. `ours` is the typed line, or empty."""
        ...

    def press_line(self, text: str) -> None:
        """Write a line without Enter."""
        ...

    def press_for_person(self, keys: bytes) -> None:
        """Write a person's keys."""
        ...

    def on_rest(self) -> None:
        """Continue with a message that waited for the lines: none of them is left."""
        ...


class InputBar:
    """The lines of all input bars of one terminal. At most `LIMIT_LINES` wait; further ones are refused."""

    def __init__(self, ground: Ground, *, settle_ms: int) -> None:
        self._ground = ground
        self._settle_s = settle_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._lines: deque[Line] = deque()
        self._typed: Line | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_typing(self) -> bool:
        """Whether a line was typed and its Enter is still due."""
        return self._typed is not None

    def add(self, line: Line) -> None:
        """Queue a line after the waiting ones. Raises Unavailable if `LIMIT_LINES` lines wait already."""
        if len(self._lines) >= LIMIT_LINES:
            raise Unavailable(f"{LIMIT_LINES} lines wait to be typed already: let the agent read them first")
        self._lines.append(line)
        self.go_on()

    def go_on(self) -> None:
        """Type the next line, if one waits and nothing else is being typed."""
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
            # No await between the check for a dialog above and the keys.
            self._ground.press_line(line.text)

    def close(self) -> None:
        """Drop the waiting lines and type nothing more. Their callbacks are not called."""
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
