"""Whose hook it is: the agent at whose process the harness runs, and no other session inside it.

A session that is nobody yet sits down when it starts, where its harness is found above the hook. One whose
hooks were set up later, or whose bus was, sits down with its next prompt.
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
"""A file in the home, left by a hook that waited for us in vain: while it is fresh others hardly wait."""


class HookAsking:
    """Answers hooks that come as processes."""

    def __init__(self, services: Services, doorstep: Doorstep, desk: HookDesk) -> None:
        self._services = services
        self._doorstep = doorstep
        self.desk = desk
        self.permissions = HookPermissions(services)

    async def answer(self, peer: Peer, asked: Asked) -> Answer | None:
        """Say what goes back; None when it is nobody's, or cannot be understood."""
        with suppress(OSError):
            (self._services.home / _SLOW_MARK).unlink()  # whoever answers hangs no more
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
            return None  # the answer would hold messages
        if is_installed and self._services.broker.directory.is_launched(caller.name):
            return None  # it was given hooks when it was started, and must not be heard twice
        speaks = await self.desk.speakers.of(caller, news)
        if speaks is None:
            return None
        self.permissions.hear(*speaks)
        request = HookRequest(asked.key.hex(), is_repeat=asked.resume is not None)
        return await self.desk.answer(speaks[0], harness, speaks[1], request)

    async def _sit_down(
        self, peer: Peer, caller: Caller, claim: Claim, harness: str, news: HookNews
    ) -> Caller:
        """Give a session that starts a name, the one it had before if it had one."""
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
        """True for another session of a harness that runs inside the agent: it speaks only for itself.

        Where a harness is started by way of another process of its name, the session tells the two apart.
        """
        anchored = self._services.seats.nearest(chain)
        if anchored is None:
            return False
        between = chain[1 : anchored.index]
        look = self._doorstep.environments.look
        if not any(look(process).harness for process in between):
            return False
        # Its own second process was started with what the first one had, and by nobody in between.
        is_own = len(between) == 1 and look(between[0]).marks == look(chain[anchored.index]).marks
        if is_own and profile_of(caller.harness).starts_twice:
            return False
        known = self._services.broker.directory.get(caller.name)
        if known is None or known.session in ("", news.session):
            return False
        return news.step is not Step.START or news.source == "startup" or bool(news.agent_id)
