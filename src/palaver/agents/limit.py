"""A used-up allowance that only a screen shows: until when that is believed.

The screen shows it for as long as nobody does anything. So the moment at which it ends is taken down once,
and behind that moment the agent rests, whatever still stands there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from palaver.agents.native_word import Word
from palaver.clock import Clock
from palaver.harness.hook_states import USED_UP, USED_UP_ASKED
from palaver.harness.usage_reset import fix_limit, is_counted_from_then, limit_ends_ms
from palaver.model.delivery import AgentState

_STALE_MS: Final = 12 * 60 * 60_000
"""So long after its end the same words on a screen are the old ones, and no new limit."""
GRACE_MS: Final = 5_000
"""So long after such a dialog it may turn out that the turn ends for want of allowance after all."""


class LimitWatch:
    """Makes a state of what a screen at rest says about its allowance."""

    def __init__(self, clock: Clock, on_end: Callable[[], None]) -> None:
        """`on_end` is told when there should be more again."""
        self._clock = clock
        self._on_end = on_end
        self._shown = ""
        self._detail = ""
        self._ends_ms: int | None = None
        self._before = ("", "", 0)
        """The last limit whose end was known: its words, what was said of it, and its end."""
        self._timer: asyncio.TimerHandle | None = None
        self._asked: Word | None = None
        self._answered_ms: int | None = None

    def see(self, word: Word) -> Word:
        """Give what the agent does: blocked while its allowance is used up, as far as that is known."""
        word = self._see_dialog(word)
        shown = word.detail if word.state is AgentState.IDLE and word.detail.startswith(USED_UP) else ""
        if shown != self._shown:
            self._begin(shown)
        if not shown:
            return word
        if self._ends_ms is not None and self._clock.now_ms() >= self._ends_ms:
            return Word(state=AgentState.IDLE)
        return Word(state=AgentState.BLOCKED, detail=self._detail)

    def _see_dialog(self, word: Word) -> Word:
        """Have the answer to a dialog about it count only once it is seen what came of it."""
        if word.state is AgentState.BLOCKED and word.detail.startswith(USED_UP_ASKED):
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
        words, detail, ends_ms = self._before
        self._shown = shown
        if shown and shown == words and not is_counted_from_then(shown) and now_ms < ends_ms + _STALE_MS:
            self._detail, self._ends_ms = detail, ends_ms
        else:
            self._detail = fix_limit(shown, now_ms)
            self._ends_ms = limit_ends_ms(self._detail, now_ms)
        if self._ends_ms is not None:
            self._before = shown, self._detail, self._ends_ms
            self._look_in(max(0, self._ends_ms - now_ms))
