"""Time as a parameter. No other module reads a clock directly."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that people read, one that only moves forward."""

    def now_ms(self) -> int:
        """Unix time in milliseconds. May step back."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never step."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class Timer(Protocol):
    """A call that can be cancelled before it happens."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Call a function after a number of seconds, as `loop.call_later` does."""
