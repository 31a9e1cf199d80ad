"""What agents ask leave for, and the person's word that whoever asked for them waits for.

In memory only: a request lives as long as somebody waits for it, a hook or a connection. With the setting
`approvals` off nobody waits. When nobody answers in time the answer is no. What is answered is the one
request that was shown: it is known by a hash of its session, tool and input, and one that is over cannot be
answered.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from palaver.broker.context import SYSTEM_CALLER
from palaver.doors.services import Services
from palaver.errors import BadRequest, NotFound
from palaver.harness.hook_news import one_line
from palaver.harness.hook_states import THINKING
from palaver.harness.permissions import permission_text
from palaver.model.agent import Caller
from palaver.model.delivery import AgentState
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.permission import DENY, LIMIT_TEXT, NOTHING, AskPermission, ClosePermission, request_digest
from palaver.model.request import SetStatus

LIMIT_WAIT_S: Final = 3600
"""Nobody waits longer, whatever the setting says: a harness gives up on its hook soon after."""
_LIMIT_OVER: Final = 200
_LIMIT_OPEN: Final = 500
_LIMIT_OF_AGENT: Final = 20
"""So many of one agent wait: no agent takes the room of all others."""


@dataclass(slots=True, eq=False)
class Pending:
    """One request that waits. Belongs to the loop's thread."""

    id: str
    digest: str
    caller: Caller
    session: str
    tool: str
    input: Mapping[str, object]
    text: str
    since_ms: int
    until_ms: int
    decided: "asyncio.Future[bool | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Whether a person allowed it; None when nobody can answer any more."""
    arrived: "asyncio.Future[bool]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Whether the harness has the answer."""
    is_taken: bool = False
    """Somebody is answering it."""

    @property
    def agent(self) -> str:
        return self.caller.name

    @property
    def harness(self) -> str:
        return self.caller.harness

    def leave(self) -> None:
        """Who waited has gone, or the agent has: nobody can answer any more."""
        if not self.decided.done():
            self.decided.set_result(None)
        self.arrive(has_it=False)

    def arrive(self, *, has_it: bool) -> None:
        """It is known whether the harness has the answer."""
        if not self.arrived.done():
            self.arrived.set_result(has_it)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a request. None: nobody here has answered, and the harness asks its own user."""

    is_allowed: bool | None
    message: str = ""


class PermissionBook:
    """Every request that waits now, and for a while those that are over."""

    def __init__(self) -> None:
        self._open: dict[str, Pending] = {}
        self._over: dict[str, str] = {}
        self._count = 0

    def all(self) -> Sequence[Pending]:
        """Those that wait, the oldest first."""
        return tuple(self._open.values())

    def add(
        self,
        caller: Caller,
        session: str,
        tool: str,
        given: Mapping[str, object],
        *,
        now_ms: int,
        wait_ms: int,
    ) -> Pending:
        """Take a request in. Raises BadRequest when too many wait, of the agent or of all."""
        if sum(one.agent == caller.name for one in self._open.values()) >= _LIMIT_OF_AGENT:
            raise _too_many(_LIMIT_OF_AGENT, f" of {caller.name}")
        if len(self._open) >= _LIMIT_OPEN:
            raise _too_many(_LIMIT_OPEN)
        self._count += 1
        digest = request_digest(session, tool, given)
        pending = Pending(
            id=f"{digest[:6]}{self._count}",
            digest=digest,
            caller=caller,
            session=session,
            tool=one_line(tool),
            input=given,
            text=one_line(permission_text(tool, given), LIMIT_TEXT),
            since_ms=now_ms,
            until_ms=now_ms + wait_ms,
        )
        self._open[pending.id] = pending
        return pending

    def take(self, id: str) -> Pending:
        """Give the request that somebody answers now; raises what says why it cannot be answered."""
        pending = self._open.get(id)
        if pending is None:
            hint = self._over.get(id, "'pal pending' shows those that can be answered")
            raise NotFound(f"request {id} for a permission", hint)
        if pending.is_taken or pending.decided.done():
            raise BadRequest(f"the request {id} is being answered")
        pending.is_taken = True
        return pending

    def close(self, pending: Pending, reason: str) -> None:
        """It is over. The first reason counts."""
        if self._open.pop(pending.id, None) is None:
            return
        self._over[pending.id] = reason
        while len(self._over) > _LIMIT_OVER:
            del self._over[next(iter(self._over))]


class PermissionDesk:
    """Takes requests in, and lets whoever asked wait for a person's word."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def take(
        self, caller: Caller, session: str, tool: str, given: Mapping[str, object]
    ) -> Pending | None:
        """Take in what an agent asks leave for, however it is answered; None when nobody is to be waited for.

        `verdict` must follow. Raises BadRequest when too many wait, of the agent or of all.
        """
        services = self._services
        if not services.settings.approvals:
            return None
        wait_ms = min(services.settings.approvals_wait_s, LIMIT_WAIT_S) * 1000
        now_ms = services.clock.now_ms()
        pending = services.permissions.add(caller, session, tool, given, now_ms=now_ms, wait_ms=wait_ms)
        request = AskPermission(
            name=pending.agent,
            permission=pending.id,
            tool=pending.tool,
            text=pending.text,
            digest=pending.digest,
            until=pending.until_ms,
        )
        try:
            await services.broker.submit(SYSTEM_CALLER, request)
        except BaseException:
            services.permissions.close(pending, "it could not be written down")
            raise
        return pending

    async def verdict(self, pending: Pending, *, is_told: bool = False) -> Verdict:
        """Wait for a person's word. Leaves when the agent goes. When the time is over the answer is no.

        `is_told`: whoever asks says itself what the agent does afterwards.
        """
        services = self._services

        def follow(events: Sequence[Event]) -> None:
            if any(event.type == BYE and event.sender == pending.agent for event in events):
                pending.leave()

        unsubscribe = services.log.subscribe(follow)
        try:
            wait_s = (pending.until_ms - pending.since_ms) / 1000
            await asyncio.wait({pending.decided}, timeout=wait_s)
            while pending.is_taken and not pending.decided.done():
                await asyncio.wait({pending.decided})  # it is being written down
            return await self._closed(pending, is_told=is_told)
        finally:
            unsubscribe()
            services.permissions.close(pending, "it is over")

    async def _closed(self, pending: Pending, *, is_told: bool) -> Verdict:
        book = self._services.permissions
        if not pending.decided.done():
            pending.decided.set_result(None)
            book.close(pending, "nobody answered it in time, so it was denied")
            await self._write(pending, DENY, "timeout")
            if not is_told:
                await self._goes_on(pending, is_allowed=False)
            return Verdict(is_allowed=False, message="nobody answered in time")
        is_allowed = pending.decided.result()
        if is_allowed is None:
            book.close(pending, "it was answered elsewhere, or its session has gone")
            await self._write(pending, NOTHING, "gone")
            return Verdict(is_allowed=None)
        book.close(pending, "it was answered already")
        if not is_told:
            await self._goes_on(pending, is_allowed=is_allowed)
        return Verdict(is_allowed=is_allowed, message="" if is_allowed else "a person said no")

    async def _goes_on(self, pending: Pending, *, is_allowed: bool) -> None:
        """Write that the agent is blocked no more; its next hook says better what it does."""
        broker = self._services.broker
        known = broker.directory.get(pending.agent)
        if known is None or known.left or known.state != AgentState.BLOCKED:
            return
        detail = one_line(pending.text) if is_allowed else THINKING
        await broker.submit(pending.caller, SetStatus(state=AgentState.ACTIVE, detail=detail))

    async def _write(self, pending: Pending, decision: str, reason: str) -> None:
        request = ClosePermission(name=pending.agent, permission=pending.id, decision=decision, reason=reason)
        await self._services.broker.submit(SYSTEM_CALLER, request)


def _too_many(limit: int, whose: str = "") -> BadRequest:
    return BadRequest(
        f"{limit} requests{whose} wait for a person already: this one is asked at its own terminal"
    )
