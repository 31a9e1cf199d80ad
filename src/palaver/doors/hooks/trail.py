"""Decide from the order of hooks when a text passed to a harness has been in a request to its model.

Pure: hooks in, seqs of messages out. It claims nothing that the order does not prove:

- A text passed with a prompt, at the start, at the end of a turn or after all results is in the next request.
- A text passed with one result may still wait for the other tools of the same reply. It is in the next
  request after the harness has reported that all have ended, or at the latest when the turn ends.
- The model's reply shows that a request was made: a tool call, or the end of the turn.
- A prompt that is directly followed by another one got no reply: another hook may have kept it from the
  model, or a person withdrew it. A text passed with it stays unproven, whatever comes later.
- A turn that failed, with no other hook after its prompt: the harness has dropped the prompt, and the text.
"""

from collections.abc import Iterable
from typing import Final

from palaver.harness.hook_news import HookNews, Step

_ANSWERS: Final = frozenset({Step.CALL, Step.TURN_END})
_RESULTS: Final = frozenset({Step.RESULT, Step.BATCH})
_LIMIT: Final = 1000
"""Messages followed at once. When full, the oldest is dropped and stays unproven."""


class Trail:
    """The evidence of one conversation. Hooks of sub-agents are ignored."""

    def __init__(self) -> None:
        self._next: dict[int, None] = {}
        """In the next request, whenever that is made."""
        self._gathering: dict[int, None] = {}
        """Passed with a result while other tools may still run."""
        self._prompted: dict[int, None] = {}
        """Passed with the last prompt, after which no hook has come yet."""
        self._doubtful: set[int] = set()

    @property
    def has_open(self) -> bool:
        """Return whether a text was passed whose evidence is still open."""
        return bool(self._next or self._gathering or self._prompted)

    def give(self, step: Step, places: Iterable[int]) -> None:
        """Record that these messages were passed to the harness at a hook of that step."""
        kept = {Step.RESULT: self._gathering, Step.PROMPT: self._prompted}.get(step, self._next)
        for place in places:
            kept[place] = None
        while len(kept) > _LIMIT:
            del kept[next(iter(kept))]

    def hear(self, news: HookNews) -> frozenset[int]:
        """Process a hook before anything is passed with it. Return the messages that it proves seen."""
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
        if news.step is Step.TURN_END:  # the request with the results is made before the turn ends
            proven |= frozenset(self._gathering)
            self._gathering.clear()
        elif news.step is Step.BATCH:
            self._next |= self._gathering
            self._gathering.clear()
        return proven

    def take_doubtful(self) -> frozenset[int]:
        """Remove and return the messages that can never be proven."""
        doubtful = frozenset(self._doubtful)
        self._doubtful.clear()
        return doubtful

    def take_dropped(self) -> frozenset[int]:
        """Remove and return the messages passed with the last prompt, because the harness has dropped it."""
        dropped = frozenset(self._prompted)
        self._prompted.clear()
        return dropped

    def forget(self) -> None:
        """Forget all texts, because the context of the conversation no longer contains them."""
        self._next.clear()
        self._gathering.clear()
        self._prompted.clear()
