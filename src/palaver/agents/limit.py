"""A used-up allowance that only a screen shows: what it says, and until when that is believed.

The screen shows it for as long as nobody does anything. So the moment at which it ends is taken down once,
and behind that moment the agent rests, whatever still stands there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from palaver.agents.native_word import Word
from palaver.clock import Clock
from palaver.harness.profile import Profile, View
from palaver.harness.usage_reset import fix_limit, limit_ends_ms
from palaver.model.delivery import AgentState

USAGE_LIMIT: Final = "usage_limit"
"""What is said of a program of which no more than that is known."""
_SAID: Final = "usage limit"
_ASKED: Final = "usage limit: "
"""How a dialog about it is named."""
GRACE_MS: Final = 5_000
"""So long after such a dialog it may turn out that the turn ends for want of allowance after all."""


def limit_said(profile: Profile, view: View, text: str) -> str:
    """Say that a program at rest shows a used-up allowance; nothing when it does not."""
    if profile.read_limit is not None:
        return profile.read_limit(view)
    return USAGE_LIMIT if any(pattern.search(text) for pattern in profile.usage_limits) else ""


class LimitWatch:
    """Makes a state of what a screen at rest says about its allowance."""

    def __init__(self, clock: Clock, on_end: Callable[[], None]) -> None:
        """`on_end` is told when there should be more again."""
        self._clock = clock
        self._on_end = on_end
        self._shown = ""
        self._detail = ""
        self._ends_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked: Word | None = None
        self._answered_ms: int | None = None

    def see(self, word: Word) -> Word:
        """Give what the agent does: blocked while its allowance is used up, as far as that is known."""
        word = self._see_dialog(word)
        shown = word.detail if word.state is AgentState.IDLE and word.detail.startswith(_SAID) else ""
        if shown != self._shown:
            self._begin(shown)
        if not shown:
            return word
        if self._ends_ms is not None and self._clock.now_ms() >= self._ends_ms:
            return Word(state=AgentState.IDLE)
        return Word(state=AgentState.BLOCKED, detail=self._detail)

    def _see_dialog(self, word: Word) -> Word:
        """Have the answer to a dialog about it count only once it is seen what came of it."""
        if word.state is AgentState.BLOCKED and word.detail.startswith(_ASKED):
            self._asked, self._answered_ms = word, None
        elif self._asked is not None and word.state is AgentState.ACTIVE:
            now_ms = int(self._clock.monotonic_s() * 1000)
            self._answered_ms = now_ms if self._answered_ms is None else self._answered_ms
            left_ms = self._answered_ms + GRACE_MS - now_ms
            if left_ms > 0:
                self._look_in(left_ms)
                return self._asked
            self._asked = None
        else:
            self._asked = None
        return word

    def close(self) -> None:
        """Forget it."""
        self._begin("")

    def _look_in(self, wait_ms: int) -> None:
        """Have it seen again after so long."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_end)

    def _begin(self, shown: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock.now_ms()
        self._shown, self._detail = shown, fix_limit(shown, now_ms)
        self._ends_ms = limit_ends_ms(self._detail, now_ms)
        if self._ends_ms is not None:
            self._look_in(max(0, self._ends_ms - now_ms))
