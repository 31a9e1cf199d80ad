"""Find the speaker of a hook in a session: the agent itself, or one of its sub-agents.

A sub-agent has a separate conversation. Its hooks report its state, carry its messages and prove what it has
read; none of that counts for its parent. Finding a known sub-agent costs no disk access.
"""

from dataclasses import replace
from typing import Final

from palaver.doors.subagents import Subagents
from palaver.harness.hook_news import HookNews, Step
from palaver.model.agent import Caller
from palaver.model.caller import caller_for

_BEGINNINGS: Final = frozenset({Step.START, Step.PROMPT, Step.CALL, Step.RESULT, Step.BATCH})
"""Steps that begin an unknown sub-agent. Its first hooks may have run while no daemon was running."""
_RETURNS: Final = frozenset({Step.START, Step.PROMPT, Step.CALL})
"""Steps that resume an ended sub-agent. Other hooks may only be late."""


class Speakers:
    """The search for the speaker of a hook. Use it only on the event loop's thread."""

    def __init__(self, subagents: Subagents) -> None:
        self._subagents = subagents

    async def of(self, caller: Caller, news: HookNews) -> tuple[Caller, HookNews] | None:
        """Return the speaker, and the hook as that agent's own; None for a sub-agent that does not run.

        A resumed sub-agent receives nothing at its start, because a harness does not pass that to the model
        again.
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
        # A wake of the session does not wake its sub-agents. A sub-agent found late gets its name late.
        own = replace(news, agent_id="", session=key, step=step, is_woken=False)
        return caller_for(known), replace(own, is_new=not was_here and step is not Step.START)

    async def ended(self, caller: Caller, news: HookNews) -> None:
        """End the sub-agent that speaks, or all of the speaker's sub-agents, if the hook says so."""
        if news.is_over:
            await self._subagents.left(caller.name, "done")
        elif news.is_alone:
            for agent in self._subagents.of(caller.name):
                await self._subagents.left(agent.name, f"{caller.name} ended its turn without it")
