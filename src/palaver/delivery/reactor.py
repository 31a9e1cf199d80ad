"""Deliver after each event: choose a reader or lane per message, and report every outcome to the ledger."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import Final, TypeAlias

from palaver.clock import Clock
from palaver.delivery.lanes import FIRST_PAUSE_S, NATIVE_S, Backoff, SilenceLimits
from palaver.delivery.ledger import Ledger, expiring
from palaver.delivery.mailbox import Mailboxes, QueueReader, by_mailbox, mailboxes_of_lanes
from palaver.delivery.offers import Offering
from palaver.errors import PalaverError, Unavailable
from palaver.log.api import EventKey, EventKind, Log
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import (
    AGENT_TYPES,
    BYE,
    HELLO,
    SESSION_CREATED,
    SESSION_REMOVED,
    SETTING,
    STATE_TYPES,
    AgentState,
    DeliveryReport,
    Grade,
    LifeChanged,
    MessageSent,
    SessionCreated,
    SessionRemoved,
    State,
)
from palaver.protocol.lanes import (
    WITHDRAWN,
    Ability,
    Lane,
    LaneKind,
    LaneLevel,
    Offer,
    OfferOutcome,
)
from palaver.protocol.message import MESSAGE, format_priority, is_raw
from palaver.protocol.paths import REMOVED, split_mailbox
from palaver.protocol.query import Passes
from palaver.protocol.requests import Submit
from palaver.protocol.subscriptions import DELIVERY, FireWatch
from palaver.state.agents import (
    agents_with_carried,
    find_mail,
    mailbox_on_lane,
    mailboxes_with_carried,
    read_agent,
    read_session_entries,
)
from palaver.state.fold import agent_of
from palaver.state.paths import read_agent_session
from palaver.state.rows import PUSHED, answered_seq, deliverable
from palaver.state.watches import read_seen_requests

# --------------------
# Turn the outcome that a lane reports into a ledger step, and remember refusals.

_LIMIT_LATE: Final = 100
"""Offers per lane for which a late outcome is still accepted; the oldest is dropped."""


async def take_word(
    log: Log,
    ledger: Ledger,
    lane: Lane,
    mailbox: str,
    seqs: Sequence[int],
    answer: OfferOutcome,
    *,
    grade: str = "",
    reason: str = "",
    evidence: str = "",
) -> None:
    """Write the outcome of some messages of a mailbox: seen, unconfirmed, refused, or queued again.

    Refused raw keys stay refused, because they were meant for this terminal at that time. Other refused
    messages are queued again for another lane.
    """
    if answer is OfferOutcome.SEEN:
        grade = grade or Grade.HANDED
        await ledger.report(mailbox, seqs, State.SEEN, lane=lane.word, grade=grade, evidence=evidence)
        return
    if answer is OfferOutcome.UNCONFIRMED:
        await ledger.unconfirmed(mailbox, seqs, lane=lane.word)
        return
    if answer is OfferOutcome.REFUSED:
        if keys := [event for event in map(log.event, seqs) if event is not None and is_raw(event)]:
            await ledger.refused(mailbox, keys, lane=lane.word, reason=reason, evidence=evidence)
        # Before the report below: its event triggers a check, which must not choose this lane again.
        lane.refused.update(seqs)
    # An unconfirmed message has left the queue of its priority, so its report must say where it belongs.
    unconfirmed = [seq for seq in seqs if _is_unconfirmed(ledger, seq, mailbox)]
    await _queue_again(ledger, lane, mailbox, list(filter(None, map(log.event, unconfirmed))), reason)
    # Refused keys are among these. The broker leaves out messages whose state does not allow the step.
    on_their_way = [seq for seq in seqs if seq not in unconfirmed]
    await ledger.report(mailbox, on_their_way, State.QUEUED, lane=lane.word, reason=reason)


def keep_late(lane: Lane, offer: Offer) -> None:
    """Remember an offer whose wait has ended, because a late outcome still counts."""
    lane.late[offer.number] = offer
    # A lane that never reports must not fill the memory.
    while len(lane.late) > _LIMIT_LATE:
        del lane.late[next(iter(lane.late))]


async def take_late_word(
    ledger: Ledger, lane: Lane, number: int, answer: OfferOutcome, *, grade: str = "", reason: str = ""
) -> None:
    """Write a late outcome of an offer. An offer that is not remembered has an outcome already: do nothing.

    A message that was seen is recorded as seen. A message that certainly did not arrive is queued again with
    its old priority and order, except raw keys, which were meant for that time only.
    """
    offer = lane.late.get(number)
    if offer is None:
        return
    for mailbox, seqs in offer.parts.items():
        if answer is OfferOutcome.SEEN:
            grade = grade or Grade.HANDED
            await ledger.report(mailbox, seqs, State.SEEN, lane=lane.word, grade=grade)
        elif answer is not OfferOutcome.UNCONFIRMED:
            part = (event for event in offer.events if event.seq in seqs)
            unconfirmed = [event for event in part if _is_unconfirmed(ledger, event.seq, mailbox)]
            await _queue_again(ledger, lane, mailbox, unconfirmed, reason)
    # Only after the write: if it fails, the same outcome can be reported again.
    lane.late.pop(number, None)


def _is_unconfirmed(ledger: Ledger, seq: int, mailbox: str) -> bool:
    entry = ledger.entry(seq, mailbox)
    return entry is not None and entry.unconfirmed


async def _queue_again(
    ledger: Ledger, lane: Lane, mailbox: str, unconfirmed: Sequence[Event], reason: str
) -> None:
    """Queue unconfirmed messages again with their old priority and order, except raw keys."""
    for event in unconfirmed:
        if not is_raw(event):
            priority = format_priority(deliverable(event).priority)
            await ledger.report(
                mailbox, (event.seq,), State.QUEUED, lane=lane.word, reason=reason, priority=priority
            )


# --------------------
# The reactor that delivers messages to agents. It reads the log, makes offers on lanes and submits reports.
#
# It is level-triggered: a waiting message and an open gate are enough. Every trigger (a new message, a change
# of state, a lane that opens or reports an outcome, a reader that ends) leads to one check of one agent. The
# cost of a check depends neither on the backlog of the agent nor on other agents.

_SESSION_TYPES: Final = frozenset({SESSION_CREATED, SESSION_REMOVED})
# No setting of an agent decides which messages may go.
_HANDLED: Final[frozenset[EventKey]] = (
    (AGENT_TYPES - {SETTING}) | _SESSION_TYPES | {MESSAGE, EventKind.DELIVERED, DELIVERY}
)

_AT_ONCE: Final = 500
"""Messages that expire in one step."""
READ_S: Final = 2.0
"""Seconds in which a program that follows its messages may answer a request, before it counts as idle."""

Trace = Callable[[str, Sequence[int], str, str, str], None]
"""Called with each step: the agent, the seqs of its messages, what happened, the lane, and why."""


_Step: TypeAlias = Callable[[], Coroutine[None, None, None]]


def _no_trace(agent: str, seqs: Sequence[int], step: str, lane: str, detail: str) -> None:
    """Ignore a step."""


class DeliveryReactor:
    """The lanes and mailbox readers of every agent of this daemon."""

    def __init__(
        self,
        log: Log,
        submit: Submit,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        native_wait_s: float = NATIVE_S,
    ) -> None:
        """Start work in `tasks`; the owner of the group waits for it.

        `native_wait_s` is how long a terminal waits for a better lane to open.
        """
        self._log = log
        self._ledger = Ledger(log, submit)
        self._clock = clock
        self._tasks = tasks
        self._submit = submit
        self._mailboxes = Mailboxes(
            log,
            now_ms=clock.now_ms,
            put_back=self._put_back,
            lost=self._give_up,
            waits=self._reader_waits,
        )
        self._answering: dict[str, float] = {}
        """Mailboxes of agents that follow them and have read a request, and when these count as idle."""
        self._unwritten: deque[tuple[float, _Step]] = deque()
        """Steps that could not be written, and when each is tried again."""
        self._backoff = Backoff(clock, self._time_changed, native_wait_s=native_wait_s)
        self._silence = SilenceLimits(clock, self._time_changed)
        self._offering = Offering(
            log, self._ledger, self._mailboxes, self._backoff, self._silence, clock, tasks
        )
        self._lanes = self._offering.lanes
        self.deadline_changed: Callable[[], None] = lambda: None
        """Called when the next deadline may be earlier than before."""
        self.messages_released: Callable[[str], None] = lambda mailbox: None
        """Called with a mailbox each time a reader or lane releases messages of it that have no outcome."""
        self.level_changed: Callable[[str], None] = lambda agent: None
        """Called with an agent each time one of its lanes opens, closes, or has another gate state."""
        self.trace: Trace = _no_trace
        # Messages that were submitted when the last daemon ended. Their lanes may reconnect and report the
        # outcome, so they do not become unconfirmed at once.
        for agent in agents_with_carried(log.rows):
            self._silence.stray(agent)
        self._unsubscribe = log.subscribe(self._hear, _HANDLED)

    def close(self) -> None:
        """Stop following the log. Open lanes stay as they are, and their offers stay submitted."""
        self._unsubscribe()

    # Mailbox readers

    def take(
        self, agent: str, *, passes: Passes | None = None, window: int = 0, is_pushed: bool = False
    ) -> QueueReader:
        """Open a reader of the mailbox of an agent or session. The caller must have checked the right to it.

        At most `window` messages are handed out and not settled; 0 means no limit. A reader with `is_pushed`
        receives only the messages that the agent's state allows, and no handled copies.
        """
        mailbox = self._mailboxes.get(agent)
        return mailbox.open(passes=passes, window=window, is_pushed=is_pushed)

    def _put_back(self, agent: str, has_messages: bool) -> None:
        """Reconsider released messages: for readers, lanes and expiry."""
        self._wake(agent, is_earlier=True)
        # A message expires only while no reader has it. A reader that has acknowledged everything changes no
        # deadline when it ends.
        if has_messages:
            self.deadline_changed()
            self.messages_released(agent)
        self._offering.forget_idle(agent)

    def is_in_hand(self, agent: str, seq: int) -> bool:
        """Return whether a reader or lane of an agent has claimed a message."""
        return self._mailboxes.is_in_hand(agent, seq)

    def _give_up(self, agent: str, events: Sequence[Event]) -> None:
        self._tasks.create_task(self._offering.give_up(agent, events))

    def _reader_waits(self, mailbox: str, is_pushed: bool) -> None:
        """Look for requests that an agent has read and not answered, now that it waits for messages again.

        A program that follows its messages waits again at once, so it has a short time for its answer.
        """
        if not read_seen_requests(self._log.rows, split_mailbox(mailbox)[0]):
            return
        if is_pushed:
            # A known time is kept: the reader waits again after each event, and would postpone it.
            self._answering.setdefault(mailbox, self._clock.monotonic_s() + READ_S)
            self.deadline_changed()
        else:
            self._tasks.create_task(self._tell_idle(mailbox))

    async def _tell_idle(self, mailbox: str, *, after_ms: int = 0) -> None:
        """Report requests that a waiting agent has read for at least `after_ms`; look at later ones again."""
        now_ms, agent = self._clock.now_ms(), split_mailbox(mailbox)[0]
        for seq, seen_ms in read_seen_requests(self._log.rows, agent):
            if now_ms - seen_ms < after_ms:
                self._answering[mailbox] = self._clock.monotonic_s() + READ_S
                continue
            with suppress(PalaverError):  # While the log is full; the next wait tries again.
                await self._submit(FireWatch(agent=agent, request=seq, is_waiting=True))

    # Lanes

    def open_lane(self, agent: str, ability: Ability, carry: Callable[[Offer], None]) -> Lane:
        """Add a lane to an agent."""

        def traced(offer: Offer) -> None:
            self.trace(agent, offer.seqs, "offered", lane.word, "")
            carry(offer)

        lane = Lane(agent, ability, traced)
        others = self._lanes[agent]
        for other in others:
            if other.ability.awaits is ability.kind:
                self._backoff.stop_awaiting(other)
        # Otherwise a terminal that reconnects before the better lane would type at once, and a busy harness
        # queues a typed text until its turn ends.
        if ability.awaits is not None and all(other.ability.kind is not ability.awaits for other in others):
            self._backoff.await_better(lane)
        others.append(lane)
        self.trace(agent, (), "lane opened", lane.word, lane.level.reason)
        self.level_changed(agent)
        self._offering.look(agent)
        return lane

    def set_level(self, lane: Lane, level: LaneLevel) -> None:
        """Set the gate state that a lane reports. Messages are offered at once if it opens."""
        # A repeated report ends only the first deferral, and later ones end by their timer: otherwise a lane
        # that reports and defers in turn would be offered the same message without a pause.
        is_other = level != lane.level
        is_news = is_other or lane.deferrals <= 1
        if is_other:
            step = "gate paused" if level.is_paused else "gate open" if level.is_open else "gate closed"
            self.trace(lane.agent, (), step, lane.word, level.reason)
        lane.level = level
        if is_other:
            self.level_changed(lane.agent)
        if level.is_open and is_news:
            self._backoff.resume(lane)
        self._offering.look(lane.agent)

    def levels(self, agent: str) -> list[tuple[str, LaneLevel]]:
        """Return the kind and gate state of every lane of an agent."""
        return [(lane.word, level) for lane, level in self._live_lanes(agent)]

    def lanes(self, agent: str) -> list[tuple[Ability, LaneLevel]]:
        """Return the abilities and the gate state of every lane of an agent, the best one first."""
        found = [(lane.ability, level) for lane, level in self._live_lanes(agent)]
        return sorted(found, key=lambda one: one[0].kind)

    def _live_lanes(self, agent: str) -> list[tuple[Lane, LaneLevel]]:
        return [(lane, lane.level_now) for lane in self._lanes.get(agent, ()) if not lane.is_spent]

    def can_wake(self, agent: str) -> bool:
        """Return whether a lane can reach the agent while it is idle."""
        return any(lane.can_reach(idle=True) for lane in self._lanes.get(agent, ()))

    def typing(self, agent: str) -> frozenset[int]:
        """Return the seqs of the messages that are being typed into the agent's terminal now."""
        terminals = [lane for lane in self._lanes.get(agent, ()) if lane.is_terminal]
        return frozenset(seq for lane in terminals for offer in lane.offers.values() for seq in offer.seqs)

    async def draw(
        self, lane: Lane, state: AgentState, *, limit_text: int = 0, request: str = ""
    ) -> Offer | None:
        """Offer waiting messages on a lane that requests them. Return the offer, or None without messages.

        `state` is the agent's state as the lane knows it. Nothing is written if there is no message. The
        texts have at most `limit_text` characters together (0 means no limit), but at least one message is
        offered. `request` identifies the request, and is written with `submitted`.
        """
        return await self._offering.draw(lane, state, limit_text=limit_text, request=request)

    def arrived(self, lane: Lane, number: int) -> None:
        """Record that an offer has arrived, although it may not have been seen. The next offer may follow."""
        if number in lane.offers:
            lane.arrived.add(number)
            self.trace(lane.agent, lane.offers[number].seqs, "arrived", lane.word, "")
            self._offering.look(lane.agent)

    async def answer(
        self,
        lane: Lane,
        number: int,
        answer: OfferOutcome,
        *,
        grade: str = "",
        reason: str = "",
        evidence: str = "",
    ) -> None:
        """Write the outcome of an offer. An offer that is not open has an outcome already, or its wait ended.

        If the write fails, the offer stays open, and the same outcome can be reported again.
        """
        offer = lane.offers.get(number)
        if offer is None:
            await take_late_word(self._ledger, lane, number, answer, grade=grade, reason=reason)
            return
        self.trace(lane.agent, offer.seqs, f"answered {answer}", lane.word, reason or grade)
        details = {"grade": grade, "reason": reason, "evidence": evidence}
        # Before the offer is closed: if the write fails, the same outcome can be reported again.
        for mailbox, seqs in offer.parts.items():
            await take_word(self._log, self._ledger, lane, mailbox, seqs, answer, **details)
        is_keys = all(is_raw(event) for event in offer.events)
        if answer is OfferOutcome.DEFERRED:
            self._backoff.defer(lane, is_raw=is_keys)
        else:
            lane.deferrals = 0
        if not is_keys:
            lane.are_keys_deferred = False  # The keys waited for the end of this offer.
        lane.arrived.discard(number)
        # The lane may have closed during the write. Then it has released the messages itself.
        if lane.offers.pop(number, None) is not None:
            self._put_back_parts(lane, offer.parts)
        self._offering.look(lane.agent)

    def _put_back_parts(self, lane: Lane, parts: Mapping[str, Sequence[int]]) -> None:
        for mailbox, seqs in parts.items():
            self._mailboxes.get(mailbox).put_back(lane, seqs)

    def take_up(self, lane: Lane, seqs: Sequence[int]) -> Offer | None:
        """Return an offer for messages that the lane's holder still has from an earlier connection.

        Call it as soon as the lane is open: messages that no lane has claimed are offered again, or become
        unconfirmed.
        """
        offer = self._offering.take_up(lane, seqs)
        if offer is not None:
            self.trace(lane.agent, offer.seqs, "still in progress", lane.word, "")
        return offer

    async def recover(
        self, lane: Lane, seqs: Sequence[int], answer: OfferOutcome, *, grade: str = ""
    ) -> None:
        """Write the outcome of messages of an earlier connection, as the lane's holder remembers it."""
        self.trace(lane.agent, seqs, f"remembered {answer}", lane.word, grade)
        for mailbox, part in self._parts(lane, seqs).items():
            await take_word(self._log, self._ledger, lane, mailbox, part, answer, grade=grade)

    def _parts(self, lane: Lane, seqs: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the mailboxes of messages that a lane carried, and the seqs of each."""
        return by_mailbox((mailbox_on_lane(self._log.rows, lane.agent, seq), seq) for seq in seqs)

    async def recovered(self, lane: Lane, *, knows_all: bool = True, since_ms: int = 0) -> None:
        """Conclude that a lane has reported all it remembers: other messages of its kind become unconfirmed.

        If a holder that remembers every offer does not know a message, that message never reached it, because
        the daemon ended in between. It is queued again, except raw keys, which were meant for that time only.
        `knows_all` is false for a holder that has just started: it does not know the offers of another
        holder. With `since_ms` it knows every offer submitted after that Unix time, and no earlier one.
        """
        # Before the first await: if the earlier connection closes meanwhile, `_conclude` reads this.
        lane.has_reported_all = lane.ability.remembers and knows_all
        if (lane.ability.remembers or since_ms) and knows_all:
            for mailbox in mailboxes_with_carried(self._log.rows, lane.agent):
                lost = self._mailboxes.unclaimed(mailbox, lane.word, since_ms=since_ms)
                await self._never_came(lane, mailbox, lost)
        await self._unconfirm(lane.agent, lane.word)

    async def _never_came(self, lane: Lane, mailbox: str, seqs: Sequence[int]) -> None:
        lost = [event for event in map(self._log.event, seqs) if event]
        # Keys stay submitted, and become unconfirmed: they were meant for the screen at that time.
        if texts := [event.seq for event in lost if not is_raw(event)]:
            reason = "it never reached its lane"
            await self._ledger.report(mailbox, texts, State.QUEUED, lane=lane.word, reason=reason)

    async def close_lane(self, lane: Lane) -> None:
        """Remove a lane. Its open offers stay submitted and unconfirmed, and the senders are notified.

        If the lane's holder remembers its offers and the agent is still there, the next connection reports
        the outcome instead. When the agent ends, the messages become unconfirmed. A second call does nothing.
        """
        if not lane.is_open:
            return
        # All of this before the first await: an offer that is being written must find the lane closed.
        lane.is_open = False
        self._lanes[lane.agent].remove(lane)
        if not self._lanes[lane.agent]:
            del self._lanes[lane.agent]
        self.level_changed(lane.agent)
        offers = list(lane.offers.values())
        lane.offers.clear()
        copies = [(mailbox, seq) for offer in offers for mailbox, part in offer.parts.items() for seq in part]
        parts = by_mailbox(copies)
        self.trace(lane.agent, [seq for _, seq in copies], "lane closed", lane.word, "")
        self._backoff.forget(lane)
        self._silence.forget(lane)
        # These are still submitted, so no reader or lane takes them.
        self._put_back_parts(lane, parts)
        self._offering.forget_idle(lane.agent)
        try:
            await self._conclude(lane, parts)
            await self._offering.let_go(lane.agent)
        except Unavailable:
            self._silence.stray(lane.agent)  # No lane reports their outcome any more, so try again by time.
            raise
        finally:
            # Also after a failure: messages that waited for this lane may go on another one.
            self._offering.look(lane.agent)

    async def _conclude(self, lane: Lane, parts: Mapping[str, Sequence[int]]) -> None:
        """Write what is known of the open offers of a closed lane, or wait for its holder to report it."""
        known = read_agent(self._log.rows, lane.agent)
        if not parts:
            return
        if not (lane.ability.remembers and known is not None and not known.left):
            for mailbox, seqs in parts.items():
                await self._ledger.unconfirmed(mailbox, seqs, lane=lane.word)
        elif any(
            one.has_reported_all and one.ability == lane.ability for one in self._lanes.get(lane.agent, ())
        ):
            for mailbox, seqs in parts.items():  # Its holder has reconnected and did not have them.
                await self._never_came(lane, mailbox, seqs)
            await self._unconfirm(lane.agent, lane.word)
        else:
            self._silence.stray(lane.agent)

    # Triggers

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            life = event.body
            # Foreign envelopes have another type, and are delivered like messages.
            if event.type == MESSAGE or event.delivered_to:
                self._on_mail(event)
            elif event.type == DELIVERY:
                self._on_delivery(event)
            elif event.type in (HELLO, BYE) or (isinstance(life, LifeChanged) and life.is_return):
                self._on_state(event.sender)
                if event.type == BYE:
                    self._offering.gated.forget_notified(event.sender)
                self._tasks.create_task(self._free(event.sender))  # A session has started or ended.
            elif event.type in STATE_TYPES or (isinstance(life, LifeChanged) and life.has_agent):
                self._on_state(agent_of(event))
            elif isinstance(life, SessionCreated | SessionRemoved):
                self._on_state(life.agent)  # The lanes of the agent may reach another session now.
            elif isinstance(life, LifeChanged) and life.is_ready:
                self._start(partial(self._tell_unsure, event.sender))

    def _on_mail(self, event: Event) -> None:
        mail = deliverable(event)
        for name in mail.delivered_to:
            # No lane carries a handled copy, so it wakes only readers and does not end the pause of a lane.
            if mail.kind_for(name) in PUSHED and self._is_for_lanes(name):
                self._resume(split_mailbox(name)[0])
                self._wake(name)
            else:
                self._mailboxes.wake(name, is_earlier=False)
        if mail.expires:
            self.deadline_changed()
        message = event.body
        if not isinstance(message, MessageSent):
            return
        rows, answered = self._log.rows, answered_seq(event)
        if answered is not None:
            for mailbox in (event.sender, *read_session_entries(rows, answered, event.sender)):
                # An answered message that was never read stays open until it is read, and so do claims to it.
                if find_mail(rows, mailbox, answered) is None:
                    self._mailboxes.settle(mailbox, [answered])
        # In a task, because a handler must not wait.
        if message.dead:
            self._start(partial(self._ledger.dead, event, message.dead))

    def _is_for_lanes(self, mailbox: str) -> bool:
        """Return whether lanes may carry messages of a mailbox: of an agent, or of the session it runs in."""
        agent, session = split_mailbox(mailbox)
        known = read_agent(self._log.rows, agent) if session else None
        return not session or (known is not None and mailbox in mailboxes_of_lanes(self._log.rows, known))

    def _on_delivery(self, event: Event) -> None:
        report = body_as(event, DeliveryReport)
        self._offering.gated.hear(report)
        if report.state == State.QUEUED:
            self._wake(report.agent, is_earlier=True)
            self.deadline_changed()
            # A lane had the message when its session was removed, so that it could not be ended then.
            if self._is_removed(report.agent):
                self._start(
                    partial(self._ledger.report, report.agent, report.messages, State.DEAD, reason=REMOVED)
                )
        # A lane that has submitted messages keeps its claim until it reports the outcome.
        elif report.state != State.SUBMITTED or report.unconfirmed:
            self._mailboxes.settle(report.agent, report.messages)

    def _is_removed(self, mailbox: str) -> bool:
        """Return whether the session of a mailbox was removed, so that messages would wait indefinitely."""
        agent, session = split_mailbox(mailbox)
        return bool(session) and read_agent_session(self._log.rows, agent, session) is None

    def _on_state(self, agent: str) -> None:
        known = read_agent(self._log.rows, agent)
        if known is not None and known.state != AgentState.ACTIVE:
            for lane in self._lanes.get(agent, ()):
                if lane.ability.awaits is LaneKind.HOOK:  # Its next hook comes with its next turn.
                    self._backoff.stop_awaiting(lane)
        self._resume(agent)
        self._wake(agent)

    def _resume(self, agent: str) -> None:
        for lane in self._lanes.get(agent, ()):
            self._backoff.resume(lane)

    def _wake(self, mailbox: str, *, is_earlier: bool = False) -> None:
        self._mailboxes.wake(mailbox, is_earlier=is_earlier)
        self._offering.look(split_mailbox(mailbox)[0])

    async def _unconfirm(self, agent: str, lane: str = "") -> None:
        """Mark submitted messages that no lane has claimed as unconfirmed, optionally of one kind of lane."""
        for mailbox in mailboxes_with_carried(self._log.rows, agent):
            # Only unclaimed ones: an offer of an open lane still gets its outcome, also in a new session.
            if lost := self._mailboxes.unclaimed(mailbox, lane):
                await self._ledger.unconfirmed(mailbox, lost)

    async def _free(self, agent: str) -> None:
        """Conclude for messages that no lane has claimed, and queue those that no gate holds any more."""
        try:
            await self._unconfirm(agent)
            await self._offering.let_go(agent)
        except Unavailable:
            self._silence.stray(agent)  # By time, because there may be no other event of this agent.
            raise

    def _start(self, step: _Step) -> None:
        self._tasks.create_task(self._run(step))

    async def _run(self, step: _Step) -> None:
        """Run a step that no later event would cause again. After a failed write it runs again by time."""
        try:
            await step()
        except Unavailable:
            self._unwritten.append((self._clock.monotonic_s() + FIRST_PAUSE_S, step))
            self.deadline_changed()
            raise

    async def _tell_unsure(self, agent: str) -> None:
        """Send a new session the seqs of unconfirmed messages, if its terminal is its only lane."""
        # Hooks and native lanes send this list themselves when a session starts.
        if all(lane.is_terminal for lane in self._lanes.get(agent, ())):
            await self._ledger.tell_unsure(agent)

    # Time

    def _time_changed(self) -> None:
        self.deadline_changed()

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        next_waits = (self._backoff.next_wait_s(), self._silence.next_wait_s())
        waits = [wait_s for wait_s in next_waits if wait_s is not None]
        if self._answering:
            waits.append(max(0.0, min(self._answering.values()) - self._clock.monotonic_s()))
        if self._unwritten:
            waits.append(max(0.0, self._unwritten[0][0] - self._clock.monotonic_s()))
        # Stored times are those of the wall clock, all others those of the monotonic clock.
        if (deadline := self.next_deadline_ms()) is not None:
            waits.append(max(0, deadline - self._clock.now_ms()) / 1000)
        return min(waits, default=None)

    async def catch_up(self) -> None:
        """Handle every deadline that has passed."""
        for lane in self._backoff.take_deferred():
            self._backoff.resume(lane)
            self._offering.look(lane.agent)
        for lane in self._backoff.take_awaiting():
            self._backoff.stop_awaiting(lane)
            self._offering.look(lane.agent)
        await self._act_on(self._backoff.take_shut(), self._offering.hold_long)
        await self._act_on(self._backoff.take_stuck(), self._offering.tell_stuck)
        for lane, number in self._silence.take_silent():
            await self.end_silence(lane, number)
        now_s = self._clock.monotonic_s()
        # A copy, because readers that begin to wait during an await add to it.
        for mailbox in [mailbox for mailbox, until_s in self._answering.items() if until_s <= now_s]:
            del self._answering[mailbox]
            if self._mailboxes.is_awaited(mailbox):
                await self._tell_idle(mailbox, after_ms=round(READ_S * 1000))
        strays = self._silence.take_strays()
        try:
            while strays:
                await self._unconfirm(strays[-1])
                await self._offering.let_go(strays[-1])
                strays.pop()
        finally:
            for agent in strays:  # A failed write is tried again later.
                self._silence.stray(agent)
        # In the order of their times, because each is added with the same pause.
        while self._unwritten and self._unwritten[0][0] <= now_s:
            _, step = self._unwritten.popleft()
            await self._run(step)
        await self.expire()

    async def _act_on(self, lanes: list[Lane], act: Callable[[Lane], Awaitable[None]]) -> None:
        """Act on lanes whose deadline has passed."""
        try:
            while lanes:
                await act(lanes[0])
                del lanes[0]
        except Unavailable:
            # Their deadlines were removed, and a look sets new ones.
            for lane in lanes:
                self._offering.look(lane.agent)
            raise

    async def end_silence(self, lane: Lane, number: int) -> None:
        """End the wait for the outcome of an offer: its messages are queued again, or become unconfirmed."""
        if (offer := lane.offers.get(number)) is None:
            return
        answer = lane.silence(offer)
        # Before the offer is closed: a late report must find it here from then on.
        keep_late(lane, offer)
        await self.answer(lane, number, answer, reason=WITHDRAWN)
        others = [one for one in self._lanes.get(lane.agent, ()) if one is not lane]
        if answer is OfferOutcome.REFUSED and not any(one.can_reach(idle=True) for one in others):
            # No other lane can wake the agent, so use this one again.
            lane.refused.difference_update(offer.seqs)
            self._offering.look(lane.agent)

    async def reclaim(self, lane: Lane, seqs: Sequence[int]) -> None:
        """Claim withdrawn messages again, because the model sees them after all: no lane may repeat them."""
        taken: list[int] = []
        for name, part in self._parts(lane, seqs).items():
            mailbox = self._mailboxes.get(name)
            # The others have been claimed again meanwhile. Their reader or lane keeps them.
            free = [seq for seq in part if not mailbox.has_in_hand(seq)]
            taken += free
            mailbox.hold(lane, free)
            try:
                await self._ledger.report(name, free, State.SUBMITTED, lane=lane.word)
            finally:
                mailbox.put_back(lane, free)
        if (offer := self.take_up(lane, taken)) is not None:
            self.arrived(lane, offer.number)

    def next_deadline_ms(self) -> int | None:
        """Return the Unix time at which the next message expires, or None."""
        due = next(expiring(self._log.rows, is_in_hand=self._mailboxes.is_in_hand), None)
        return None if due is None else due.at_ms

    async def expire(self) -> None:
        """Write the expiry of every message that is due. Only queued and held messages expire."""
        now = self._clock.now_ms()
        soonest = expiring(self._log.rows, is_in_hand=self._mailboxes.is_in_hand)
        over = takewhile(lambda due: due.at_ms <= now, soonest)
        while some := list(islice(over, _AT_ONCE)):
            await self._ledger.expired(some)
