"""What people send from their input bars, typed for them line by line, each with its Enter a moment later.

A line waits, in order, while a message of the bus is being typed; a message waits while a line is. Nothing is
merged with anything.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from palaver.agents.typing.typing import ENTER
from palaver.errors import Unavailable

LIMIT_LINES: Final = 100


class InputBar:
    """The lines of everybody's input bar."""

    def __init__(
        self,
        press: Callable[[bytes], None],
        *,
        settle_ms: int,
        can_begin: Callable[[], bool],
        on_rest: Callable[[], None],
    ) -> None:
        """`press` writes keys; `can_begin`: nobody else is typing; `on_rest`: the last line was sent."""
        self._press = press
        self._settle_s = settle_ms / 1000
        self._can_begin = can_begin
        self._on_rest = on_rest
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_typing(self) -> bool:
        """Whether a line stands there without its Enter."""
        return self._timer is not None

    def add(self, line: bytes) -> None:
        """Type a line, behind those that wait; raises Unavailable when too many do."""
        if len(self._lines) >= LIMIT_LINES:
            raise Unavailable(f"{LIMIT_LINES} lines wait to be typed already: let the agent read them first")
        self._lines.append(line)
        self.go_on()

    def go_on(self) -> None:
        """Type the next line, if there is one and nobody else is typing."""
        if self._lines and self._timer is None and self._can_begin():
            self._timer = self._loop.call_later(self._settle_s, self._enter)
            self._press(self._lines[0])

    def close(self) -> None:
        """Type no more."""
        self._lines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self) -> None:
        self._lines.popleft()
        self._press(ENTER)
        self._timer = None
        self.go_on()
        if self._timer is None:
            self._on_rest()
