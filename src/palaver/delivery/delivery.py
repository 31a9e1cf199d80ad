"""The reactor that brings mail to agents. It reads the log, offers on lanes and asks the broker to write.

Level-triggered: pending mail and an open gate is enough. Every trigger (a new message, a change of state, a
lane that opens or answers, a consumer that ends) leads to one look at one agent, whose cost depends neither
on its backlog nor on other agents.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import Final

import msgspec

from palaver.clock import Clock
from palaver.delivery.answers import keep_late, take_late_word, take_word
from palaver.delivery.expiry import expiring
from palaver.delivery.lane import NATIVE_FIRST, WITHDRAWN, Ability, Answer, Lane, LaneKind, Level, Offer
from palaver.delivery.ledger import Ledger, Submit
from palaver.delivery.mailboxes import Mailboxes
from palaver.delivery.offering import Offering
from palaver.delivery.patience import NATIVE_S, Patience
from palaver.delivery.silence import Silence
from palaver.delivery.taker import Passes, Taker
from palaver.log.api import Log
from palaver.log.fold import agent_of
from palaver.log.state import agents_with_carried, find_mail, read_agent
from palaver.model.delivery import AgentState, State
from palaver.model.envelope import Event
from palaver.model.life import BYE, HELLO, STATE_TYPES, is_ready, is_return
from palaver.model.mail import DeliveryReport, deliverable, reply_place
from palaver.model.message import MESSAGE, is_raw

_AT_ONCE: Final = 500
"""Mail that expires in one go."""

Trace = Callable[[str, Sequence[int], str, str, str], None]
"""Told of each step: the agent, the places of its messages, what happened, the lane, and why."""


def _no_trace(agent: str, seqs: Sequence[int], step: str, lane: str, detail: str) -> None:
    """Forget a step."""


class Delivery:
    """Lanes and takers of every agent here."""

    def __init__(
        self,
        log: Log,
        submit: Submit,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        native_wait_s: float = NATIVE_S,
    ) -> None:
        """Work that a trigger starts runs in `tasks`, whose owner waits for it.

        `native_wait_s` is how long a terminal waits for a native lane that connects by itself.
        """
        self._log = log
        self._ledger = Ledger(log, submit)
        self._clock = clock
        self._tasks = tasks
        self._mailboxes = Mailboxes(log, now_ms=clock.now_ms, put_back=self._put_back, lost=self._give_up)
        self._patience = Patience(clock, self._time_changed, native_wait_s=native_wait_s)
        self._silence = Silence(clock, self._time_changed)
        self._offering = Offering(
            log, self._ledger, self._mailboxes, self._patience, self._silence, clock, tasks
        )
        self._lanes = self._offering.lanes
        self.deadline_changed: Callable[[], None] = lambda: None
        """Told when something falls due sooner than before."""
        self.trace: Trace = _no_trace
        for agent in agents_with_carried(log.rows):
            self._silence.stray(agent)  # Its lane may come back and say what became of it.
        self._unsubscribe = log.subscribe(self._hear)

    def close(self) -> None:
        """Stop hearing of new events. Open lanes are simply left: their offers stay submitted."""
        self._unsubscribe()

    # Takers

    def take(
        self, agent: str, *, passes: Passes | None = None, window: int = 0, is_pushed: bool = False
    ) -> Taker:
        """Open a consumer of an agent's mail. Whose it may be is for the caller to know.

        At most `window` messages are handed out and not settled; 0 is no limit. To one that is pushed its
        mail goes only what the agent's state lets pass.
        """
        mailbox = self._mailboxes.get(agent)
        return mailbox.open(passes=passes, window=window, is_pushed=is_pushed)

    def _put_back(self, agent: str) -> None:
        """Mail that was in hand is open again: for takers, for lanes, and for the clock."""
        self._wake(agent, is_behind=True)
        self.deadline_changed()
        self._offering.forget_idle(agent)

    def _give_up(self, agent: str, events: Sequence[Event]) -> None:
        self._tasks.create_task(self._offering.give_up(agent, events))

    # Lanes

    def open_lane(self, agent: str, ability: Ability, carry: Callable[[Offer], None]) -> Lane:
        """Give an agent one more way to be reached."""

        def traced(offer: Offer) -> None:
            self.trace(agent, offer.seqs, "offered", lane.word, "")
            carry(offer)

        lane = Lane(agent, ability, traced)
        others = self._lanes[agent]
        if ability.kind is LaneKind.NATIVE:
            for other in others:
                self._patience.stop_awaiting(other)
        elif ability.awaits_native and not any(other.ability.kind is LaneKind.NATIVE for other in others):
            self._patience.await_native(lane)
        others.append(lane)
        self.trace(agent, (), "lane opened", lane.word, lane.level.reason)
        self._offering.look(agent)
        return lane

    def set_level(self, lane: Lane, level: Level) -> None:
        """Take a lane's word on whether it lets mail through. What opens is looked at at once."""
        # One that says no more than before ends a 'not now' once. From then on the clock does: no hurry.
        is_news = level != lane.level or lane.deferrals <= 1
        if level != lane.level:
            step = "gate paused" if level.is_paused else "gate open" if level.is_open else "gate closed"
            self.trace(lane.agent, (), step, lane.word, level.reason)
        lane.level = level
        if level.is_open and is_news:
            self._patience.resume(lane)
        self._offering.look(lane.agent)

    def levels(self, agent: str) -> list[tuple[str, Level]]:
        """Give the kind and level of every lane of an agent."""
        live = [lane for lane in self._lanes.get(agent, ()) if not lane.is_spent]
        return [(lane.word, NATIVE_FIRST if lane.awaits_native else lane.level) for lane in live]

    def can_wake(self, agent: str) -> bool:
        """Whether some lane can reach the agent while it is idle."""
        return any(lane.can_reach(idle=True) for lane in self._lanes.get(agent, ()))

    async def draw(
        self, lane: Lane, state: AgentState, *, limit_text: int = 0, request: str = ""
    ) -> Offer | None:
        """Offer now what may go through a lane that asks for it, and give the offer; None for nothing.

        `state` is what the agent is doing as the lane knows it. Nothing is written when there is nothing. At
        most so many characters of text go, but one message in any case; 0 is no limit. `request` names the
        request that asks, and is written with `submitted`.
        """
        return await self._offering.draw(lane, state, limit_text=limit_text, request=request)

    def arrived(self, lane: Lane, number: int) -> None:
        """An offer is where it should be; whether it was seen is still open. More can follow it."""
        if number in lane.offers:
            lane.arrived.add(number)
            self.trace(lane.agent, lane.offers[number].seqs, "arrived", lane.word, "")
            self._offering.look(lane.agent)

    async def answer(
        self,
        lane: Lane,
        number: int,
        answer: Answer,
        *,
        grade: str = "",
        reason: str = "",
        evidence: str = "",
    ) -> None:
        """Take a lane's word on an offer. One that is not open was answered before, or its wait is over.

        When it cannot be written down the offer stays open, and the same answer can be given again.
        """
        offer = lane.offers.get(number)
        if offer is None:
            await take_late_word(self._ledger, lane, number, answer, grade=grade, reason=reason)
            return
        self.trace(lane.agent, offer.seqs, f"answered {answer}", lane.word, reason or grade)
        said = {"grade": grade, "reason": reason, "evidence": evidence}
        await take_word(self._log, self._ledger, lane, offer.seqs, answer, **said)
        is_keys = all(is_raw(event) for event in offer.events)
        if answer is Answer.DEFERRED:
            self._patience.defer(lane, is_raw=is_keys)
        else:
            lane.deferrals = 0
        if not is_keys:
            lane.are_keys_deferred = False  # What they were to wait for is over.
        lane.arrived.discard(number)
        if lane.offers.pop(number, None) is not None:
            self._mailboxes.get(lane.agent).put_back(lane, offer.seqs)
        self._offering.look(lane.agent)

    def take_up(self, lane: Lane, seqs: Sequence[int]) -> Offer | None:
        """Give the offer that stands for what a lane's holder has had in hand since an earlier connection.

        Ask for it as soon as the lane is open: what nobody has in hand is offered again, or in doubt.
        """
        offer = self._offering.take_up(lane, seqs)
        if offer is not None:
            self.trace(lane.agent, offer.seqs, "still in hand", lane.word, "")
        return offer

    async def recover(self, lane: Lane, seqs: Sequence[int], answer: Answer, *, grade: str = "") -> None:
        """Take a lane's word on what it carried before this daemon started. Its holder remembered it."""
        self.trace(lane.agent, seqs, f"remembered {answer}", lane.word, grade)
        await take_word(self._log, self._ledger, lane, seqs, answer, grade=grade)

    async def recovered(self, lane: Lane, *, knows_all: bool = True, since_ms: int = 0) -> None:
        """A lane has said all it remembers: what else its kind carried before is unconfirmed.

        An offer of which nothing is known to a holder that remembers every one never came to it: the daemon
        ended between the two. It is in line again, but for keys, which were meant for that moment. A holder
        that has just started knows nothing of what another one carried: then `knows_all` is false. With
        `since_ms` it knows all that was submitted after that Unix time, and nothing of what was before.
        """
        lane.has_said_all = lane.ability.remembers and knows_all
        if (lane.ability.remembers or since_ms) and knows_all:
            await self._never_came(lane, self._mailboxes.unclaimed(lane.agent, lane.word, since_ms=since_ms))
        await self._doubt(lane.agent, lane.word)

    async def _never_came(self, lane: Lane, seqs: Sequence[int]) -> None:
        lost = [event for event in map(self._log.event, seqs) if event]
        if texts := [event.seq for event in lost if not is_raw(event)]:
            reason = "it never came to its lane"
            await self._ledger.report(lane.agent, texts, State.QUEUED, lane=lane.word, reason=reason)

    async def close_lane(self, lane: Lane) -> None:
        """A lane is gone: what it carried stays submitted, unconfirmed, and the senders are told.

        Where the lane's holder remembers, and the agent is still there, its next connection says what became
        of it. With the agent's end it is unconfirmed.
        """
        if not lane.is_open:
            return
        lane.is_open = False
        self._lanes[lane.agent].remove(lane)
        if not self._lanes[lane.agent]:
            del self._lanes[lane.agent]
        seqs = [seq for offer in lane.offers.values() for seq in offer.seqs]
        lane.offers.clear()
        self.trace(lane.agent, seqs, "lane closed", lane.word, "")
        self._patience.forget(lane)
        self._silence.forget(lane)
        self._mailboxes.get(lane.agent).put_back(lane, seqs)  # In no hand, and submitted: nobody takes it up.
        self._offering.forget_idle(lane.agent)
        known = read_agent(self._log.rows, lane.agent)
        if not seqs:
            pass
        elif not (lane.ability.remembers and known is not None and not known.left):
            await self._ledger.unconfirmed(lane.agent, seqs, lane=lane.word)
        elif any(one.has_said_all and one.ability == lane.ability for one in self._lanes.get(lane.agent, ())):
            await self._never_came(lane, seqs)  # Its holder is back, and had none of it.
            await self._doubt(lane.agent, lane.word)
        else:
            self._silence.stray(lane.agent)
        await self._offering.let_go(lane.agent)
        self._offering.look(lane.agent)

    # Triggers

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == MESSAGE or event.delivered_to:
                self._on_mail(event)
            elif event.type == "delivery":
                self._on_delivery(event)
            elif event.type in (HELLO, BYE) or is_return(event):
                self._on_state(event.sender)
                if event.type == BYE:
                    self._offering.gated.forget_told(event.sender)
                self._tasks.create_task(self._doubt(event.sender))  # A session has ended or begun.
                self._tasks.create_task(self._offering.let_go(event.sender))
            elif event.type in STATE_TYPES:
                self._on_state(agent_of(event))
            elif is_ready(event):
                self._tasks.create_task(self._tell_unsure(event.sender))

    def _on_mail(self, event: Event) -> None:
        mail = deliverable(event)
        for name in mail.delivered_to:
            self._resume(name)
            self._wake(name)
        if mail.expires:
            self.deadline_changed()
        if event.type != MESSAGE:
            return
        place = reply_place(event)
        if place is not None and find_mail(self._log.rows, event.sender, place) is None:
            self._mailboxes.settle(event.sender, [place])
        if dead := event.payload.get("dead"):
            assert isinstance(dead, (list, tuple))  # the broker wrote it
            self._tasks.create_task(self._ledger.dead(event, [str(path) for path in dead]))

    def _on_delivery(self, event: Event) -> None:
        report = msgspec.convert(event.payload, DeliveryReport)
        self._offering.gated.hear(report)
        if report.state == State.QUEUED:
            self._wake(report.agent, is_behind=True)
            self.deadline_changed()
        elif report.state != State.SUBMITTED or report.unconfirmed:
            self._mailboxes.settle(report.agent, report.messages)

    def _on_state(self, agent: str) -> None:
        self._resume(agent)
        self._wake(agent)

    def _resume(self, agent: str) -> None:
        for lane in self._lanes.get(agent, ()):
            self._patience.resume(lane)

    def _wake(self, agent: str, *, is_behind: bool = False) -> None:
        self._mailboxes.wake(agent, is_behind=is_behind)
        self._offering.look(agent)

    async def _doubt(self, agent: str, lane: str = "") -> None:
        """What earlier lanes, or those of one kind, carried and none carries now is unconfirmed."""
        if lost := self._mailboxes.unclaimed(agent, lane):
            await self._ledger.unconfirmed(agent, lost)

    async def _tell_unsure(self, agent: str) -> None:
        """A session is ready: where nothing but its terminal leads to it, give it the numbers of before."""
        if all(lane.is_terminal for lane in self._lanes.get(agent, ())):
            await self._ledger.tell_unsure(agent)

    # Time

    def _time_changed(self) -> None:
        self.deadline_changed()

    def next_wait_s(self) -> float | None:
        """Give how long nothing falls due, or None for ever."""
        moments = (self._patience.next_wait_s(), self._silence.next_wait_s())
        waits = [wait_s for wait_s in moments if wait_s is not None]
        if (deadline := self.next_deadline_ms()) is not None:
            waits.append(max(0, deadline - self._clock.now_ms()) / 1000)
        return min(waits, default=None)

    async def catch_up(self) -> None:
        """Do whatever has fallen due by now."""
        for lane in self._patience.take_deferred():
            self._patience.resume(lane)
            self._offering.look(lane.agent)
        for lane in self._patience.take_awaiting():
            self._patience.stop_awaiting(lane)
            self._offering.look(lane.agent)
        for lane in self._patience.take_shut():
            await self._offering.hold_long(lane)
        for lane in self._patience.take_stuck():
            await self._offering.tell_stuck(lane)
        for lane, number in self._silence.take_silent():
            await self.end_silence(lane, number)
        strays = self._silence.take_strays()
        try:
            while strays:
                await self._doubt(strays[-1])
                strays.pop()
        finally:
            for agent in strays:  # What could not be written down is tried again later.
                self._silence.stray(agent)
        await self.expire()

    async def end_silence(self, lane: Lane, number: int) -> None:
        """Nothing was heard of an offer although it should have been: it is queued again, or in doubt."""
        if (offer := lane.offers.get(number)) is None:
            return
        answer = lane.silence(offer)
        keep_late(lane, offer)
        await self.answer(lane, number, answer, reason=WITHDRAWN)
        others = [one for one in self._lanes.get(lane.agent, ()) if one is not lane]
        if answer is Answer.REFUSED and not any(one.can_reach(idle=True) for one in others):
            lane.refused.difference_update(offer.seqs)  # Nothing else can wake the agent: once more this way.
            self._offering.look(lane.agent)

    async def reclaim(self, lane: Lane, seqs: Sequence[int]) -> None:
        """The model is shown messages that were withdrawn before: no lane is to bring them again."""
        mailbox = self._mailboxes.get(lane.agent)
        free = [seq for seq in seqs if not mailbox.has_in_hand(seq)]
        mailbox.hold(lane, free)
        try:
            await self._ledger.report(lane.agent, free, State.SUBMITTED, lane=lane.word)
        finally:
            mailbox.put_back(lane, free)
        if (offer := self.take_up(lane, free)) is not None:
            self.arrived(lane, offer.number)

    def next_deadline_ms(self) -> int | None:
        """The Unix time at which the next message expires, or None."""
        due = next(expiring(self._log.rows, is_in_hand=self._mailboxes.is_in_hand), None)
        return None if due is None else due.moment_ms

    async def expire(self) -> None:
        """Write down everything whose time is over. Only queued and held mail expires."""
        now = self._clock.now_ms()
        soonest = expiring(self._log.rows, is_in_hand=self._mailboxes.is_in_hand)
        over = takewhile(lambda due: due.moment_ms <= now, soonest)
        while some := list(islice(over, _AT_ONCE)):
            await self._ledger.expired(some)
