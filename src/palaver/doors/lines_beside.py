"""Companions of sessions that `pal` did not start, and permission requests that harnesses report on lines.

A companion gives its session a seat at the harness process that started the companion, and at no other
process. While it lives, no other process can become the companion of that session. A process that another
session of the harness started is refused. Only a person can decide a permission request; without the setting
`approvals` no request waits here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from palaver.broker.outcome import Joined
from palaver.doors.lines_names import Names
from palaver.doors.permissions import Pending, PermissionDesk
from palaver.doors.services import Services
from palaver.doors.sessions import free_session
from palaver.errors import BadRequest, PalaverError
from palaver.harness.marks import SESSION_MARKS
from palaver.links.environment import read_marks
from palaver.links.identity import SCRIPT
from palaver.links.joining import Anchor
from palaver.links.process import Process
from palaver.log.state import read_unsure
from palaver.model.agent import Agent, Caller, Standing, standing_of_role
from palaver.model.caller import caller_for
from palaver.model.lines.holder_ops import GONE, TAKEN, AccompanyOp, PermissionOp
from palaver.model.message import INSTANCE
from palaver.model.permission import request_digest
from palaver.model.request import Join

Place = Callable[[str], Anchor]
"""Returns the anchor of a session with this key for the calling process; raises if it may not join there."""
See = Callable[[], list[Process]]
Push = Callable[[Mapping[str, object]], None]
"""Sends one `decision` push without waiting."""
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Companions:
    """The sessions whose companion uses one connection."""

    def __init__(self, services: Services, names: Names, see: See, place: Place) -> None:
        self._services = services
        self._names = names
        self._see = see
        self._place = place

    async def accompany(self, op: AccompanyOp) -> dict[str, object]:
        """Register a session under its former name, or a new one. Its later requests carry `by`."""
        chain = self._see()
        if len(chain) < 2:
            raise BadRequest("the process that asks cannot be seen, so it cannot be a companion")
        _check_own(chain, op)
        self._services.companions.take(op.harness, op.session, chain[0])
        agent = self._seated(op) or await self._sit_down(op)
        assert agent.seat is not None  # both branches set a seat
        self._names.take(agent, min(standing_of_role(agent.role), Standing.WORKER), by=SCRIPT.name)
        return {
            "name": agent.name,
            "seat": self._services.seats.mark(agent.seat, agent.name),
            "role": agent.role,
            "tag": agent.tag,
            "harness": agent.harness,
            "device": self._services.log.device,
            "unsure": read_unsure(self._services.log.rows, agent.name),
        }

    def _seated(self, op: AccompanyOp) -> Agent | None:
        """Return the agent of a session that already has its seat, because its companion reconnects."""
        parents = self._see()[1:2]
        at = self._services.seats.at(parents[0]) if parents else []
        return next((one for one in at if _is_session(one, op) and not one.holder), None)

    async def _sit_down(self, op: AccompanyOp) -> Agent:
        anchor = self._place(op.session)
        parents = self._see()[1:2]
        is_parent = bool(parents) and (parents[0].pid, parents[0].start) == (
            anchor.seat.pid,
            anchor.seat.start,
        )
        if anchor.harness != op.harness or not is_parent:
            raise BadRequest(f"a companion is started by {op.harness} itself, and this process was not")
        session = free_session(self._services, op.harness, op.session)
        request = Join(harness=op.harness, seat=anchor.seat, session=session, cwd=op.cwd, version=op.version)
        joined = await self._services.broker.submit(SCRIPT, request)
        assert isinstance(joined, Joined)
        return joined.agent


class AskedOnLines:
    """The permission requests that one connection has reported. They end with it."""

    def __init__(self, services: Services, push: Push, spawn: Spawn) -> None:
        self._services = services
        self._desk = PermissionDesk(services)
        self._push = push
        self._spawn = spawn
        self._open: dict[tuple[str, str], Pending] = {}
        self._is_closed = False

    async def hear(self, caller: Caller, op: PermissionOp) -> dict[str, object]:
        """Record a new permission request or the outcome of one. The result has its `id`, if it waits."""
        if caller.kind != INSTANCE:
            raise BadRequest("only an agent can request permission: join first")
        key = caller.name, op.request
        if op.outcome:
            self._settle(key, op.outcome)
            return {}
        if (known := self._open.get(key)) is not None:
            if known.digest == request_digest(op.session, op.tool, op.input):
                return {"id": known.id}
            self._settle(key, GONE)  # it has changed: a decision on the old request must not apply
        agent = self._services.broker.directory.get(caller.name)
        assert agent is not None  # `Names.caller` has just found it
        asking = caller_for(agent, at_most=caller.standing)
        pending = await self._desk.take(asking, op.session, op.tool, op.input)
        if pending is None:
            return {"id": None}
        self._open[key] = pending
        if self._is_closed:
            pending.leave()  # the connection closed while the request was stored
        self._spawn(self._wait(key, pending))
        return {"id": pending.id}

    async def _wait(self, key: tuple[str, str], pending: Pending) -> None:
        """Push a person's decision to the harness, and wait until the harness has accepted it."""
        name, request = key
        try:
            verdict = await self._desk.verdict(pending, is_told=True)
            if verdict.is_allowed is not None and self._open.get(key) is pending:
                word = {"allowed": verdict.is_allowed, "digest": pending.digest}
                self._push({"name": name, "request": request, **word})
                await asyncio.wait({pending.arrived})
        except PalaverError:
            pass  # the log is closing, so the harness asks at its own terminal
        finally:
            pending.leave()
            if self._open.get(key) is pending:
                del self._open[key]

    def _settle(self, key: tuple[str, str], outcome: str) -> None:
        if (pending := self._open.get(key)) is None:
            return
        if outcome == TAKEN:
            pending.arrive(has_it=True)
        elif outcome == GONE:
            del self._open[key]  # the next report of it is a new request
            pending.leave()
        else:
            raise BadRequest(f"a request is {TAKEN} or {GONE} in the end, not {outcome!r}")

    def close(self) -> None:
        """End all requests of the closed connection; the harness asks at its own terminal."""
        self._is_closed = True
        for pending in list(self._open.values()):
            pending.leave()


def _check_own(chain: Sequence[Process], op: AccompanyOp) -> None:
    """Refuse a process that another session of the harness started. Inherited marks are ignored."""
    own, above = (read_marks(process.pid) for process in chain[:2])
    for mark in SESSION_MARKS.get(op.harness, ()):
        if (named := own.get(mark)) not in (None, above.get(mark), op.session):
            raise BadRequest(f"the session {named} started this process: it cannot accompany another")


def _is_session(agent: Agent, op: AccompanyOp) -> bool:
    return agent.seat is not None and agent.seat.key == op.session and agent.harness == op.harness
