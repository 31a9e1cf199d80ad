"""When a text given to a harness has been in a request to its model, as the order of its hooks shows.

Pure: hooks in, places of messages out. It claims nothing that the order does not prove:

- What is given with a prompt, at the start, at the end of a turn or behind all results is in the next
  request.
- What is given with one result may still wait for the other tools of the same answer. It is in the next
  request after the harness has said that all have ended, or at the latest when the turn ends.
- That a request was made is shown by the model's answer: a tool call, or the end of the turn.
"""

from collections.abc import Iterable
from typing import Final

from palaver.harness.hook_news import HookNews, Step

_ANSWERS: Final = frozenset({Step.CALL, Step.TURN_END})
_LIMIT: Final = 1000
"""So many are followed at once; then the oldest is given up, and stays unproven."""


class Trail:
    """One conversation. Hooks of sub-agents are no part of it, and are passed over."""

    def __init__(self) -> None:
        self._next: dict[int, None] = {}
        """In the next request, whenever that is made."""
        self._gathering: dict[int, None] = {}
        """Given with a result while others may still run."""

    @property
    def has_open(self) -> bool:
        """Whether something was given of which nothing is known yet."""
        return bool(self._next or self._gathering)

    def give(self, step: Step, places: Iterable[int]) -> None:
        """These were given to the harness at a hook of that kind."""
        kept = self._gathering if step is Step.RESULT else self._next
        for place in places:
            kept[place] = None
        while len(kept) > _LIMIT:
            del kept[next(iter(kept))]

    def hear(self, news: HookNews) -> frozenset[int]:
        """Take a hook in, before anything is given with it. Gives what is now proven to have been seen."""
        if news.agent_id:
            return frozenset()
        proven: frozenset[int] = frozenset()
        if news.step in _ANSWERS:
            proven = frozenset(self._next)
            self._next.clear()
        if news.step is Step.TURN_END:  # no turn ends between results and the request that holds them
            proven |= frozenset(self._gathering)
            self._gathering.clear()
        elif news.step is Step.BATCH:
            self._next |= self._gathering
            self._gathering.clear()
        return proven

    def forget(self) -> None:
        """The conversation is another one now: what was given is not in it."""
        self._next.clear()
        self._gathering.clear()
