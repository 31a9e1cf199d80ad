"""Time as a parameter, so that tests choose it.

Code of the daemon that decides takes a `Clock`. Client programs, and code that only waits or measures, read
the system's clock directly.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that people read and the log stores, and one for durations, which only moves
    forward."""

    def now_ms(self) -> int:
        """Unix time in milliseconds. It may step back, when a person or a time server sets the clock."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an unknown start. Only differences mean something, and only within one process."""
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
