"""The requests of holders, companions and the turn runner on lines of JSON, and exit reports."""

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, assert_never

import msgspec

from palaver.broker.context import SYSTEM_CALLER, Joined
from palaver.domain.rights import require_own_mail
from palaver.doors.connection import Names, WaitingCalls
from palaver.errors import (
    BadRequest,
    MessageTooLarge,
    NotFound,
    NotYou,
    PalaverError,
    Unavailable,
    WhoAreYou,
)
from palaver.harness.claude.output import LOOKED_UP
from palaver.harness.hooks import is_limited
from palaver.harness.marks import SESSION_MARKS
from palaver.harness.registry import profile_of
from palaver.identity.caller import SCRIPT, Anchor, anchor_for_child
from palaver.identity.process import Process, ancestors, is_alive, read_marks
from palaver.protocol.agents import INSTANCE, Agent, Caller, Standing, caller_for, standing_of_role
from palaver.protocol.events import REPORT_END, AgentState, ExitReport, Outcome, request_digest
from palaver.protocol.lanes import Ability, Lane, LaneKind, LaneLevel, Offer, OfferOutcome
from palaver.protocol.lines import (
    GONE,
    LIMIT_EVIDENCE_BYTES,
    TAKEN,
    AccompanyOp,
    AnswerOp,
    GateOp,
    HoldOp,
    LaneOp,
    NextJobOp,
    PermissionOp,
    RunnerOp,
    RunnerRequest,
    TellOp,
    TriagedOp,
    TurnEndOp,
    TurnProcessOp,
    TypedOp,
    push_line,
)
from palaver.protocol.requests import DIALOG, Gone, Join, SetStatus, Typed
from palaver.protocol.text import check_text
from palaver.services.agents import Hold, Push, with_hidden_keys
from palaver.services.evidence import is_state_of
from palaver.services.permissions import Pending, PermissionService
from palaver.services.services import Services
from palaver.services.views import carried_copy, free_session, message_view, only_session
from palaver.state.agents import read_unsure

# --------------------
# The states that a holder reads from the screen. Hooks report more, so their reports are not replaced.
#
# A screen may look idle while it still draws a dialog, and busy just after the end of the work. Such a report
# is kept for the time that drawing takes. Then it is stored, unless a hook or the screen has reported a newer
# state of the agent.

_DRAWING_MS: Final = 1500
"""Milliseconds that a dialog may take until it is on the screen, and the end of a turn too."""

Start = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]

_logger: Final = logging.getLogger("palaver.doors")


@dataclass(slots=True)
class ScreenReport:
    """A status from the screen, and what hooks had reported when it arrived."""

    status: SetStatus
    has_hooks: bool
    """Whether hooks of the agent have called this daemon."""
    reported: SetStatus | None
    """The last status of a hook. It is stored before this one is decided, or it never is."""
    now_ms: int
    early: Agent | None = None
    """The agent as the last decision saw it, if this status may be too early."""

    def is_news(self, known: Agent) -> bool:
        """Return whether to store it now: hooks have not reported it better, and it is not too early."""
        self.early = known if self._is_early(known) else None
        return self.early is None and not self._is_reported_better(known)

    def _is_reported_better(self, known: Agent) -> bool:
        if says_less(self.status, known):
            return True  # also for a hook that reported to an earlier daemon: `has_hooks` is false then
        # An idle screen does not show that a usage limit was reached.
        is_resting = self.status.state == AgentState.IDLE and is_limited(known)
        return self._is_of_hooks(known) and (known.state == self.status.state or is_resting)

    def _is_early(self, known: Agent) -> bool:
        state = self.status.state
        is_drawing = is_before_dialog(known, state) and not is_limited(known)
        is_old = is_after_work(known, state, self.now_ms) and is_state_of(self.reported, known)
        return (is_drawing or is_old) and self._is_of_hooks(known)

    def _is_of_hooks(self, known: Agent) -> bool:
        """Return whether hooks report the state. The screen may replace a dialog that it has reported."""
        is_of_screen = known.state == AgentState.BLOCKED and not is_state_of(self.reported, known)
        return self.has_hooks and known.ready and not is_of_screen


class ScreenReports:
    """The reports of one holder. Early ones are kept, at most one for each agent: the last."""

    def __init__(self, services: Services, start: Start) -> None:
        self._services = services
        self._start = start
        self._kept: dict[str, asyncio.Task[None]] = {}
        self._newest: dict[str, SetStatus] = {}

    async def report(self, caller: Caller, status: SetStatus) -> None:
        """Store a status, unless hooks have reported it in more detail, or keep it if it may be too early."""
        broker = self._services.broker
        # Before any await: `keep` then knows the newest report, whatever order they are decided in.
        self.hear(caller.name, status)
        if status.file:  # Not every harness has hooks that name changed files, and no change may be lost.
            await broker.submit(caller, status)
            return
        conversation = self._services.agents.conversations.get(caller.name)
        reported = None if conversation is None else conversation.reported
        now_ms = self._services.clock.now_ms()
        report = ScreenReport(status, conversation is not None, reported, now_ms)
        await broker.submit_status(caller, status, only_if=report.is_news)
        if report.early is not None:
            self.keep(report.early, status)

    def hear(self, agent: str, status: SetStatus) -> None:
        """Discard the kept report of an agent, because a newer one arrived."""
        self._newest[agent] = status
        self._drop(agent)

    def keep(self, known: Agent, status: SetStatus) -> None:
        """Store this status later, if the agent's state has not changed by then.

        A status that is not the last one of the screen is ignored: it was decided after a newer one arrived.
        """
        if self._newest.get(known.name) is not status:
            return
        self._drop(known.name)
        drawn_ms = self._services.clock.now_ms() + _DRAWING_MS
        self._kept[known.name] = self._start(self._say(known, status, drawn_ms))

    def _drop(self, agent: str) -> None:
        if (task := self._kept.pop(agent, None)) is not None:
            task.cancel()

    async def _say(self, known: Agent, status: SetStatus, drawn_ms: int) -> None:
        rest_ms = drawn_ms - self._services.clock.now_ms()
        # At most the whole time, because the clock may have been set back meanwhile.
        await asyncio.sleep(min(max(rest_ms, 0), _DRAWING_MS) / 1000)
        if self._has_dialog(known.name):
            return
        try:
            await self._services.broker.submit_status(
                caller_for(known), status, only_if=lambda now: _status_of(now) == _status_of(known)
            )
        except PalaverError as error:
            _logger.info("the state of %s is unchanged: %s: %s", known.name, error.code, error)

    def _has_dialog(self, name: str) -> bool:
        levels = self._services.delivery.levels(name)
        return any(not level.is_open and level.reason == DIALOG for _, level in levels)

    def close(self) -> None:
        """Discard all kept reports, because the holder has disconnected."""
        self._newest.clear()
        for name in list(self._kept):
            self._drop(name)


def is_before_dialog(known: Agent, state: str) -> bool:
    """Return whether an idle screen may be about to show the dialog that a hook has reported."""
    return known.state == AgentState.BLOCKED and state == AgentState.IDLE and known.harness in LOOKED_UP


def is_after_work(known: Agent, state: str, now_ms: int) -> bool:
    """Return whether a busy screen may not show yet that the work has ended, as a hook has just reported."""
    is_new = abs(now_ms - known.since) < _DRAWING_MS  # The clock may have been set.
    is_busy = known.state == AgentState.IDLE and state == AgentState.ACTIVE
    return is_busy and is_new and known.harness in LOOKED_UP


def says_less(status: SetStatus, known: Agent) -> bool:
    """Return whether the status says only that the agent waits for a person, and the reason is known."""
    is_waiting = status.state == known.state == AgentState.BLOCKED
    return is_waiting and bool(status.detail) and known.detail.startswith(f"{status.detail}: ")


def _status_of(agent: Agent) -> tuple[str, str, int]:
    return agent.state, agent.detail, agent.since


# --------------------
# The lanes of one connection: offers go out as pushes, outcomes come back as requests.


class Lanes:
    """Lanes for the names of this connection. `push` sends a line without waiting."""

    def __init__(self, services: Services, push: Callable[[bytes], None]) -> None:
        self._services = services
        self._push = push
        self._lanes: dict[int, Lane] = {}
        self._numbers = count(1)

    @property
    def has_any(self) -> bool:
        """True once a lane was opened."""
        return bool(self._lanes)

    async def open(self, caller: Caller, op: LaneOp) -> dict[str, object]:
        """Open a lane, and store the outcomes of earlier offers that its holder reports.

        Messages that the holder is still carrying become an offer of this lane; the result has its number.
        """
        if caller.kind != INSTANCE:
            raise WhoAreYou("only an agent has lanes: join first")
        require_own_mail(caller)
        kind = _parse_kind(op.kind)
        ability = Ability(
            kind=kind,
            awaits=self._awaited_kind(caller.name) if kind is LaneKind.TERMINAL else None,
            reaches_busy=op.reaches_busy,
            wakes_idle=op.wakes_idle,
            remembers=op.remembers,
        )
        # Parsed before the lane is opened, because a refused request must leave no open lane.
        recovered = [(outcome, _parse_outcome(outcome.answer)) for outcome in op.outcomes]
        number = next(self._numbers)

        holds, rows = self._services.agents.holds, self._services.queries.rows

        def carry(offer: Offer) -> None:
            messages = [
                with_hidden_keys(holds, message_view(event, carried_copy(rows, event, caller.name)))
                for event in offer.events
            ]
            fields = {"lane": number, "offer": offer.number, "name": caller.name, "messages": messages}
            self._push(push_line("offer", fields))

        lane = self._services.delivery.open_lane(caller.name, ability, carry)
        self._lanes[number] = lane
        offer = self._services.delivery.take_up(lane, op.carrying)  # No await before: else offered again.
        for outcome, answer in recovered:
            await self._services.delivery.recover(lane, outcome.messages, answer, grade=outcome.grade)
        await self._services.delivery.recovered(lane)
        return {"lane": number} if offer is None else {"lane": number, "offer": offer.number}

    def _awaited_kind(self, agent: str) -> LaneKind | None:
        """Return the kind of lane that reaches the agent better than its terminal, but may not be open yet.

        That is the native lane of a harness that opens one itself; or, after a restart of the daemon, the
        hooks of a busy agent. A text typed now would wait in the harness until the end of the turn.
        """
        directory = self._services.broker.directory
        known = directory.get(agent)
        if known is None:
            return None
        if directory.is_launched(agent) and profile_of(known.harness).opens_native:
            return LaneKind.NATIVE
        has_hooks = bool(known.session) and known.ready and not known.link
        return LaneKind.HOOK if has_hooks and known.state == AgentState.ACTIVE else None

    async def answer(self, op: AnswerOp) -> None:
        """Store the outcome of an offer on a lane of this connection."""
        lane = self._lane(op.lane)
        answer = _parse_outcome(op.answer)
        if len(op.evidence.encode()) > LIMIT_EVIDENCE_BYTES:
            raise MessageTooLarge("the evidence", len(op.evidence.encode()), LIMIT_EVIDENCE_BYTES)
        await self._services.delivery.answer(
            lane, op.offer, answer, grade=op.grade, reason=op.reason, evidence=op.evidence
        )

    def set_level(self, number: int, level: LaneLevel) -> None:
        """Set whether a lane of this connection accepts messages."""
        self._services.delivery.set_level(self._lane(number), level)

    def _lane(self, number: int) -> Lane:
        lane = self._lanes.get(number)
        if lane is None:
            raise NotFound(f"lane {number}", "it was not opened on this connection")
        return lane

    async def close(self, agent: str = "") -> None:
        """Close the lanes of one agent, or all. Their open offers become unconfirmed."""
        # No copy is needed: requests that could open a lane wait until this one is done (`_IN_ORDER`).
        for lane in self._lanes.values():
            if agent in ("", lane.agent):
                await self._services.delivery.close_lane(lane)


def _parse_kind(kind: str) -> LaneKind:
    try:
        return LaneKind[kind.upper()]
    except KeyError:
        kinds = ", ".join(one.name.lower() for one in LaneKind)
        raise BadRequest(f"the kind of a lane must be one of {kinds}, not {kind!r}") from None


def _parse_outcome(outcome: str) -> OfferOutcome:
    try:
        return OfferOutcome(outcome)
    except ValueError:
        outcomes = ", ".join(OfferOutcome)
        raise BadRequest(f"the outcome of an offer must be one of {outcomes}, not {outcome!r}") from None


# --------------------
# The requests of a holder on its connection: hold an agent, report gates, typed lines and replies.

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
        self._screens = ScreenReports(services, start)

    async def hold(self, op: HoldOp) -> dict[str, object]:
        """Register the agent in a child of the holder, or resume it.

        The agent is the child process with all its descendants. Resuming needs the secret, so that only the
        agent's own holder can do it, and the same process.
        """
        chain = self._see()
        if not chain:
            raise BadRequest(
                "the calling process has ended or runs in another container, so it cannot hold an agent"
            )
        # A holder chooses the secret itself and sends it with its ticket. So it can repeat a request whose
        # reply was lost: the ticket is used up then, but the secret shows that it holds the agent.
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
        self._services.agents.holds.open(hold)
        return {
            "name": agent.name,
            "secret": secret,
            "seat": self._services.callers.seats.mark(agent.seat, agent.name),
            "role": agent.role,
            "tag": agent.tag,
            "harness": agent.harness,
            "device": self._services.queries.device,
        }

    def _known(self, op: HoldOp, holder: str) -> Agent | None:
        """Return the agent of a returning holder. One that lost the first reply does not know its name."""
        directory = self._services.broker.directory
        found = [directory.get(op.name)] if op.name else directory.all()
        return next((agent for agent in found if agent is not None and agent.holder == holder), None)

    async def _first(self, op: HoldOp, chain: Sequence[Process], hashed: str) -> Agent:
        # First, so that a refusal of the process does not use up the ticket.
        seat = anchor_for_child(chain[0], _child(op.pid), self._services.callers.seats)
        ticket = self._services.callers.tickets.take(op.ticket, chain)
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
        except PalaverError:  # the holder may try again, for example when the disk has room again
            self._services.callers.tickets.give_back(op.ticket, ticket)
            raise

    async def _again(self, op: HoldOp, holder: Process, known: Agent) -> Agent:
        if known.seat is not None and known.seat.pid == op.pid and not is_alive(known.seat):
            return known  # It ended while the daemon was down; its holder will report how.
        seat = anchor_for_child(holder, _child(op.pid), self._services.callers.seats, own=known.name)
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
        self._lanes.set_level(op.lane, LaneLevel(is_open=op.open, is_paused=op.paused, reason=op.reason))

    async def typed(self, op: TypedOp) -> None:
        """Store a line that a person typed at the agent's terminal."""
        hold = self._held(op.name)
        request = Typed(name=hold.name, text=op.text, secret=op.secret)
        await self._services.broker.submit(SYSTEM_CALLER, request)

    async def report(self, name: str, status: SetStatus) -> None:
        """Store the status of an agent. That of a held one is from its screen; a hook may know more."""
        caller = self._names.caller(name)
        if caller.name in self._holds:
            await self._screens.report(caller, status)
        else:
            await self._services.broker.submit(caller, status)

    def tell(self, op: TellOp) -> None:
        """Pass a holder's reply to the request it belongs to."""
        for hold in self._holds.values():
            self._services.agents.holds.take_reply(hold, op)

    def _held(self, name: str) -> Hold:
        caller = self._names.caller(name)
        hold = self._holds.get(caller.name)
        if hold is None:
            raise NotFound(f"holder of {caller.name} on this connection", "send 'hold' first")
        return hold

    def close(self) -> None:
        """Remove all holds of the closed connection."""
        self._screens.close()
        for hold in self._holds.values():
            self._services.agents.holds.close(hold)


def _child(pid: int) -> list[Process]:
    chain = ancestors(pid)
    if not chain:
        raise NotFound(f"process {pid}", "it has ended")
    return chain


# --------------------
# Companions of sessions that `pal` did not start, and permission requests that harnesses report on lines.
#
# A companion gives its session a seat at the harness process that started the companion, and at no other
# process. While it lives, no other process can become the companion of that session. A process that another
# session of the harness started is refused. Only a person can decide a permission request; without the
# setting `approvals` no request waits here.

AnchorOfSession = Callable[[str], Anchor]
"""Returns the anchor of a session with this key for the calling process; raises if it may not join there."""


class Companions:
    """The sessions whose companion uses one connection."""

    def __init__(self, services: Services, names: Names, see: See, anchor_of: AnchorOfSession) -> None:
        self._services = services
        self._names = names
        self._see = see
        self._anchor_of = anchor_of

    async def accompany(self, op: AccompanyOp) -> dict[str, object]:
        """Register a session under its former name, or a new one. Its later requests carry `by`."""
        chain = self._see()
        if len(chain) < 2:
            raise BadRequest(
                "the calling process has ended or runs in another container, so it cannot be a companion"
            )
        _check_own(chain, op)
        # Before the session joins: a second companion is refused, and must change nothing.
        self._services.agents.companions.take(op.harness, op.session, chain[0])
        agent = self._seated(op, chain[1]) or await self._join_session(op, chain[1])
        assert agent.seat is not None  # both branches set a seat
        self._names.take(agent, min(standing_of_role(agent.role), Standing.WORKER), by=SCRIPT.name)
        return {
            "name": agent.name,
            "seat": self._services.callers.seats.mark(agent.seat, agent.name),
            "role": agent.role,
            "tag": agent.tag,
            "harness": agent.harness,
            "device": self._services.queries.device,
            "unsure": read_unsure(self._services.queries.rows, agent.name),
        }

    def _seated(self, op: AccompanyOp, parent: Process) -> Agent | None:
        """Return the agent of a session that already has its seat, because its companion reconnects."""
        at = self._services.callers.seats.at(parent)
        return next((one for one in at if _is_session(one, op) and not one.holder), None)

    async def _join_session(self, op: AccompanyOp, parent: Process) -> Agent:
        anchor = self._anchor_of(op.session)
        is_parent = (parent.pid, parent.start) == (anchor.seat.pid, anchor.seat.start)
        if anchor.harness != op.harness or not is_parent:
            raise BadRequest(
                f"only {op.harness} itself can start its companion; another program started this process"
            )
        session = free_session(self._services, op.harness, op.session)
        request = Join(harness=op.harness, seat=anchor.seat, session=session, cwd=op.cwd, version=op.version)
        joined = await self._services.broker.submit(SCRIPT, request)
        assert isinstance(joined, Joined)
        return joined.agent


class AskedOnLines:
    """The permission requests that one connection has reported. They end with it."""

    def __init__(self, services: Services, push: Push, start: Start) -> None:
        self._services = services
        self._permission_service = PermissionService(
            services.agents.permissions,
            broker=services.broker,
            queries=services.queries,
            clock=services.clock,
            settings=services.daemon.settings,
        )
        self._push = push
        self._start = start
        self._open: dict[tuple[str, str], Pending] = {}
        self._is_closed = False

    async def hear(self, caller: Caller, op: PermissionOp) -> dict[str, object]:
        """Record a new permission request or the outcome of one. The result has its `id`, if it waits."""
        if caller.kind != INSTANCE:
            raise BadRequest("only an agent can request permission: join first")
        # With the name, because two agents on one connection can use the same request id.
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
        pending = await self._permission_service.take(asking, op.session, op.tool, op.input)
        if pending is None:
            return {"id": None}
        self._open[key] = pending
        if self._is_closed:
            pending.leave()  # the connection closed while the request was stored
        self._start(self._wait(key, pending))
        return {"id": pending.id}

    async def _wait(self, key: tuple[str, str], pending: Pending) -> None:
        """Push a person's decision to the harness, and wait until the harness has accepted it."""
        name, request = key
        try:
            verdict = await self._permission_service.verdict(pending, is_state_reported=True)
            # Not if the harness has settled it meanwhile, or has reported another one with the same id.
            if verdict.is_allowed is not None and self._open.get(key) is pending:
                self._push(
                    {
                        "name": name,
                        "request": request,
                        "allowed": verdict.is_allowed,
                        "digest": pending.digest,
                    }
                )
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
            raise BadRequest(f"the outcome of a request must be {TAKEN} or {GONE}, not {outcome!r}")

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
            raise BadRequest(
                f"this process belongs to the session {named} and can be the companion of that session only"
            )


def _is_session(agent: Agent, op: AccompanyOp) -> bool:
    return agent.seat is not None and agent.seat.key == op.session and agent.harness == op.harness


# --------------------
# The last reports of holders that ended while no daemon was running.
#
# A report is next to the agent's socket, `agents/<name>.report.json`. It is accepted only with the secret of
# the agent, which only the agent's holder knows.

_LIMIT_REPORT_BYTES: Final = 1024 * 1024
_TERMINAL: Final = Ability(kind=LaneKind.TERMINAL, reaches_busy=True, wakes_idle=True)


async def take_up_reports(services: Services) -> None:
    """Store the content of every report and remove its file. Keep a report that cannot be stored now."""
    for path in sorted((services.daemon.home / "agents").glob(f"*{REPORT_END}")):
        try:
            report = msgspec.json.decode(_read_report(path), type=ExitReport)
            await _take_up(services, report)
        except (Unavailable, OSError) as error:  # such as a full disk, or no free descriptor
            _logger.info("the report %s stays until the next start: %s", path.name, error)
            continue
        # msgspec raises a ValueError, or a RecursionError for JSON that is nested too deeply.
        except (PalaverError, ValueError, RecursionError) as error:
            _logger.info("the report %s is invalid: %s", path.name, error)
        with contextlib.suppress(OSError):  # taken up again at the next start, it changes nothing
            path.unlink(missing_ok=True)


def _read_report(path: Path) -> bytes:
    with path.open("rb") as file:
        # A longer file is cut, and then is no valid JSON. It must not fill the memory.
        return file.read(_LIMIT_REPORT_BYTES)


async def _take_up(services: Services, report: ExitReport) -> None:
    agent = services.broker.directory.get(report.name)
    if agent is None or not _is_holder(agent, report.secret):
        return
    for name in sorted({outcome.name for outcome in report.outcomes}):
        whose = services.broker.directory.get(name) if name else agent
        if whose is not None and (whose is agent or _is_below(services, whose, agent)):
            await _recover(services, whose, [one for one in report.outcomes if one.name == name])
    if not agent.left:
        # Only from the process that it was in: a person may have resumed it meanwhile.
        gone = Gone(name=agent.name, reason=report.reason, seat=agent.seat)
        await services.broker.submit(SYSTEM_CALLER, gone)


async def _recover(services: Services, agent: Agent, outcomes: Sequence[Outcome]) -> None:
    lane = services.delivery.open_lane(
        agent.name, _TERMINAL, lambda offer: None
    )  # it starts closed and stays closed, so nothing is offered on it
    try:
        for outcome in outcomes:
            await services.delivery.recover(
                lane, outcome.messages, OfferOutcome(outcome.answer), grade=outcome.grade
            )
    finally:
        await services.delivery.close_lane(lane)


def _is_below(services: Services, agent: Agent, above: Agent) -> bool:
    """Return whether one agent is a sub-agent of another, at any depth."""
    parent = services.broker.directory.get(agent.parent) if agent.parent else None
    return parent is not None and (parent.name == above.name or _is_below(services, parent, above))


def _is_holder(agent: Agent, secret: str) -> bool:
    # A plain comparison is enough: the hash is in the log, and only the secret proves anything.
    return agent.holder == hashlib.sha256(secret.encode()).hexdigest()


# --------------------
# The requests of the runner of automatic turns.


class RunnerRequests:
    """The runner on one connection. Its wait for a job ends with the connection."""

    def __init__(self, services: Services, see: See) -> None:
        self._services = services
        self._see = see
        self._waiting = WaitingCalls()

    async def serve(self, caller: Caller, op: RunnerRequest) -> object:
        """Serve one request."""
        turns = self._services.turns
        if isinstance(op, RunnerOp):
            await turns.register(self, self._see(), ticket=op.ticket, secret=op.secret, running=op.running)
            if op.leaves:
                self.end()
            return {}
        turns.check_runner(self)
        match op:
            case NextJobOp():
                return await self._waiting.run(turns.next_job)
            case TurnProcessOp():
                await turns.begin_process(self._see()[0], op.pid, job=op.job, turn=op.turn)
            case TriagedOp():
                await turns.triaged(op.job, op.output, op.error)
            case TurnEndOp():
                await turns.ended(op.turn, op.output, op.error, op.harness_session)
            case _:
                assert_never(op)
        return {}

    def end(self) -> None:
        """Cancel the wait for a job, and refuse new ones."""
        self._waiting.end()

    def close(self) -> None:
        """Record that the connection has ended."""
        self.end()
        self._services.turns.disconnect(self)
