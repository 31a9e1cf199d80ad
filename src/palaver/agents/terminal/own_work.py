"""Whether a program itself works while sub-agents that it started do too. Pure; time is handed in.

What it says of itself by OSC 7501 is `working` as long as any of them works, also when a person has stopped
its own turn. Then its screen tells.
"""

from collections.abc import Collection
from typing import Final

from palaver.agents.terminal.signals import Word
from palaver.harness.profile import Profile
from palaver.model.delivery import AgentState

QUIET_MS: Final = 1_000
"""So long no sign of its work may be there: between two pictures there is a moment without any."""


class OwnWork:
    """Of one program."""

    def __init__(self, profile: Profile) -> None:
        self._signs = profile.own_work
        self._rests_ms: int | None = None
        """Since when there is no sign of its own work."""

    @property
    def change_ms(self) -> int | None:
        """The moment at which it counts as resting, unless a sign of work comes before."""
        return None if self._rests_ms is None else self._rests_ms + QUIET_MS

    def judge(
        self, word: Word | None, others: Collection[str], draft: str | None, text: str, now_ms: int
    ) -> Word | None:
        """Give what it says of itself, or that it rests where only `others` work.

        `text` is what its screen shows; where its composer has no `draft`, not even an empty one, that tells
        nothing.
        """
        is_shared = word is not None and word.state is AgentState.ACTIVE and bool(others)
        if not is_shared or not self._signs or draft is None or self._has_sign(text):
            self._rests_ms = None
            return word
        if self._rests_ms is None:
            self._rests_ms = now_ms
        return Word(AgentState.IDLE) if now_ms - self._rests_ms >= QUIET_MS else word

    def _has_sign(self, text: str) -> bool:
        return any(sign.search(text) for sign in self._signs)
