"""Whose hook it is inside a session: the agent's own, or that of one of its sub-agents.

A sub-agent has a conversation of its own. Its hooks say what it is doing, carry its mail and prove what it
has read; nothing of that is its parent's. One that is known costs nothing to find.
"""

from dataclasses import replace
from typing import Final

from palaver.doors.subagents import Subagents
from palaver.harness.hook_news import HookNews, Step
from palaver.model.agent import Caller
from palaver.model.caller import caller_for

_BEGINNINGS: Final = frozenset({Step.START, Step.PROMPT, Step.CALL, Step.RESULT, Step.BATCH})
"""Hooks by which a sub-agent begins that is not known: the first ones may have come while nobody listened."""
_RETURNS: Final = frozenset({Step.START, Step.PROMPT, Step.CALL})
"""Hooks by which one goes on that had ended. Others may only be late."""


class Speakers:
    """Tells who speaks in a hook. Belongs to the loop's thread."""

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    async def of(self, caller: Caller, news: HookNews) -> tuple[Caller, HookNews] | None:
        """Give who speaks, and the hook as that one's own; None for a sub-agent that is not there.

        A sub-agent that goes on with what it did before is given nothing at its start: a harness does not put
        that to the model again.
        """
        key = news.agent_id
        if not key:
            return caller, news
        known = self._subagents.find(caller.name, key)
        was_here = known is not None or self._subagents.was_here(caller.name, key)
        if known is None:
            if news.step not in (_RETURNS if was_here else _BEGINNINGS):
                return None
            known = await self._subagents.begun(caller.name, key, news.agent_type)
            if known is None:
                return None
        if news.step is Step.CALL and news.call:
            self._subagents.calls(news.call, key)
        step = Step.ASIDE if news.step is Step.START and was_here else news.step
        # What wakes a session wakes no sub-agent of it, and one that is met late is told its name late.
        own = replace(news, agent_id="", session=key, step=step, is_woken=False)
        return caller_for(known), replace(own, is_new=not was_here and step is not Step.START)

    async def ended(self, caller: Caller, news: HookNews) -> None:
        """Take in what a hook says of the end of sub-agents: of the one that speaks, or of all there are."""
        if news.is_over:
            await self._subagents.left(caller.name, "done")
        elif news.is_alone:
            for agent in self._subagents.of(caller.name):
                await self._subagents.left(agent.name, f"{caller.name} ended its turn without it")
