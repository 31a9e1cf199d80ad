"""A harness's own way in, as whoever has it to do with one sees it."""

from collections.abc import Callable
from typing import Protocol

from palaver.agents.native_lane import NativeLane
from palaver.agents.native_subagents import Subagents
from palaver.agents.native_word import Word
from palaver.client.wire import Line

Tell = Callable[[], None]


class WayIn(Protocol):
    """One agent, reached by what its harness has for that."""

    @property
    def lane(self) -> NativeLane:
        """Where offers go, and what became of them."""

    @property
    def subagents(self) -> Subagents:
        """Those that the agent has started, with their own lanes."""

    @property
    def word(self) -> Word | None:
        """What the agent does, while that is known."""

    @property
    def is_over(self) -> bool:
        """It is gone for good, or could never be reached."""

    def start(self) -> None:
        """Reach the harness, once it is up; again is nothing."""

    def connected(self) -> None:
        """The bus knows of us anew: tell it all that it must know beside the state."""

    def claim(self, line: Line, otherwise: Callable[[Line], None]) -> None:
        """Take an offer that is for this way in, and give any other to whom it is for."""

    def decide(self, line: Line) -> None:
        """Take a person's word on what the harness asks leave for."""

    def close(self) -> None:
        """Let go of the harness."""
