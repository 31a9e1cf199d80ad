"""Permission requests of agents, which a person decides, and notices to the person."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER
from palaver.clock import CallLater, Clock, Timer
from palaver.config import LiveSettings, split_command
from palaver.errors import BadRequest, NotFound, Unavailable
from palaver.harness.hooks import THINKING, one_line, permission_text
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import (
    BYE,
    DENY,
    LIMIT_TEXT,
    NOTHING,
    AgentState,
    AnswerPermission,
    ClosePermission,
    OpenPermission,
    request_digest,
)
from palaver.protocol.lines import NoticeReply
from palaver.protocol.requests import SetStatus
from palaver.services.queries import Queries

# --------------------
# Permission requests of agents, and the wait of hooks and connections for a person's decision.
#
# In memory only: a request lives as long as a hook or a connection waits for it. With the setting
# `approvals` off no request waits. Without a decision in time the request is denied. A decision applies only
# to the request that was shown: it is identified by a hash of session, tool and input, and a closed request
# cannot be decided.

LIMIT_WAIT_S: Final = 3600
"""Upper limit of the setting, in seconds: a harness stops waiting for its hook soon after."""
_LIMIT_OVER: Final = 200
"""Closed requests whose reason is remembered."""
_LIMIT_OPEN: Final = 500
"""Open requests of all agents."""
_LIMIT_OF_AGENT: Final = 20
"""Open requests of one agent. It keeps one agent from filling the limit of all."""


@dataclass(slots=True, eq=False)
class Pending:
    """One open request. Use it only on the event loop's thread."""

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
    """Whether a person allowed it; None if it can no longer be decided."""
    arrived: "asyncio.Future[bool]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Whether the harness has received the decision."""
    is_taken: bool = False
    """True while a decision is being stored."""
    answer: str = ""
    """The decision, with its author and place, as a part of a sentence."""

    @property
    def agent(self) -> str:
        return self.caller.name

    @property
    def harness(self) -> str:
        return self.caller.harness

    def leave(self) -> None:
        """End the request without a decision: its hook, connection or agent has exited."""
        if not self.decided.done():
            self.decided.set_result(None)
        self.arrive(has_it=False)

    def arrive(self, *, has_it: bool) -> None:
        """Record whether the harness has received the decision."""
        if not self.arrived.done():
            self.arrived.set_result(has_it)


@dataclass(frozen=True, slots=True)
class PermissionVerdict:
    """The outcome of a request. None: no decision was made here, and the harness asks its own user."""

    is_allowed: bool | None
    message: str = ""


class PermissionBook:
    """All open requests, and for a while the reasons why the others were closed."""

    def __init__(self) -> None:
        self._open: dict[str, Pending] = {}
        self._over: dict[str, str] = {}
        self._count = 0
        self.changed: Callable[[str], None] = lambda id: None
        """Called with the id of each request that was opened or closed."""

    def get(self, id: str) -> Pending | None:
        """Return an open request, or None."""
        return self._open.get(id)

    def all(self) -> Sequence[Pending]:
        """Return the open requests, oldest first."""
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
        """Add a request. Raise BadRequest if there are too many, of this agent or in total."""
        if sum(one.agent == caller.name for one in self._open.values()) >= _LIMIT_OF_AGENT:
            raise _too_many(_LIMIT_OF_AGENT, f" of {caller.name}")
        if len(self._open) >= _LIMIT_OPEN:
            raise _too_many(_LIMIT_OPEN)
        self._count += 1
        digest = request_digest(session, tool, given)
        pending = Pending(
            # Random, so that no request after a restart gets the id of one that a person was shown before.
            id=f"{secrets.token_hex(3)}{self._count}",
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
        self.changed(pending.id)
        return pending

    def ending(self, id: str) -> str:
        """Return why a request was closed, as a sentence; empty if it is open or not known."""
        return self._over.get(id, "")

    def take(self, id: str) -> Pending:
        """Reserve a request for a decision and return it. Raise NotFound or BadRequest if it is late."""
        pending = self._open.get(id)
        if pending is None:
            hint = self._over.get(id, "'pal pending' shows the requests that can be answered")
            raise NotFound(f"permission request {id}", hint)
        if pending.is_taken or pending.decided.done():
            # Only one decision is stored, although several persons or screens may answer at the same time.
            raise BadRequest(f"the permission request {id} is being answered; nothing was decided")
        pending.is_taken = True
        return pending

    def close(self, pending: Pending, reason: str) -> None:
        """Close a request. The first reason is kept; repeats have no effect."""
        if self._open.pop(pending.id, None) is None:
            return
        self._over[pending.id] = reason
        self.changed(pending.id)
        while len(self._over) > _LIMIT_OVER:
            del self._over[next(iter(self._over))]


ARRIVE_S: Final = 30.0
"""Seconds that a harness may take to accept a decision; some must first confirm that the request is open."""


async def decide_permission(
    book: PermissionBook,
    id: str,
    *,
    is_allowed: bool,
    submit: Callable[[AnswerPermission], Awaitable[object]],
    where: str,
    digest: str = "",
) -> Pending:
    """Store a person's decision about a request, and wait until the harness has it.

    With `digest` only the request with this input is decided. `submit` stores the decision in the name of the
    person; `where` says where the person made it. Raises NotFound or BadRequest if the request has ended, and
    Unavailable if the harness does not accept the decision.
    """
    one = book.take(id)
    if digest and digest != one.digest:
        # Nothing was stored, so the request can still be decided.
        one.is_taken = False
        raise BadRequest(
            f"the request {id} is not the one that you were shown; nothing was decided. Look at it again"
        )
    request = AnswerPermission(name=one.agent, permission=one.id, digest=one.digest, is_allowed=is_allowed)
    try:
        await submit(request)
    except BaseException:
        one.is_taken = False
        one.leave()  # the harness then shows its own dialog
        raise
    # Set before the future, because the waiting hook reads it as soon as it continues.
    one.answer = f"human {'allowed' if is_allowed else 'denied'} it {where}"
    if not one.decided.done():
        one.decided.set_result(is_allowed)
    # `wait` and not `wait_for`, which would cancel the future at the timeout.
    await asyncio.wait({one.arrived}, timeout=ARRIVE_S)
    if not one.arrived.done() or not one.arrived.result():
        raise Unavailable(
            f"{one.agent} did not accept the decision: the request was answered elsewhere, or has ended"
        )
    return one


class PermissionService:
    """The steps of a permission request: open it, wait for a person's decision, close it."""

    def __init__(
        self, book: PermissionBook, *, broker: Broker, queries: Queries, clock: Clock, settings: LiveSettings
    ) -> None:
        self._book = book
        self._broker = broker
        self._queries = queries
        self._clock = clock
        self._settings = settings

    async def take(
        self, caller: Caller, session: str, tool: str, given: Mapping[str, object]
    ) -> Pending | None:
        """Open a permission request and store it; None if the setting `approvals` is off.

        The caller must then call `verdict`. Raises BadRequest if too many requests are open, of this agent or
        in total.
        """
        settings = self._settings.now
        if not settings.approvals:
            return None
        wait_ms = min(settings.approvals_wait_s, LIMIT_WAIT_S) * 1000
        now_ms = self._clock.now_ms()
        pending = self._book.add(caller, session, tool, given, now_ms=now_ms, wait_ms=wait_ms)
        request = OpenPermission(
            name=pending.agent,
            permission=pending.id,
            tool=pending.tool,
            text=pending.text,
            digest=pending.digest,
            until=pending.until_ms,
        )
        try:
            await self._broker.submit(SYSTEM_CALLER, request)
        # Also if cancelled: the hook does not wait any more, so no decision could reach it.
        except BaseException:
            self._book.close(pending, "it could not be stored")
            raise
        return pending

    async def verdict(self, pending: Pending, *, is_state_reported: bool = False) -> PermissionVerdict:
        """Wait for a person's decision. A timeout denies the request; the agent's end leaves it undecided.

        With `is_state_reported` the caller itself reports the agent's state afterwards.
        """

        def follow(events: Sequence[Event]) -> None:
            if any(event.type == BYE and event.sender == pending.agent for event in events):
                pending.leave()

        unsubscribe = self._queries.subscribe(follow, (BYE,))
        try:
            wait_s = (pending.until_ms - pending.since_ms) / 1000
            await asyncio.wait({pending.decided}, timeout=wait_s)
            # A decision is being stored: a timeout now would deny a request that the log says was allowed.
            while pending.is_taken and not pending.decided.done():
                await asyncio.wait({pending.decided})
            return await self._closed(pending, is_state_reported=is_state_reported)
        finally:
            unsubscribe()
            self._book.close(pending, "it has ended")

    async def _closed(self, pending: Pending, *, is_state_reported: bool) -> PermissionVerdict:
        book = self._book
        if not pending.decided.done():
            pending.decided.set_result(None)  # Before the first await: from now on no decision is accepted.
            book.close(pending, "no person answered it in time, so it was denied")
            await self._write(pending, DENY, "timeout")
            if not is_state_reported:
                await self._goes_on(pending, is_allowed=False)
            return PermissionVerdict(is_allowed=False, message="no person answered in time")
        is_allowed = pending.decided.result()
        if is_allowed is None:
            book.close(pending, "it was answered elsewhere, or its session has ended")
            await self._write(pending, NOTHING, "gone")
            return PermissionVerdict(is_allowed=None)
        book.close(pending, f"it was already answered: {pending.answer}")
        if not is_state_reported:
            await self._goes_on(pending, is_allowed=is_allowed)
        return PermissionVerdict(is_allowed=is_allowed, message="" if is_allowed else "a person denied it")

    async def _goes_on(self, pending: Pending, *, is_allowed: bool) -> None:
        """Store that the agent is no longer blocked; its next hook reports the exact state."""
        detail = one_line(pending.text) if is_allowed else THINKING
        status = SetStatus(state=AgentState.ACTIVE, detail=detail)
        # A hook may have reported a newer state meanwhile, which must stay.
        await self._broker.submit_status(
            pending.caller, status, only_if=lambda known: known.state == AgentState.BLOCKED
        )

    async def _write(self, pending: Pending, decision: str, reason: str) -> None:
        request = ClosePermission(name=pending.agent, permission=pending.id, decision=decision, reason=reason)
        await self._broker.submit(SYSTEM_CALLER, request)


def _too_many(limit: int, whose: str = "") -> BadRequest:
    return BadRequest(
        f"{limit} requests{whose} already wait for a person: this one is asked in the agent's own terminal"
    )


# --------------------
# Decide which view notifies the person. There is one notice for each event, at most one every few seconds.
#
# Every open view asks about each event. The book waits a moment for all of them, because one may have the
# entry in view. Then the first one that asked may notify the person, of all events that have come meanwhile.

SETTLE_S: Final = 0.3
"""Seconds that the book waits for other views."""
EVERY_S: Final = 5.0
"""Seconds between two notices."""
LIMIT_WAITING: Final = 1_000
"""Events that wait for a decision; further ones cause no notice."""
LIMIT_KNOWN: Final = 10_000
"""Decided events that are remembered, for views that ask later."""

_NO: Final = NoticeReply(send=False)


@dataclass(slots=True, kw_only=True)
class _UndecidedNotice:
    """An event without a decision, and the views that ask about it."""

    asking: list["asyncio.Future[NoticeReply]"] = field(default_factory=list)
    is_in_view: bool = False


class NoticeBook:
    """The events that views have asked about. Belongs to the event loop."""

    def __init__(self, live: LiveSettings, clock: Clock, call_later: CallLater) -> None:
        self._live = live
        self._clock = clock
        self._call_later = call_later
        self._waiting: dict[str, _UndecidedNotice] = {}
        self._known: dict[str, None] = {}
        self._sent_s = float("-inf")
        self._timer: Timer | None = None

    async def claim(self, key: str, *, is_in_view: bool) -> NoticeReply:
        """Wait for the decision about an event, and return whether this view tells the person."""
        if key in self._known:
            return _NO
        waiting = self._waiting.get(key)
        if waiting is None:
            if len(self._waiting) >= LIMIT_WAITING:
                return _NO
            waiting = self._waiting[key] = _UndecidedNotice()
            self._wait()
        # The person sees the entry already, so no view sends a notice of it.
        if is_in_view:
            waiting.is_in_view = True
            return _NO
        answer: asyncio.Future[NoticeReply] = asyncio.get_running_loop().create_future()
        waiting.asking.append(answer)
        return await answer  # a view that has gone cancels it

    def close(self) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._timer is None:
            pause_s = EVERY_S - (self._clock.monotonic_s() - self._sent_s)
            self._timer = self._call_later(max(SETTLE_S, pause_s), self._decide)

    def _decide(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        self._remember(waiting)
        unseen = {key: one for key, one in waiting.items() if not one.is_in_view}
        answers = [answer for one in unseen.values() for answer in one.asking if not answer.done()]
        # Only a notice that is sent begins a pause: events without a view to tell them must not delay others.
        if answers:
            self._sent_s = self._clock.monotonic_s()
            answers[0].set_result(self._reply(tuple(unseen)))
        for one in waiting.values():
            for answer in one.asking:
                if not answer.done():
                    answer.set_result(_NO)

    def _reply(self, keys: tuple[str, ...]) -> NoticeReply:
        settings = self._live.now
        return NoticeReply(
            send=True,
            keys=keys,
            notify=settings.notify,
            command=tuple(split_command(settings.notify_command)),
            has_text=bool(settings.notify_text),
        )

    def _remember(self, keys: dict[str, _UndecidedNotice]) -> None:
        self._known |= dict.fromkeys(keys)
        while len(self._known) > LIMIT_KNOWN:
            del self._known[next(iter(self._known))]
