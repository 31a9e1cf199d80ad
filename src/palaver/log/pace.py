"""When a commit may be made on the event loop itself instead of in the writer's thread. Pure.

A single commit on a quick disk takes less time than waking a thread for it and being woken again. But while
the event loop commits it does nothing else: so it never waits for a disk that has been slow of late, and not
where commits come one upon another, for those are better written together.
"""

from typing import Final

QUICK_S: Final = 0.002
"""A commit that took longer was slow."""
ENOUGH: Final = 8
"""So many quick ones in a row make a quick disk; one slow one, and they are counted anew."""
CLOSE_S: Final = 0.001
"""Who comes so soon behind another is company."""
ALONE_S: Final = 0.05
"""So long ago must the last company have come."""


class Pace:
    """How commits came lately, and what they took. All moments are of one clock that never goes back."""

    def __init__(self) -> None:
        self._quick = 0
        self._company_s = float("-inf")
        self.ended_s = float("-inf")

    def came(self, now_s: float) -> bool:
        """Somebody comes to commit; tell whether the event loop may do it."""
        if now_s - self.ended_s < CLOSE_S:
            self._company_s = now_s
        return self._quick >= ENOUGH and now_s - self._company_s >= ALONE_S

    def ended(self, now_s: float, took_s: float) -> None:
        """Commits have just been made, in either way."""
        self._quick = self._quick + 1 if took_s <= QUICK_S else 0
        self.ended_s = now_s
