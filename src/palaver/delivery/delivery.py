"""The reactor that brings mail to agents. It reads the log, offers on lanes and asks the broker to write.

Level-triggered: pending mail and an open gate is enough. Every trigger (a new message, a change of state, a
lane that opens or answers, a consumer that ends) leads to one look at one agent, whose cost depends neither
on its backlog nor on other agents.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count, islice, takewhile
from typing import Final

import msgspec

from palaver.clock import Clock
from palaver.delivery.answers import take_word
from palaver.delivery.dialogs import Dialogs
from palaver.delivery.expiry import expiring
from palaver.delivery.lane import Ability, Answer, Lane, Level, Offer
from palaver.delivery.ledger import Ledger, Submit
from palaver.delivery.pick import pick, within
from palaver.delivery.taker import Mailbox, Passes, Taker
from palaver.log.api import Log
from palaver.log.fold import agent_of
from palaver.log.state import find_mail, is_carried, read_agent, read_carried, read_entry
from palaver.model.delivery import AgentState, State
from palaver.model.envelope import Event
from palaver.model.life import is_return
from palaver.model.mail import DeliveryReport, deliverable, reply_place
from palaver.model.message import MESSAGE, is_raw

_AT_ONCE: Final = 500
"""Mail that expires in one go."""


class Delivery:
    """Lanes and takers of every agent here."""

    def __init__(self, log: Log, submit: Submit, *, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        """Work that a trigger starts runs in `tasks`, whose owner waits for it."""
        self._log = log
        self._ledger = Ledger(log, submit)
        self._dialogs = Dialogs(log, self._ledger)
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

    def take(self, agent: str, *, passes: Passes | None = None, window: int = 0) -> Taker:
        """Open a consumer of an agent's mail. Whose it may be is for the caller to know.

        At most `window` messages are handed out and not settled; 0 is no limit.
        """
        return self._mailbox(agent).open(passes=passes, window=window)

    def _mailbox(self, agent: str) -> Mailbox:
        mailbox = self._mailboxes.get(agent)
        if mailbox is None:
            mailbox = Mailbox(self._log, agent, now_ms=self._clock.now_ms, put_back=self._put_back)
            self._mailboxes[agent] = mailbox
        return mailbox

    def _put_back(self, agent: str) -> None:
        """Mail that was in hand is open again: for takers, for lanes, and for the clock."""
        self._wake(agent, is_behind=True)
        self.deadline_changed()
        self._forget_idle(agent)

    def _forget_idle(self, agent: str) -> None:
        mailbox = self._mailboxes.get(agent)
        if mailbox is not None and mailbox.is_idle and agent not in self._lanes:
            del self._mailboxes[agent]

    def _is_in_hand(self, agent: str, seq: int) -> bool:
        mailbox = self._mailboxes.get(agent)
        return mailbox is not None and mailbox.has_in_hand(seq)

    # Lanes

    def open_lane(self, agent: str, ability: Ability, carry: Callable[[Offer], None]) -> Lane:
        """Give an agent one more way to be reached."""
        lane = Lane(agent, ability, carry)
        self._lanes[agent].append(lane)
        self._look(agent)
        return lane

    def set_level(self, lane: Lane, level: Level) -> None:
        """Take a lane's word on whether it lets mail through. What opens is looked at at once."""
        lane.level = level
        if level.is_open:
            lane.is_deferred = False
        self._look(lane.agent)

    def levels(self, agent: str) -> list[tuple[str, Level]]:
        """Give the kind and level of every lane of an agent."""
        return [(lane.word, lane.level) for lane in self._lanes.get(agent, ())]

    def can_wake(self, agent: str) -> bool:
        """Whether some lane can reach the agent while it is idle."""
        return any(lane.ability.wakes_idle for lane in self._lanes.get(agent, ()))

    async def draw(self, lane: Lane, state: AgentState, *, limit_text: int = 0) -> Offer | None:
        """Offer now what may go through a lane that asks for it, and give the offer; None for nothing.

        `state` is what the agent is doing as the lane knows it. Nothing is written when there is nothing. At
        most so many characters of text go, but one message in any case; 0 is no limit.
        """
        chosen = self._choose(lane.agent, lane, state)
        if chosen is None or chosen[0] is not lane:
            return None
        return await self._offer(lane, within(chosen[1], limit_text))

    def arrived(self, lane: Lane, number: int) -> None:
        """An offer is where it should be; whether it was seen is still open. More can follow it."""
        if number in lane.offers:
            lane.arrived.add(number)
            self._look(lane.agent)

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
        """Take a lane's word on an offer; one it does not know is an answer that came twice.

        When it cannot be written down the offer stays open, and the same answer can be given again.
        """
        offer = lane.offers.get(number)
        if offer is None:
            return
        await take_word(
            self._log,
            self._ledger,
            lane,
            offer.seqs,
            answer,
            grade=grade,
            reason=reason,
            evidence=evidence,
        )
        if answer is Answer.DEFERRED:
            lane.is_deferred = True
        lane.arrived.discard(number)
        if lane.offers.pop(number, None) is not None:
            self._mailbox(lane.agent).put_back(lane, offer.seqs)
        self._look(lane.agent)

    async def recover(self, lane: Lane, seqs: Sequence[int], answer: Answer, *, grade: str = "") -> None:
        """Take a lane's word on what it carried before this daemon started. Its holder remembered it."""
        await take_word(self._log, self._ledger, lane, seqs, answer, grade=grade)

    async def recovered(self, lane: Lane) -> None:
        """A lane has said all it remembers: what else its kind carried before is unconfirmed.

        An offer of which nothing is known to a holder that remembers every one never came to it: the daemon
        ended between the two. It is in line again, but for keys, which were meant for that moment.
        """
        if lane.ability.remembers:
            lost = [event for event in map(self._log.event, self._lost(lane.agent, lane.word)) if event]
            if seqs := [event.seq for event in lost if not is_raw(event)]:
                reason = "it never came to its lane"
                await self._ledger.report(lane.agent, seqs, State.QUEUED, lane=lane.word, reason=reason)
        await self._doubt(lane.agent, lane.word)

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
        self._mailbox(lane.agent).put_back(lane, seqs)  # In no hand, and submitted: nobody takes it up.
        self._forget_idle(lane.agent)
        known = read_agent(self._log.rows, lane.agent)
        if seqs and not (lane.ability.remembers and known is not None and not known.left):
            await self._ledger.unconfirmed(lane.agent, seqs, lane=lane.word)
        if lane.is_behind_dialog:
            await self._dialogs.release(lane.agent)
        self._look(lane.agent)

    # Triggers

    def _hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == MESSAGE or event.delivered_to:
                self._on_mail(event)
            elif event.type == "delivery":
                self._on_delivery(event)
            elif event.type in ("agent.hello", "agent.bye") or is_return(event):
                self._on_state(event.sender)
                self._tasks.create_task(self._doubt(event.sender))  # A session has ended or begun.
                self._tasks.create_task(self._let_go(event.sender))
            elif event.type in ("status", "agent.paused", "agent.unpaused"):
                self._on_state(agent_of(event))

    def _on_mail(self, event: Event) -> None:
        mail = deliverable(event)
        for name in mail.delivered_to:
            self._wake(name)
        if mail.expires:
            self.deadline_changed()
        if event.type != MESSAGE:
            return
        place = reply_place(event)
        if place is not None and find_mail(self._log.rows, event.sender, place) is None:
            self._settle(event.sender, [place])
        if dead := event.payload.get("dead"):
            assert isinstance(dead, (list, tuple))  # the broker wrote it
            self._tasks.create_task(self._ledger.dead(event, [str(path) for path in dead]))

    def _on_delivery(self, event: Event) -> None:
        report = msgspec.convert(event.payload, DeliveryReport)
        if report.state == State.QUEUED:
            self._wake(report.agent, is_behind=True)
            self.deadline_changed()
        elif report.state != State.SUBMITTED or report.unconfirmed:
            self._settle(report.agent, report.messages)

    def _settle(self, agent: str, seqs: Sequence[int]) -> None:
        """The ledger says that these wait no longer, whoever has them in hand."""
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.settle(seqs)

    def _on_state(self, agent: str) -> None:
        for lane in self._lanes.get(agent, ()):
            lane.is_deferred = False
        self._look(agent)

    def _wake(self, agent: str, *, is_behind: bool = False) -> None:
        if (mailbox := self._mailboxes.get(agent)) is not None:
            mailbox.wake(is_behind=is_behind)
        self._look(agent)

    async def _doubt(self, agent: str, lane: str = "") -> None:
        """What earlier lanes, or those of one kind, carried and none carries now is unconfirmed."""
        if lost := self._lost(agent, lane):
            await self._ledger.unconfirmed(agent, lost)

    def _lost(self, agent: str, lane: str = "") -> list[int]:
        rows = self._log.rows
        lost = [seq for seq in read_carried(rows, agent) if not self._is_in_hand(agent, seq)]
        if lane:
            lost = [seq for seq in lost if (entry := read_entry(rows, seq, agent)) and entry.lane == lane]
        return lost

    # Offering

    def _look(self, agent: str) -> None:
        """See whether something can go to an agent now. One look at a time for each agent."""
        if agent in self._lanes and agent not in self._pumps:
            self._pumps.add(agent)
            self._tasks.create_task(self._pump(agent))

    async def _pump(self, agent: str) -> None:
        try:
            await self._let_go(agent)
            while (chosen := self._choose(agent)) is not None:
                lane, events = chosen
                if lane.level.is_open or is_raw(events[0]):
                    await self._offer(lane, events)
                else:
                    await self._hold_back(lane, events)
                await self._let_go(agent)
        finally:
            self._pumps.discard(agent)

    def _choose(
        self, agent: str, asking: Lane | None = None, state: AgentState | None = None
    ) -> tuple[Lane, list[Event]] | None:
        """Find what goes where now. No await in here: lanes change at every one."""
        known = read_agent(self._log.rows, agent)
        if known is not None and state is not None:
            known = msgspec.structs.replace(known, state=state)
        lanes = self._lanes.get(agent, [])
        return None if known is None else pick(self._log, known, lanes, self._mailbox(agent), asking)

    async def _hold_back(self, lane: Lane, events: Sequence[Event]) -> None:
        mailbox = self._mailbox(lane.agent)
        seqs = [event.seq for event in events]
        mailbox.hold(lane, seqs)
        try:
            await self._dialogs.hold_back(lane.agent, events, lane=lane.word)
        finally:
            mailbox.put_back(lane, seqs)

    async def _let_go(self, agent: str) -> None:
        """Put in line again what waits behind a dialog, unless one is open now."""
        if not any(lane.is_behind_dialog for lane in self._lanes.get(agent, ())):
            await self._dialogs.release(agent)

    async def _offer(self, lane: Lane, events: Sequence[Event]) -> Offer | None:
        """Write `submitted`, then let the messages go: after a crash nobody must guess whether they left."""
        mailbox = self._mailbox(lane.agent)
        seqs = [event.seq for event in events]
        mailbox.hold(lane, seqs)
        left: set[int] = set()
        try:
            await self._ledger.report(lane.agent, seqs, State.SUBMITTED, lane=lane.word)
            # Meanwhile some may have been seen or answered in another way, and the lane may have closed.
            ours = tuple(event for event in events if self._is_carried(lane.agent, event.seq))
            offer = Offer(next(self._numbers), ours)
            if ours and lane.is_open:
                left.update(offer.seqs)
                lane.offers[offer.number] = offer
                lane.carry(offer)
                return offer
            if ours:
                reason = "the lane closed before anything left"
                await self._ledger.report(lane.agent, offer.seqs, State.QUEUED, lane=lane.word, reason=reason)
            else:
                await asyncio.sleep(0)  # What did away with them may be written and not yet readable.
        finally:
            mailbox.put_back(lane, [seq for seq in seqs if seq not in left])
        return None

    def _is_carried(self, agent: str, seq: int) -> bool:
        entry = read_entry(self._log.rows, seq, agent)
        return entry is not None and is_carried(entry)

    # Expiry

    def next_deadline_ms(self) -> int | None:
        """The Unix time at which the next message expires, or None."""
        due = next(expiring(self._log.rows, is_in_hand=self._is_in_hand), None)
        return None if due is None else due.moment_ms

    async def expire(self) -> None:
        """Write down everything whose time is over. Only queued and held mail expires."""
        now = self._clock.now_ms()
        soonest = expiring(self._log.rows, is_in_hand=self._is_in_hand)
        over = takewhile(lambda due: due.moment_ms <= now, soonest)
        while some := list(islice(over, _AT_ONCE)):
            await self._ledger.expired(some)
