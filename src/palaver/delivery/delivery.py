"""The reactor that brings mail to agents. It reads the log, offers on lanes and asks the broker to write.

Level-triggered: pending mail and an open gate is enough. Every trigger (a new message, a change of state, a lane that
opens or answers) leads to one look at one agent, whose cost does not depend on its backlog or on other agents.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import count, islice
from typing import Final

from palaver.clock import Clock
from palaver.delivery.lane import Ability, Answer, Lane, Offer, best_lane
from palaver.delivery.notices import notice
from palaver.delivery.queue import Queue
from palaver.delivery.taker import Mailbox, Passes, Taker
from palaver.log.api import Log
from palaver.log.fold import read_agent
from palaver.model.delivery import AgentState, Grade, State
from palaver.model.envelope import Event
from palaver.model.mail import EXPIRY, MAIL, DeliveryReport, decode_mail, expiry_of_key, mail_prefix
from palaver.model.priority import Priority
from palaver.model.request import Notify, Report
from palaver.model.text import LIMIT_INJECTION

Submit = Callable[[Report | Notify], Awaitable[object]]
"""Hands a request to the broker in the name of the bus."""

_EXPIRY_PAGE: Final = 500


class Delivery:
    """Lanes and takers of every agent here."""

    def __init__(self, log: Log, submit: Submit, *, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        """Work that a trigger starts runs in `tasks`, whose owner waits for it."""
        self._log = log
        self._submit = submit
        self._clock = clock
        self._tasks = tasks
        self._mailboxes: dict[str, Mailbox] = {}
        self._lanes: defaultdict[str, list[Lane]] = defaultdict(list)
        self._pumps: set[str] = set()
        self._numbers = count(1)
        self.deadline_changed: Callable[[], None] = lambda: None
        self._unsubscribe = log.subscribe(self._hear)

    def close(self) -> None:
        """Stop hearing of new events. Open lanes are simply left: their offers stay submitted."""
        self._unsubscribe()

    # Takers

    def take(self, agent: str, *, passes: Passes | None = None) -> Taker:
        """Open a consumer of an agent's mail. Whose it may be is for the caller to know."""
        return self._mailbox(agent).open(passes=passes)

    def _mailbox(self, agent: str) -> Mailbox:
        mailbox = self._mailboxes.get(agent)
        if mailbox is None:
            self._mailboxes = {name: box for name, box in self._mailboxes.items() if not box.is_idle}
            mailbox = self._mailboxes[agent] = Mailbox(self._log, agent, self._clock.now_ms)
        return mailbox

    # Lanes

    def open_lane(self, agent: str, ability: Ability, carry: Callable[[Offer], None]) -> Lane:
        """Give an agent one more way to be reached."""
        lane = Lane(agent, ability, carry)
        self._lanes[agent].append(lane)
        self._look(agent)
        return lane

    async def answer(self, lane: Lane, number: int, answer: Answer, *, grade: str = "", reason: str = "") -> None:
        """Take a lane's word on an offer; one it does not know is an answer that came twice."""
        offer = lane.offers.pop(number, None)
        if offer is None:
            return
        if answer is Answer.SEEN:
            await self._report(lane.agent, offer.seqs, State.SEEN, lane=lane.word, grade=grade or Grade.HANDED)
        else:
            lane.is_deferred = answer is Answer.DEFERRED
            if answer is Answer.REFUSED:
                lane.refused.update(offer.seqs)
            await self._report(lane.agent, offer.seqs, State.QUEUED, lane=lane.word, reason=reason)
        self._settle(lane, offer)
        self._look(lane.agent)

    async def recover(self, lane: Lane, seqs: Sequence[int], answer: Answer, *, grade: str = "") -> None:
        """Take a lane's word on what it carried before this daemon started. Its holder remembered it."""
        state = State.SEEN if answer is Answer.SEEN else State.QUEUED
        await self._report(lane.agent, seqs, state, lane=lane.word, grade=grade if state is State.SEEN else "")

    async def close_lane(self, lane: Lane) -> None:
        """A lane is gone: what it carried stays submitted, unconfirmed, and the senders are told."""
        if not lane.is_open:
            return
        lane.is_open = False
        self._lanes[lane.agent].remove(lane)
        if not self._lanes[lane.agent]:
            del self._lanes[lane.agent]
        for offer in list(lane.offers.values()):
            await self._unconfirmed(lane, offer)
            self._settle(lane, offer)
        lane.offers.clear()
        self._look(lane.agent)

    async def _unconfirmed(self, lane: Lane, offer: Offer) -> None:
        await self._report(lane.agent, offer.seqs, State.SUBMITTED, lane=lane.word, unconfirmed=True)
        for event in offer.events:
            await self._tell(event, "unconfirmed", [lane.agent])

    def _settle(self, lane: Lane, offer: Offer) -> None:
        self._mailbox(lane.agent).put_back(lane, offer.seqs)

    # Triggers

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "message" or event.delivered_to:
                self._on_mail(event)
            elif event.type == "delivery":
                self._on_delivery(event)
            elif event.type in ("agent.hello", "agent.bye"):
                self._tasks.create_task(self._doubt(event.sender))
            elif event.type in ("status", "agent.paused", "agent.unpaused"):
                self._on_state(str(event.payload.get("agent", event.sender)))

    def _on_mail(self, event: Event) -> None:
        names = event.payload.get("delivered_to", ()) if event.type == "message" else event.delivered_to
        assert isinstance(names, (list, tuple))  # the broker wrote it
        for name in names:
            self._wake(name)
        if "expires" in event.payload and event.type == "message":
            self.deadline_changed()
        if dead := event.payload.get("dead"):
            assert isinstance(dead, (list, tuple))
            self._tasks.create_task(self._bury(event, [str(path) for path in dead]))

    def _on_delivery(self, event: Event) -> None:
        if event.payload.get("state") == State.QUEUED:
            self._wake(str(event.payload["agent"]))
            self.deadline_changed()

    def _on_state(self, agent: str) -> None:
        for lane in self._lanes.get(agent, ()):
            lane.is_deferred = False
        self._look(agent)

    def _wake(self, agent: str) -> None:
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.wake()
        self._look(agent)

    async def _doubt(self, agent: str) -> None:
        """A session has ended or begun: what an earlier lane carried, and no lane carries now, is unconfirmed."""
        in_hand = self._mailbox(agent).in_hand
        rows = self._log.rows.scan(MAIL, mail_prefix(agent), limit=LIMIT_INJECTION * 4)
        mail = [decode_mail(value) for _, value in rows]
        lost = [one.seq for one in mail if one.state == State.SUBMITTED and one.seq not in in_hand]
        if not lost:
            return
        await self._report(agent, lost, State.SUBMITTED, unconfirmed=True)
        for event in filter(None, map(self._log.event, lost)):
            await self._tell(event, "unconfirmed", [agent])

    # Offering

    def _look(self, agent: str) -> None:
        """See whether something can go to an agent now. One look at a time for each agent."""
        if agent in self._lanes and agent not in self._pumps:
            self._pumps.add(agent)
            self._tasks.create_task(self._pump(agent))

    async def _pump(self, agent: str) -> None:
        try:
            while (chosen := self._choose(agent)) is not None:
                lane, events = chosen
                await self._offer(lane, events)
        finally:
            self._pumps.discard(agent)

    def _choose(self, agent: str) -> tuple[Lane, list[Event]] | None:
        """Find the best lane and what may go through it now. No await in here: lanes may change at every one."""
        known = read_agent(self._log.rows, agent)
        if known is None:
            return None
        idle, blocked = known.state == AgentState.IDLE, known.state == AgentState.BLOCKED
        lanes = list(self._lanes.get(agent, ()))
        while (lane := best_lane(lanes, idle=idle)) is not None:
            if lane.offers:
                return None
            queue = self._waiting(agent, lane)
            queue.is_paused = known.paused
            if seqs := queue.take(LIMIT_INJECTION, idle=idle, blocked=blocked):
                return lane, [event for seq in seqs if (event := self._log.event(seq)) is not None]
            lanes.remove(lane)
        return None

    def _waiting(self, agent: str, lane: Lane) -> Queue:
        """Load the head of the line: enough for one injection of each priority."""
        queue = Queue()
        mailbox = self._mailbox(agent)
        for priority in Priority:
            open_mail = (mail.seq for _, mail in mailbox.waiting(priority) if mail.seq not in lane.refused)
            for seq in islice(open_mail, LIMIT_INJECTION):
                queue.add(seq, priority)
        return queue

    async def _offer(self, lane: Lane, events: list[Event]) -> None:
        offer = Offer(next(self._numbers), tuple(events))
        in_hand = self._mailbox(lane.agent).in_hand
        in_hand.update(dict.fromkeys(offer.seqs, lane))
        lane.offers[offer.number] = offer
        # Written before the bytes leave: after a crash nobody has to guess whether they did.
        await self._report(lane.agent, offer.seqs, State.SUBMITTED, lane=lane.word)
        if lane.is_open:
            lane.carry(offer)

    # The ledger

    async def _report(
        self,
        agent: str,
        seqs: Sequence[int],
        state: State,
        *,
        lane: str = "",
        grade: str = "",
        reason: str = "",
        unconfirmed: bool = False,
    ) -> None:
        report = DeliveryReport(
            agent=agent,
            messages=tuple(seqs),
            state=state,
            lane=lane,
            grade=grade,
            reason=reason,
            unconfirmed=unconfirmed,
        )
        await self._submit(Report(report=report))

    async def _tell(self, event: Event, state: str, names: Sequence[str], reason: str = "") -> None:
        if (told := notice(event, state, names, reason)) is not None:
            await self._submit(told)

    async def _bury(self, event: Event, paths: Sequence[str]) -> None:
        for path in paths:
            await self._report(path, (event.seq,), State.DEAD, reason="nobody is subscribed")
        await self._tell(event, "dead", paths)

    # Expiry

    def next_deadline_ms(self) -> int | None:
        """The Unix time at which the next message expires, or None."""
        rows = self._log.rows.scan(EXPIRY, "", limit=1)
        return expiry_of_key(rows[0][0])[0] if rows else None

    async def expire(self) -> None:
        """Write down everything whose time is over. Only queued and held mail expires."""
        now = self._clock.now_ms()
        due: dict[int, list[str]] = {}
        for key, _ in self._log.rows.scan(EXPIRY, "", limit=_EXPIRY_PAGE):
            moment, seq, agent = expiry_of_key(key)
            if moment > now:
                break
            if seq not in self._mailbox(agent).in_hand:
                due.setdefault(seq, []).append(agent)
        for seq, agents in due.items():
            for agent in agents:
                await self._report(agent, (seq,), State.EXPIRED)
            if (event := self._log.event(seq)) is not None:
                await self._tell(event, "expired", agents)
