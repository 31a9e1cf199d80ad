"""The names of one connection: who asks by it, the names it opened, and who may still speak for them."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from palaver.broker.outcome import Joined
from palaver.doors.services import Services
from palaver.errors import BadRequest, WhoAreYou
from palaver.links.link import Link
from palaver.model.agent import Agent, Caller, Standing, standing_of_role
from palaver.model.caller import caller_for
from palaver.model.lines.holder_ops import SubBeginOp, SubEndOp
from palaver.model.lines.program_ops import JoinOp, LeaveOp
from palaver.model.message import INSTANCE
from palaver.model.request import Join, Leave
from palaver.model.text import check_text

_LIMIT_REASON_BYTES: Final = 1024

Look = Callable[[], Caller]
"""Says who is behind the connection now: the process itself, or the agent it belongs to."""


class Names:
    """Opens names on a link and gives the caller for each request. All of them close with the link."""

    def __init__(self, services: Services, link: Link, look: Look) -> None:
        self._services = services
        self._link = link
        self._look = look
        self._callers: dict[str, Caller] = {}
        self._proofs: dict[str, str] = {}
        self._linked: set[str] = set()

    def caller(self, name: str) -> Caller:
        """Who asks: one of the names opened here, or the process itself. Without a name, the only one opened.

        A name that has left, or that somebody else has taken over since, is no longer this connection's.
        Whoever may speak for an agent may speak for its sub-agents, as long as they live.
        """
        names = self._link.names
        if not name:
            if not names:
                return self._own()
            if len(names) > 1:
                raise WhoAreYou(
                    f"this connection opened several names ({', '.join(names)}): say which with `name`"
                )
            name = next(iter(names))
        if name in names:
            return self._opened(name)
        own = self._own()
        if name == own.name:
            return own
        agent = self._services.broker.directory.get(name)
        if agent is not None and agent.parent and not agent.left:
            parent = self.caller(agent.parent)
            # It has at most the standing of whoever speaks for its parent.
            own = caller_for(agent, at_most=parent.standing)
            return replace(own, by=parent.by, is_orphan=parent.is_orphan)
        raise WhoAreYou(f"this connection has not opened the name {name}: join first")

    def _own(self) -> Caller:
        self._link.caller = self._look()
        return self._link.caller

    def _opened(self, name: str) -> Caller:
        agent = self._services.broker.directory.get(name)
        if agent is None or agent.left or _proof_of(agent) != self._proofs[name]:
            raise WhoAreYou(f"{name} has left, or is somebody else's by now: join again")
        return self._callers[name]

    async def join(self, op: JoinOp) -> dict[str, object]:
        """Open a name, at most with the standing of whoever opens it."""
        own = self._own()
        secret = op.secret or secrets.token_hex(16)
        session = hashlib.sha256(secret.encode()).hexdigest()
        request = Join(
            name=op.name,
            tag=op.tag,
            role=op.role,
            harness=op.harness,
            runtime=op.runtime,
            version=op.version,
            session=session,
            has_link=True,
            takes_over=True,
        )
        joined = await self._services.broker.submit(own, request)
        assert isinstance(joined, Joined)
        agent = joined.agent
        self.take(agent)
        if agent.name not in self._linked:
            self._linked.add(agent.name)
            self._services.presence.link_opened(agent.name)
        return {"name": agent.name, "secret": secret, "device": self._services.log.device}

    def take(self, agent: Agent, standing: Standing | None = None, by: str | None = None) -> None:
        """Speak for an agent from now on, at most with the standing of whoever is behind the connection."""
        if standing is None:
            standing = min(standing_of_role(agent.role), self._own().standing)
        self._link.open_name(agent.name, standing)
        self._callers[agent.name] = Caller(name=agent.name, standing=standing, kind=INSTANCE, by=by)
        self._proofs[agent.name] = _proof_of(agent)

    async def leave(self, op: LeaveOp) -> str:
        """Give a name up, and say which."""
        caller = self.caller(op.name)
        await self._services.broker.submit(caller, Leave(reason=op.reason))
        self._link.close_name(caller.name)
        if caller.name in self._linked:
            self._linked.remove(caller.name)
            self._services.presence.link_closed(caller.name)
        return caller.name

    async def begin_subagent(self, op: SubBeginOp) -> dict[str, object]:
        """Give a sub-agent of one of the names its own name, and say which."""
        parent = self._parent(op.name)
        agent = await self._services.subagents.begun(parent, op.key, op.type)
        if agent is None:
            raise BadRequest(
                f"no sub-agent of {parent} can begin: it has left, its name is too long, or there is no key"
            )
        return {"name": agent.name}

    async def end_subagent(self, op: SubEndOp) -> str:
        """Write that a sub-agent of one of the names has ended, and say which; empty when it was not."""
        check_text(op.reason, "the reason", _LIMIT_REASON_BYTES)
        parent, subagents = self._parent(op.name), self._services.subagents
        known = subagents.find(parent, op.key)
        await subagents.ended(parent, op.key, op.reason)
        return "" if known is None else known.name

    def _parent(self, name: str) -> str:
        caller = self.caller(name)
        if caller.kind != INSTANCE:
            raise WhoAreYou("only an agent has sub-agents: join first")
        return caller.name

    def close(self) -> None:
        """The connection is gone: its names have one link fewer."""
        for name in self._linked:
            self._services.presence.link_closed(name)


def _proof_of(agent: Agent) -> str:
    """Give what shows that an agent is still this connection's: the hash of the secret it was taken with."""
    return agent.holder or agent.session
