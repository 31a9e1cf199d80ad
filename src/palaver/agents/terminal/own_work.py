"""Decide whether a program itself works while its sub-agents work. Pure; time is a parameter.

A program reports `working` with OSC 7501 while any sub-agent works, even if a person has stopped its own
turn. In that case only the screen shows whether the program itself works.
"""

from collections.abc import Collection
from typing import Final

from palaver.agents.terminal.signals import Word
from palaver.harness.profile import Profile
from palaver.model.delivery import AgentState

QUIET_MS: Final = 1_000
"""How long the signs of work must be missing. They also disappear briefly between two frames."""


class OwnWork:
    """The decision for one program."""

    def __init__(self, profile: Profile) -> None:
        self._signs = profile.own_work
        self._rests_ms: int | None = None
        """Since when the screen shows no sign of work; None if it shows one."""

    @property
    def change_ms(self) -> int | None:
        """When it will count as idle, unless a sign of work appears before."""
        return None if self._rests_ms is None else self._rests_ms + QUIET_MS

    def judge(
        self, word: Word | None, others: Collection[str], draft: str | None, text: str, now_ms: int
    ) -> Word | None:
        """Return the reported state, or idle if only `others` work.

        `text` is the screen. It proves nothing while the composer is not visible (`draft` is None).
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
