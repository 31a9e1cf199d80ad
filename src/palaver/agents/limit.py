"""A usage limit that only the screen shows, and how long to believe it.

A screen can show the limit long after it has ended. So the end is computed once, when the limit first
appears, and after that time the agent counts as idle whatever the screen shows.
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
"""For this long after its end, the same text on a screen is the old limit and not a new one."""
GRACE_MS: Final = 5_000
"""For this long after the dialog about a limit was answered, the turn may still end because of the limit."""


class LimitWatch:
    """Derives the agent state from the usage limit shown on an idle screen."""

    def __init__(self, clock: Clock, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the state must be checked again, such as at the end of the limit."""
        self._clock = clock
        self._on_end = on_end
        self._shown = ""
        self._detail = ""
        self._ends_ms: int | None = None
        self._before = ("", "", 0)
        """The last limit whose end was known: its text on the screen, its detail, and its end."""
        self._timer: asyncio.TimerHandle | None = None
        self._asked: Word | None = None
        self._answered_ms: int | None = None

    def see(self, word: Word) -> Word:
        """Return the state of the agent: blocked while its usage limit is reached, as far as known."""
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
        """Keep the state of an answered limit dialog for `GRACE_MS`, until its effect is visible."""
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
        """Forget the limit and cancel the timer."""
        self._begin("")

    def _look_in(self, wait_ms: int) -> None:
        """Call `on_end` after `wait_ms`, instead of any earlier plan."""
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
