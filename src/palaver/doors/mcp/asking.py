"""Find the caller of a tool call through a pump: the same seat as for a command in that session.

A shared server process serves several sessions; each call names its session in `_meta`. A session without an
agent that joins a room joins the bus first, as with `pal join`. Before that it cannot send, because no agent
could reply to it.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from palaver.broker.outcome import Joined
from palaver.doors.argv.run import marks_of
from palaver.doors.argv.wire import Asked
from palaver.doors.services import Services
from palaver.doors.sessions import free_session
from palaver.doors.tools.tools import Tool
from palaver.errors import AlreadyJoined, NotFound, WhoAreYou
from palaver.harness.meta import call_in_meta, session_in_meta
from palaver.links.doorstep import Doorstep
from palaver.links.environment import read_home
from palaver.links.identity import Claim, act_as, who_joins
from palaver.links.peer import Peer
from palaver.links.process import Process
from palaver.model.agent import Caller
from palaver.model.message import EXTERNAL
from palaver.model.request import Join

_JOINS: Final = "join_path"
_WRITES: Final = "send"


class Asking:
    """The search for the caller of one pump, repeated for every call: an agent may have joined since."""

    def __init__(
        self, services: Services, doorstep: Doorstep, peer: Peer, asked: Asked, as_name: str
    ) -> None:
        self._services = services
        self._doorstep = doorstep
        self._peer = peer
        self._marks = marks_of(asked.environment)
        self._as_name = as_name
        self.home = read_home(peer.pid)

    def session(self, meta: Mapping[str, object] | None) -> str:
        """Return the key of the session or sub-agent that makes a call; empty if none is named."""
        return session_in_meta(meta) or self._services.subagents.caller_of(call_in_meta(meta))

    async def who(self, tool: Tool, session: str, key: bytes) -> Caller:
        """Return the caller of a tool. `session` is the one that `_meta` names; `key` is the request key."""
        caller = self._look(session)
        if self._as_name:
            return caller
        is_other = bool(session) and caller.seat is not None and caller.seat.key not in ("", session)
        if tool.name == _JOINS and (is_other or caller.kind == EXTERNAL):
            return await self._sit_down(caller, session, key)
        if is_other:
            raise WhoAreYou(f"this session is not {caller.name}, and has not joined: call join_path first")
        if tool.name == _WRITES and session and caller.kind == EXTERNAL:
            raise WhoAreYou(
                "this session has no name on the bus, so nobody could answer it: call join_path first. "
                "Nothing was sent"
            )
        return caller

    def _look(self, session: str) -> Caller:
        chain = self._chain(is_whole=False)
        claim = Claim(marks=self._marks, key=session)
        if self._doorstep.is_forged(chain, claim):
            raise WhoAreYou("this call names another session than the one that started this server")
        caller = self._doorstep.who(chain, claim)
        if not self._as_name or self._as_name.removeprefix("@").lower() == caller.name:
            return caller
        target = self._services.broker.directory.find(self._as_name)
        if target is None:
            raise NotFound(f"agent {self._as_name}", "--as takes the full name of an agent")
        return act_as(caller, target)

    async def _sit_down(self, caller: Caller, session: str, key: bytes) -> Caller:
        claim = Claim(marks=self._marks, key=session)
        try:
            anchor = self._doorstep.place(self._chain(is_whole=True), claim)
        except AlreadyJoined:
            return self._look(session)
        own = free_session(self._services, anchor.harness, anchor.session)
        request = Join(harness=anchor.harness, seat=anchor.seat, session=own)
        own_key = hashlib.sha256(key + b"join").digest()[:16]
        joined = await self._services.broker.submit(who_joins(caller), request, key=own_key)
        assert isinstance(joined, Joined)
        return self._look(session)

    def _chain(self, *, is_whole: bool) -> tuple[Process, ...]:
        chain = tuple(self._peer.chain(None if is_whole else self._services.seats.is_anchor))
        if not chain and self._peer.pid:
            raise WhoAreYou("the process that asked has ended")
        return chain
