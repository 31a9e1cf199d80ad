"""The rule for commits on the event loop itself instead of in the writer's thread. Pure.

A single commit on a quick disk takes less time than switching to a thread and back. But a commit blocks the
event loop: so it never waits for a disk that was slow recently, and not for commits in quick succession,
which are better written together.
"""

from typing import Final

QUICK_S: Final = 0.002
"""A commit that took longer was slow."""
ENOUGH: Final = 8
"""This many quick commits in a row make a quick disk; a slow one resets the count."""
CLOSE_S: Final = 0.001
"""A commit within this time after another one counts as company."""
ALONE_S: Final = 0.05
"""The last company must be at least this long ago."""


class Pace:
    """The recent commits and their durations. All times are of one monotonic clock."""

    def __init__(self) -> None:
        self._quick = 0
        self._company_s = float("-inf")
        self.ended_s = float("-inf")

    def came(self, now_s: float) -> bool:
        """Record that a commit arrives; return whether the event loop may make it."""
        if now_s - self.ended_s < CLOSE_S:
            self._company_s = now_s
        return self._quick >= ENOUGH and now_s - self._company_s >= ALONE_S

    def ended(self, now_s: float, took_s: float) -> None:
        """Record that commits were just made, in either way."""
        self._quick = self._quick + 1 if took_s <= QUICK_S else 0
        self.ended_s = now_s
