"""The requests of a holder on its connection: hold an agent, report gates, typed lines and replies."""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from palaver.broker.context import SYSTEM_CALLER
from palaver.broker.outcome import Joined
from palaver.delivery.allowances import is_limited
from palaver.delivery.lane import Level
from palaver.doors.holds import Hold, Push
from palaver.doors.lines_early import EarlyWords, Start, is_before_dialog, says_less
from palaver.doors.lines_lanes import Lanes
from palaver.doors.lines_names import Names
from palaver.doors.services import Services
from palaver.doors.sessions import free_session, only_session
from palaver.errors import BadRequest, NotFound, NotYou, PalaverError
from palaver.links.joining import anchor_for_child
from palaver.links.process import Process, ancestors, is_alive
from palaver.model.agent import Agent, Caller
from palaver.model.caller import caller_for
from palaver.model.delivery import AgentState
from palaver.model.lines.holder_ops import GateOp, HoldOp, TellOp, TypedOp
from palaver.model.request import Join, SetStatus
from palaver.model.terminal import Typed
from palaver.model.text import check_text

_LIMIT_REASON_BYTES: Final = 256

See = Callable[[], list[Process]]
"""Returns the calling process and its ancestors."""


class Holding:
    """The agents that one connection holds."""

    def __init__(
        self, services: Services, names: Names, lanes: Lanes, see: See, push: Push, start: Start
    ) -> None:
        self._services = services
        self._names = names
        self._lanes = lanes
        self._see = see
        self._push = push
        self._holds: dict[str, Hold] = {}
        self._early = EarlyWords(services, start)

    async def hold(self, op: HoldOp) -> dict[str, object]:
        """Register the agent in a child of the holder, or resume it.

        The agent is the child process with all its descendants. Resuming needs the secret, so that only the
        agent's own holder can do it, and the same process.
        """
        chain = self._see()
        if not chain:
            raise BadRequest("the process that asks cannot be seen, so it cannot hold an agent")
        secret = op.secret or secrets.token_hex(16)
        holder = hashlib.sha256(secret.encode()).hexdigest()
        known = self._known(op, holder) if op.secret else None
        if known is not None:
            agent = await self._again(op, chain[0], known)
        elif op.ticket:
            agent = await self._first(op, chain, holder)
        else:
            raise NotYou(op.name or "a held agent", "a holder with another secret")
        assert agent.seat is not None  # both branches set a seat
        self._names.take(agent)
        hold = Hold(agent.name, chain[0], self._push, op.cols, op.rows)
        self._holds[agent.name] = hold
        self._services.holds.open(hold)
        return {
            "name": agent.name,
            "secret": secret,
            "seat": self._services.seats.mark(agent.seat, agent.name),
            "role": agent.role,
            "tag": agent.tag,
            "harness": agent.harness,
            "device": self._services.log.device,
        }

    def _known(self, op: HoldOp, holder: str) -> Agent | None:
        """Return the agent of a returning holder. One that lost the first reply does not know its name."""
        directory = self._services.broker.directory
        found = [directory.get(op.name)] if op.name else directory.all()
        return next((agent for agent in found if agent is not None and agent.holder == holder), None)

    async def _first(self, op: HoldOp, chain: Sequence[Process], hashed: str) -> Agent:
        seat = anchor_for_child(chain[0], _child(op.pid), self._services.seats)
        ticket = self._services.tickets.take(op.ticket, chain)
        meant = op.session or ("" if ticket.name else only_session(self._services, ticket.harness, op.among))
        session = free_session(self._services, ticket.harness, meant)
        request = Join(
            name=ticket.name,
            session=session,
            tag=ticket.tag,
            role=ticket.role,
            harness=ticket.harness,
            version=op.version,
            seat=seat,
            holder=hashed,
            argv=ticket.argv,
            cwd=ticket.cwd,
            is_resumed=ticket.is_resumed,
        )
        try:
            return await self._join(ticket.by, request)
        except PalaverError:
            self._services.tickets.give_back(op.ticket, ticket)
            raise

    async def _again(self, op: HoldOp, holder: Process, known: Agent) -> Agent:
        if known.seat is not None and known.seat.pid == op.pid and not is_alive(known.seat):
            return known  # It ended while the daemon was down; its holder will report how.
        seat = anchor_for_child(holder, _child(op.pid), self._services.seats, own=known.name)
        return await self._join(
            caller_for(known),
            Join(
                name=known.name,
                role=known.role,
                harness=known.harness,
                version=op.version,
                seat=seat,
                session=free_session(self._services, known.harness, op.session),
                holder=known.holder,
            ),
        )

    async def _join(self, caller: Caller, request: Join) -> Agent:
        joined = await self._services.broker.submit(caller, request)
        assert isinstance(joined, Joined)
        return joined.agent

    def gate(self, op: GateOp) -> None:
        """Set whether a lane of this holder accepts messages."""
        check_text(op.reason, "the reason", _LIMIT_REASON_BYTES)
        self._lanes.set_level(op.lane, Level(is_open=op.open, is_paused=op.paused, reason=op.reason))

    async def typed(self, op: TypedOp) -> None:
        """Store a line that a person typed at the agent's terminal."""
        hold = self._held(op.name)
        request = Typed(name=hold.name, text=op.text, secret=op.secret)
        await self._services.broker.submit(SYSTEM_CALLER, request)

    def is_said_better(self, name: str, status: SetStatus) -> bool:
        """Return whether hooks have reported this status of a held agent in more detail.

        A status from the screen that may be too early is kept and stored later, unless a newer one arrives.
        """
        if name not in self._holds and not (name == "" and len(self._holds) == 1):
            return False
        state, known = status.state, self._services.broker.directory.get(name or next(iter(self._holds)))
        if known is not None:
            self._early.drop(known.name)
        if known is not None and says_less(status, known):
            return True  # also for a report to an earlier daemon, whose conversation is not known here
        conversation = None if known is None else self._services.conversations.get(known.name)
        if known is None or conversation is None:
            return False
        if known.state == AgentState.BLOCKED and not conversation.has_said(known):
            return False  # the screen reported it, so the screen may replace it
        # An idle screen does not show that a usage limit was reached.
        is_resting = state == AgentState.IDLE and is_limited(known)
        is_early = known.ready and is_before_dialog(known, state)
        if is_early and not is_resting:
            self._early.keep(known, status)
        return known.ready and (known.state == state or is_resting or is_early)

    def tell(self, op: TellOp) -> None:
        """Pass a holder's reply to the request it belongs to."""
        for hold in self._holds.values():
            self._services.holds.told(hold, op)

    def _held(self, name: str) -> Hold:
        caller = self._names.caller(name)
        hold = self._holds.get(caller.name)
        if hold is None:
            raise NotFound(f"hold on {caller.name}", "this connection does not hold it")
        return hold

    def close(self) -> None:
        """Remove all holds of the closed connection."""
        self._early.close()
        for hold in self._holds.values():
            self._services.holds.close(hold)


def _child(pid: int) -> list[Process]:
    chain = ancestors(pid)
    if not chain:
        raise NotFound(f"process {pid}", "it has ended")
    return chain
