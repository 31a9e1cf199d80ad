"""Find the agent of a hook process: the one whose process runs the harness, not a session nested in it.

A session without an agent joins when it starts, if its harness is found above the hook process. A session
whose hooks or daemon were installed later joins at its next prompt.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Final

from palaver.broker.outcome import Joined
from palaver.doors.argv.run import marks_of
from palaver.doors.argv.wire import Asked
from palaver.doors.hooks.desk import Answer, HookDesk
from palaver.doors.hooks.outcomes import HookRequest
from palaver.doors.hooks.permissions import HookPermissions
from palaver.doors.services import Services
from palaver.doors.sessions import free_session
from palaver.errors import AlreadyJoined, BadRequest
from palaver.harness.claude_launch import has_waker
from palaver.harness.hook_news import HookNews, Step
from palaver.harness.hooks import read_hook
from palaver.harness.profiles import profile_of
from palaver.harness.setups import INSTALLED
from palaver.links.doorstep import Doorstep
from palaver.links.identity import Claim, who_joins
from palaver.links.peer import Peer
from palaver.links.process import Process
from palaver.model.agent import Caller
from palaver.model.message import INSTANCE
from palaver.model.request import Join

_VERB: Final = "hook"
_SLOW_MARK: Final = "slow"
"""A file in the home, created by a hook that timed out. While it is new, other hooks wait only briefly."""


class HookAsking:
    """The handler of hooks that arrive from hook processes."""

    def __init__(self, services: Services, doorstep: Doorstep, desk: HookDesk) -> None:
        self._services = services
        self._doorstep = doorstep
        self.desk = desk
        self.permissions = HookPermissions(services)

    async def answer(self, peer: Peer, asked: Asked) -> Answer | None:
        """Return the reply; None if the hook belongs to no agent or cannot be read."""
        with suppress(OSError):
            (self._services.home / _SLOW_MARK).unlink()  # this daemon replies, so hooks may wait for it again
        words = asked.argv[asked.argv.index(_VERB) + 1 :] if _VERB in asked.argv else ()
        is_installed = words[2:] == (INSTALLED,)
        is_whole = len(words) == 2 or is_installed
        news = read_hook(words[0], words[1], asked.body) if is_whole else None
        if news is None:
            return None
        harness = words[0]
        chain = tuple(peer.chain(self._services.seats.is_anchor))
        claim = Claim(marks=marks_of(asked.environment), key=news.session)
        if self._doorstep.is_forged(chain, claim, child=news.agent_id):
            return None
        caller = self._doorstep.who(chain, claim)
        if caller.kind != INSTANCE:
            caller = await self._sit_down(peer, caller, claim, harness, news)
            news = replace(news, is_new=True)
        news = replace(news, is_woken=has_waker(harness, asked.environment))
        if caller.kind != INSTANCE or caller.harness != harness or self._is_inside(chain, caller, news):
            return None
        if caller.is_orphan:
            return None  # it must not get the messages that the reply may contain
        if is_installed and self._services.broker.directory.is_launched(caller.name):
            return None  # hooks from its launch report already; do not count each event twice
        speaks = await self.desk.speakers.of(caller, news)
        if speaks is None:
            return None
        self.permissions.hear(*speaks)
        request = HookRequest(asked.key.hex(), is_repeat=asked.resume is not None)
        return await self.desk.answer(speaks[0], harness, speaks[1], request)

    async def _sit_down(
        self, peer: Peer, caller: Caller, claim: Claim, harness: str, news: HookNews
    ) -> Caller:
        """Register a starting session under its former name, or a new one. Return the caller of the hook."""
        if news.step not in (Step.START, Step.PROMPT) or news.agent_id:
            return caller
        chain = tuple(peer.chain())
        try:
            anchor = self._doorstep.place(chain, claim)
        except (AlreadyJoined, BadRequest):
            return caller
        if anchor.harness != harness:
            return caller
        session = free_session(self._services, harness, news.session)
        request = Join(harness=harness, seat=anchor.seat, session=session, cwd=news.cwd)
        joined = await self._services.broker.submit(who_joins(caller), request)
        assert isinstance(joined, Joined)
        return self._doorstep.who(chain, claim)

    def _is_inside(self, chain: tuple[Process, ...], caller: Caller, news: HookNews) -> bool:
        """Return whether the hook is from another session of a harness that runs inside the agent.

        If a harness starts through a second process of the same name, the session id tells the two cases
        apart.
        """
        anchored = self._services.seats.nearest(chain)
        if anchored is None:
            return False
        between = chain[1 : anchored.index]
        look = self._doorstep.environments.look
        if not any(look(process).harness for process in between):
            return False
        # The harness's own second process has the same marks as the first one and is its direct child.
        is_own = len(between) == 1 and look(between[0]).marks == look(chain[anchored.index]).marks
        if is_own and profile_of(caller.harness).starts_twice:
            return False
        known = self._services.broker.directory.get(caller.name)
        if known is None or known.session in ("", news.session):
            return False
        return news.step is not Step.START or news.source == "startup" or bool(news.agent_id)
