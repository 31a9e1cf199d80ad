"""When a text given to a harness has been in a request to its model, as the order of its hooks shows.

Pure: hooks in, places of messages out. It claims nothing that the order does not prove:

- What is given with a prompt, at the start, at the end of a turn or behind all results is in the next
  request.
- What is given with one result may still wait for the other tools of the same answer. It is in the next
  request after the harness has said that all have ended, or at the latest when the turn ends.
- That a request was made is shown by the model's answer: a tool call, or the end of the turn.
- A prompt that another one follows with nothing in between was answered by nobody: another hook may have kept
  it from the model, or a person took it back. What was given with it is in doubt, whatever comes later.
"""

from collections.abc import Iterable
from typing import Final

from palaver.harness.hook_news import HookNews, Step

_ANSWERS: Final = frozenset({Step.CALL, Step.TURN_END})
_RESULTS: Final = frozenset({Step.RESULT, Step.BATCH})
_LIMIT: Final = 1000
"""So many are followed at once; then the oldest is given up, and stays unproven."""


class Trail:
    """One conversation. Hooks of sub-agents are no part of it, and are passed over."""

    def __init__(self) -> None:
        self._next: dict[int, None] = {}
        """In the next request, whenever that is made."""
        self._gathering: dict[int, None] = {}
        """Given with a result while others may still run."""
        self._prompted: dict[int, None] = {}
        """Given with the last prompt, behind which nothing has come yet."""
        self._doubtful: set[int] = set()

    @property
    def has_open(self) -> bool:
        """Whether something was given of which nothing is known yet."""
        return bool(self._next or self._gathering or self._prompted)

    def give(self, step: Step, places: Iterable[int]) -> None:
        """These were given to the harness at a hook of that kind."""
        kept = {Step.RESULT: self._gathering, Step.PROMPT: self._prompted}.get(step, self._next)
        for place in places:
            kept[place] = None
        while len(kept) > _LIMIT:
            del kept[next(iter(kept))]

    def hear(self, news: HookNews) -> frozenset[int]:
        """Take a hook in, before anything is given with it. Gives what is now proven to have been seen."""
        if news.agent_id:
            return frozenset()
        proven: frozenset[int] = frozenset()
        if news.step is Step.PROMPT:
            self._doubtful.update(self._prompted)
            self._prompted.clear()
        elif news.step in _ANSWERS or news.step in _RESULTS:
            self._next |= self._prompted
            self._prompted.clear()
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

    def take_doubtful(self) -> frozenset[int]:
        """Give what can never be proven any more, once."""
        doubtful = frozenset(self._doubtful)
        self._doubtful.clear()
        return doubtful

    def forget(self) -> None:
        """The conversation is another one now: what was given is not in it."""
        self._next.clear()
        self._gathering.clear()
        self._prompted.clear()
