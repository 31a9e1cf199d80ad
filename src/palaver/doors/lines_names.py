"""The names of one connection: the caller of each request, the opened names, and the right to use them."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from palaver.broker.context import Joined
from palaver.doors.connection import Link
from palaver.errors import BadRequest, WhoAreYou
from palaver.protocol.agents import INSTANCE, Agent, Caller, Standing, caller_for, standing_of_role
from palaver.protocol.lines import JoinOp, LeaveOp, SubBeginOp, SubEndOp
from palaver.protocol.requests import Join, Leave
from palaver.protocol.text import check_text
from palaver.services.services import Services

_LIMIT_REASON_BYTES: Final = 1024

IdentifyCaller = Callable[[], Caller]
"""Returns the current caller of the connection: the process itself, or the agent it belongs to."""


class Names:
    """The names opened on a link, and the caller for each request. All of them close with the link."""

    def __init__(self, services: Services, link: Link, look: IdentifyCaller) -> None:
        self._services = services
        self._link = link
        self._look = look
        self._callers: dict[str, Caller] = {}
        self._proofs: dict[str, str] = {}
        self._linked: set[str] = set()

    def caller(self, name: str) -> Caller:
        """Return the caller: an opened name, or the process itself. Without `name`, the only name opened.

        Raises WhoAreYou for a name that has left or that another process has taken over since. A connection
        that may speak for an agent may speak for its live sub-agents.
        """
        names = self._link.names
        if not name:
            if not names:
                return self._own()
            if len(names) > 1:
                raise WhoAreYou(
                    f"this connection opened several names ({', '.join(names)}): choose one with `name`"
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
            # Its standing is at most that of the caller that speaks for its parent.
            own = caller_for(agent, at_most=parent.standing)
            return replace(own, by=parent.by, is_orphan=parent.is_orphan)
        raise WhoAreYou(f"this connection has not opened the name {name}: join first")

    def _own(self) -> Caller:
        self._link.caller = self._look()
        return self._link.caller

    def _opened(self, name: str) -> Caller:
        agent = self._services.broker.directory.get(name)
        if agent is None or agent.left or _proof_of(agent) != self._proofs[name]:
            raise WhoAreYou(f"{name} has left, or belongs to another caller now: join again")
        return self._callers[name]

    async def join(self, op: JoinOp) -> dict[str, object]:
        """Open a name, at most with the standing of the caller."""
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
            self._services.callers.presence.link_opened(agent.name)
        return {"name": agent.name, "secret": secret, "device": self._services.queries.device}

    def take(self, agent: Agent, standing: Standing | None = None, by: str | None = None) -> None:
        """Speak for an agent from now on, by default at most with the standing of the caller."""
        if standing is None:
            standing = min(standing_of_role(agent.role), self._own().standing)
        self._link.open_name(agent.name, standing)
        self._callers[agent.name] = Caller(name=agent.name, standing=standing, kind=INSTANCE, by=by)
        self._proofs[agent.name] = _proof_of(agent)

    async def leave(self, op: LeaveOp) -> str:
        """Remove a name and return it."""
        caller = self.caller(op.name)
        await self._services.broker.submit(caller, Leave(reason=op.reason))
        self._link.close_name(caller.name)
        if caller.name in self._linked:
            self._linked.remove(caller.name)
            self._services.callers.presence.link_closed(caller.name)
        return caller.name

    async def begin_subagent(self, op: SubBeginOp) -> dict[str, object]:
        """Register a sub-agent of one of the names and return its name."""
        parent = self._parent(op.name)
        agent = await self._services.agents.subagents.begun(parent, op.key, op.type)
        if agent is None:
            raise BadRequest(
                f"no sub-agent of {parent} can begin: it has left, its name is too long, or there is no key"
            )
        return {"name": agent.name}

    async def end_subagent(self, op: SubEndOp) -> str:
        """Record the end of a sub-agent and return its name; empty if there was no such sub-agent."""
        check_text(op.reason, "the reason", _LIMIT_REASON_BYTES)
        parent, subagents = self._parent(op.name), self._services.agents.subagents
        known = subagents.find(parent, op.key)
        await subagents.ended(parent, op.key, op.reason)
        return "" if known is None else known.name

    def _parent(self, name: str) -> str:
        caller = self.caller(name)
        if caller.kind != INSTANCE:
            raise WhoAreYou("only an agent has sub-agents: join first")
        return caller.name

    def close(self) -> None:
        """Count one link less for each name of the closed connection."""
        for name in self._linked:
            self._services.callers.presence.link_closed(name)


def _proof_of(agent: Agent) -> str:
    """Return the hash of the secret that the agent was taken with; a connection with another has lost it."""
    return agent.holder or agent.session
