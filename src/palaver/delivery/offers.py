"""Open offers of a lane, and messages that wait for a gate: hold, notify the sender once, queue again."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, islice, takewhile
from typing import Final, TypeAlias

import msgspec

from palaver.clock import Clock
from palaver.delivery.lanes import SHUT_S, Backoff, SilenceLimits, StateGate, lanes_in_order, shut_lane
from palaver.delivery.ledger import Ledger
from palaver.delivery.mailbox import (
    Mailbox,
    Mailboxes,
    by_mailbox,
    mailboxes_of_agent,
    mailboxes_of_lanes,
    passing,
)
from palaver.errors import Unavailable
from palaver.harness.hooks import COMPACTING, PERMISSION, QUESTION, is_limited
from palaver.log.api import Log
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState, DeliveryReport, State
from palaver.protocol.lanes import Lane, Offer
from palaver.protocol.message import is_lost, is_raw, readable_text
from palaver.protocol.paths import split_mailbox
from palaver.protocol.requests import DIALOG, GATE_ADVICE
from palaver.protocol.text import LIMIT_INJECTION
from palaver.state.agents import is_carried, mailbox_on_lane, read_agent, read_entry, read_mail
from palaver.state.reasons import ASLEEP
from palaver.state.rows import PUSHED

# --------------------
# Hold messages that cannot pass a closed gate, notify their senders once, and queue them again later.
#
# An interrupt is held at once if a dialog is open. Other messages are held after a longer wait, as are
# messages for an idle agent that no lane can wake. Unlike messages held by a brake, these are queued again
# automatically: when the gate opens, when the terminal ends, when a better lane can reach the agent, and
# when another daemon finds them held. An agent that reads its mailbox receives them in the meantime.

_AT_ONCE: Final = 200
"""Messages per report."""
_WHY_DIALOG: Final = "a dialog is open in its terminal. It is delivered when the dialog is answered"
_WHY_ASLEEP: Final = "it is idle, and nothing can wake it. It is delivered with its next prompt"
_WHY_ADVISED: Final = {
    reason: f"{advice}. It is delivered when that is over" for reason, advice in GATE_ADVICE.items()
}
_WHY: Final = "its terminal accepts no messages now ({reason}). It is delivered when that is over"


_Copy: TypeAlias = tuple[str, int]
"""The mailbox and the seq of a message."""


class HeldMessages:
    """Holds messages and queues them again. The ledger is the record; this is a cache per agent.

    The messages of its sessions are held and queued with those of the agent: they wait for the same lanes.
    """

    def __init__(self, log: Log, ledger: Ledger) -> None:
        self._log = log
        self._ledger = ledger
        self._held: dict[str, dict[_Copy, str]] = {}
        self._notified: dict[str, set[_Copy]] = {}

    def hear(self, report: DeliveryReport) -> None:
        """Update the cache with a step of the ledger."""
        agent, _ = split_mailbox(report.agent)
        copies = [(report.agent, seq) for seq in report.messages]
        if report.state == State.HELD:
            # A step without a lane is not from a gate: a brake, a usage limit, a lost content or a failed
            # turn holds the message, and an open gate must not release it.
            if report.lane:
                self._of(agent).update(dict.fromkeys(copies, report.reason))
            return
        for copy in copies:
            self._held.get(agent, {}).pop(copy, None)
            # A queued message may be held again at the same gate, and its sender was notified already.
            if report.state != State.QUEUED:
                self._notified.get(agent, set()).discard(copy)

    async def hold_back(self, mailbox: str, events: Sequence[Event], *, lane: str, reason: str) -> None:
        """Write that these are held, and notify each sender once, even if it happens repeatedly."""
        await self._ledger.report(
            mailbox, [event.seq for event in events], State.HELD, lane=lane, reason=reason
        )
        await self.tell(mailbox, self._ledger.which_are(State.HELD, mailbox, events), reason=reason)

    async def tell(self, mailbox: str, events: Iterable[Event], *, reason: str) -> None:
        """Notify the senders of messages that wait at a gate, except for messages already reported."""
        notified = self._notified.setdefault(split_mailbox(mailbox)[0], set())
        news = [event for event in events if (mailbox, event.seq) not in notified]
        known = {DIALOG: _WHY_DIALOG, ASLEEP: _WHY_ASLEEP, **_WHY_ADVISED}
        why = known.get(reason) or _WHY.format(reason=reason or "closed")
        await self._ledger.tell_held(mailbox, news, why=why)
        # Only after the write: if it fails, the sender is notified at the next attempt.
        notified.update((mailbox, event.seq) for event in news)

    async def release(self, agent: str, is_over: Callable[[str, str], bool], *, why: str) -> None:
        """Queue again the messages for whose mailbox and reason `is_over`. `why` says what ended it."""
        # A page at a time, because the event of a report names all its messages.
        while over := dict(islice(self._over(agent, is_over), _AT_ONCE)):
            held = self._of(agent)
            # Before the await: a release of the same agent may run meanwhile, and must not report them too.
            for copy in over:
                del held[copy]
            try:
                for mailbox, seqs in by_mailbox(over).items():
                    await self._ledger.report(mailbox, seqs, State.QUEUED, reason=why)
            # Also if cancelled: in the log they are still held, and no other event would release them.
            except BaseException:
                held.update(over)
                raise

    def forget(self, agent: str) -> None:
        """Drop the cache of an agent without a lane. Its messages are queued; notices sent stay recorded."""
        self._held.pop(agent, None)

    def forget_notified(self, agent: str) -> None:
        """Forget the notices for an agent that has left, so that senders to its next session are notified."""
        self._notified.pop(agent, None)

    def _over(self, agent: str, is_over: Callable[[str, str], bool]) -> Iterable[tuple[_Copy, str]]:
        return ((copy, reason) for copy, reason in self._of(agent).items() if is_over(copy[0], reason))

    def _of(self, agent: str) -> dict[_Copy, str]:
        """Return the held messages of an agent. The ledger is read once; then `hear` keeps them current."""
        held = self._held.get(agent)
        if held is None:
            rows = self._log.rows
            gated = [
                (mailbox, mail.seq)
                for mailbox in mailboxes_of_agent(rows, agent)
                for mail in read_mail(rows, mailbox, PUSHED)
                if mail.is_gated
            ]
            entries = {(mailbox, seq): read_entry(rows, seq, mailbox) for mailbox, seq in gated}
            held = self._held[agent] = {copy: entry.reason for copy, entry in entries.items() if entry}
        return held


# --------------------
# Select a lane and the messages for it. Reads only; claims nothing and offers nothing.


@dataclass(frozen=True, slots=True)
class _NotHere:
    """The messages that must not use a lane: those it refused, and those a better lane has not refused.

    Messages arrive while the lanes are checked one by one. Without this rule, one could miss a better lane.
    """

    refused: Container[int]
    turned_down: Container[int] | None

    def __contains__(self, seq: object) -> bool:
        return seq in self.refused or (self.turned_down is not None and seq not in self.turned_down)


def pick(
    log: Log, agent: Agent, lanes: Sequence[Lane], mailbox: Mailbox, asking: Lane | None = None
) -> tuple[Lane, list[Event]] | None:
    """Return the best lane of an agent with the messages for it, or with those to hold for a dialog.

    A lane that pulls messages is selected only if it is `asking`.
    """
    # First, because raw keys pass every gate, also the checks below.
    if asking is None and (keys := _keys(log, lanes, mailbox)) is not None:
        return keys
    if is_limited(agent):
        return None  # its messages are held until the usage limit ends
    if asking is not None and any(lane.is_overtaken_by(asking) for lane in lanes):
        return None
    if asking is None and (asked := asked_lane(agent, lanes)) is not None:
        return _urgent(log, asked, mailbox)
    idle = agent.state == AgentState.IDLE
    blocked = agent.state == AgentState.BLOCKED or _is_compacting(agent)
    # None: no better lane was checked. An empty set: a better lane refused nothing, so no worse lane may
    # follow.
    turned_down: set[int] | None = None
    for lane in lanes_in_order(lanes, idle=idle, asking=asking):
        if blocked and lane is not asking and not lane.has_dialog and _has_dialog(lanes):
            # No lane is read before the dialog is answered. The lane with the dialog notifies the senders.
            continue
        if asking is not None and lane is not asking and lane.is_paced:
            continue  # the lane that asks is faster, and the rate limit does not apply to it
        # The best lane decides: a message that waits for it must not go by a worse one. That one is only for
        # messages that every better lane has refused.
        if lane.is_shut or turned_down == set() or (lane.ability.is_pulled and lane is not asking):
            return None
        paused = agent.paused or lane.level.is_paused or lane.has_dialog
        gate = StateGate(idle=idle, blocked=blocked, paused=paused)
        not_here = _NotHere(lane.refused, turned_down)
        if seqs := passing(log.rows, mailbox, gate, lane.limit, without=not_here):
            # A queued message may not be readable yet. That is not a failure: an event follows when it is.
            events = list(filter(None, map(log.event, seqs)))
            return (lane, events) if events else None
        turned_down = lane.refused if turned_down is None else turned_down & lane.refused
    return None


def asked_lane(agent: Agent, lanes: Sequence[Lane]) -> Lane | None:
    """Return the lane that waits while the agent asks a person something, according to its stored state.

    None if the agent has a terminal, because its screen shows more reliably whether a dialog is open.
    """
    is_asked = agent.state == AgentState.BLOCKED and agent.detail.startswith((PERMISSION, QUESTION))
    live = [lane for lane in lanes if not lane.is_spent]
    if agent.left or not is_asked or any(lane.is_terminal for lane in live):
        return None
    return min(live, key=lambda lane: lane.ability.kind, default=None)


def _urgent(log: Log, lane: Lane, mailbox: Mailbox) -> tuple[Lane, list[Event]] | None:
    """Return the interrupts that must be held because of a dialog."""
    gate = StateGate(idle=False, blocked=True, paused=True)
    seqs = passing(log.rows, mailbox, gate, LIMIT_INJECTION)
    events = list(filter(None, map(log.event, seqs)))
    return (lane, events) if events else None


def _has_dialog(lanes: Sequence[Lane]) -> bool:
    return any(lane.has_dialog for lane in lanes)


def within(events: Sequence[Event], limit_text: int) -> Sequence[Event]:
    """Return the first messages whose texts fit into the limit, at least one; 0 means no limit."""
    if not limit_text:
        return events
    # At least one, because a message larger than the limit would otherwise wait indefinitely, and all others
    # with it.
    sizes = accumulate(len(readable_text(event)) for event in events)
    fitting = sum(1 for _ in takewhile(lambda size: size <= limit_text, sizes))
    return events[: max(1, fitting)]


def waiting_at_gate(log: Log, agent: Agent, lane: Lane, mailbox: Mailbox) -> list[Event]:
    """Return the first messages that would use a lane if its gate were open, whatever closed it.

    Messages that a pause stops do not count, because they do not wait for the gate.
    """
    paused = agent.paused or lane.level.is_paused
    gate = StateGate(idle=agent.state == AgentState.IDLE, blocked=False, paused=paused)
    seqs = passing(log.rows, mailbox, gate, LIMIT_INJECTION, without=lane.refused)
    return list(filter(None, map(log.event, seqs)))


def _is_compacting(agent: Agent) -> bool:
    """Return whether an agent is compacting its context: a message would get lost in between."""
    return agent.state == AgentState.ACTIVE and agent.detail == COMPACTING


def _keys(log: Log, lanes: Sequence[Lane], mailbox: Mailbox) -> tuple[Lane, list[Event]] | None:
    """Return raw keys and a terminal for them. They pass every gate and ignore the composer."""
    free = next((lane for lane in lanes if lane.can_take_keys), None)
    keys = None if free is None else next(mailbox.keys(), None)
    event = None if keys is None else log.event(keys.seq)
    return None if free is None or event is None else (free, [event])


# --------------------
# Offer messages on the lanes of agents: select the lane and the messages, and hold those at a closed gate.
#
# Each agent has one check at a time. Its cost depends neither on the backlog nor on other agents.

_SHUT_MS: Final = round(SHUT_S * 1000)


@dataclass(frozen=True, slots=True)
class _Choice:
    """The lane that takes messages now, and the messages of one mailbox for it."""

    lane: Lane
    mailbox: str
    events: list[Event]


class Offering:
    """The lanes of every agent of this daemon, and their offers."""

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        mailboxes: Mailboxes,
        backoff: Backoff,
        silence: SilenceLimits,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Start work in `tasks`; the owner of the group waits for it."""
        self._log = log
        self._ledger = ledger
        self._mailboxes = mailboxes
        self._backoff = backoff
        self._silence = silence
        self._clock = clock
        self._tasks = tasks
        self._pumps: set[str] = set()
        self._drawing: list[str] = []
        """Agents that are requesting messages now. No dialog blocks them, whatever their state says.

        A list, because two requests of one agent may overlap: the end of the first must not remove both.
        """
        self._numbers = count(1)
        self.gated: Final = HeldMessages(log, ledger)
        self.lanes: Final[defaultdict[str, list[Lane]]] = defaultdict(list)

    def look(self, agent: str) -> None:
        """Check whether messages can go to an agent now. Checks of one agent do not overlap."""
        # `in` and `get`, never an index: this is a defaultdict, and an entry means that the agent has a lane.
        if agent not in self.lanes:
            return
        known = read_agent(self._log.rows, agent)
        shut = self._shut(known)
        self._watch_offers(known)
        for lane in self.lanes[agent]:
            self._backoff.watch(lane, is_asleep=lane is shut)
        # A running check reads everything again before it ends, so it includes this trigger.
        if agent not in self._pumps:
            self._pumps.add(agent)
            self._tasks.create_task(self._pump(agent))

    def _watch_offers(self, agent: Agent | None) -> None:
        """Limit the wait for the outcomes of an agent's open offers while it is idle."""
        if agent is not None:
            self._silence.watch(self.lanes.get(agent.name, ()), is_idle=agent.state == AgentState.IDLE)

    async def _pump(self, agent: str) -> None:
        try:
            # Before the choice, because the released messages take part in the order of the queue.
            await self.let_go(agent)
            while agent not in self._drawing and (chosen := self.choose(agent)) is not None:
                if await self._has_held_lost(chosen.mailbox, chosen.events):
                    continue
                lane = chosen.lane
                if is_raw(chosen.events[0]) or (lane.level.is_open and self._asked(agent) is None):
                    await self.offer(lane, chosen.mailbox, chosen.events)
                else:
                    await self._hold_back(lane, chosen.mailbox, chosen.events, DIALOG)
                await self.let_go(agent)
        except Unavailable:
            # By time, because there may be no other event that triggers the next check.
            for lane in self.lanes.get(agent, ()):
                self._backoff.try_again(lane)
            raise
        finally:
            # No await since the last choice: `look` would see a check that still runs, and drop its trigger.
            self._pumps.discard(agent)

    def choose(
        self, agent: str, asking: Lane | None = None, state: AgentState | None = None
    ) -> _Choice | None:
        """Select a lane and messages for it: of the agent itself first, then of the session that it runs in.

        No await in here: lanes may change at each await.
        """
        known = read_agent(self._log.rows, agent)
        if known is None:
            return None
        # The state that the asking lane knows is newer: its report may not be stored yet.
        if state is not None:
            known = msgspec.structs.replace(known, state=state, detail="")
        lanes = self.lanes.get(agent, [])
        for mailbox in mailboxes_of_lanes(self._log.rows, known):
            picked = pick(self._log, known, lanes, self._mailboxes.get(mailbox), asking)
            if picked is not None:
                return _Choice(picked[0], mailbox, picked[1])
        return None

    async def draw(
        self, lane: Lane, state: AgentState, *, limit_text: int, request: str = ""
    ) -> Offer | None:
        """Offer messages on a lane that requests them. See `DeliveryReactor.draw`.

        The request proves that the agent is awake. Messages held for a dialog are offered too: the dialog is
        over, although the stored state changes only later.
        """
        agent = lane.agent
        over = {ASLEEP, DIALOG} if self._asked(agent) is lane else {ASLEEP}
        asked = [agent] if DIALOG in over else []
        # Before the first await: the check of the agent would hold the released messages again, because the
        # stored state still says that a dialog is open.
        self._drawing += asked
        try:
            why = "the agent reads its messages itself"
            await self.gated.release(agent, lambda _, reason: reason in over, why=why)
            chosen = self.choose(agent, lane, state)
            while chosen is not None and await self._has_held_lost(chosen.mailbox, chosen.events):
                chosen = self.choose(agent, lane, state)
        finally:
            for one in asked:
                # While it was in the list, its check offered nothing. So check now for everything that came
                # meanwhile.
                self._drawing.remove(one)
                self.look(one)
        if chosen is None or chosen.lane is not lane:
            return None
        return await self.offer(lane, chosen.mailbox, within(chosen.events, limit_text), request=request)

    async def offer(
        self, lane: Lane, name: str, events: Sequence[Event], *, request: str = ""
    ) -> Offer | None:
        """Write `submitted`, then send the messages, so that the log has every sent message after a crash.

        `name` is their mailbox. Return None if no message could be sent: their state has changed, or the lane
        has closed.
        """
        mailbox = self._mailboxes.get(name)
        seqs = [event.seq for event in events]
        mailbox.hold(lane, seqs)  # Before the first await: no reader may take them in the meantime.
        left: set[int] = set()
        try:
            await self._ledger.report(name, seqs, State.SUBMITTED, lane=lane.word, request=request)
            # In the meantime some may have been seen or answered elsewhere, or the lane may have closed.
            ours = tuple(event for event in events if self._is_carried(name, event.seq))
            offer = Offer(next(self._numbers), ours, {name: tuple(event.seq for event in ours)})
            # No await from this check on: the lane cannot close between it and the sending.
            if ours and lane.is_open:
                left.update(offer.seqs)
                lane.offers[offer.number] = offer
                lane.carry(offer)
                self._watch_offers(read_agent(self._log.rows, lane.agent))
                return offer
            if ours:
                reason = "the lane closed before it sent anything"
                await self._ledger.report(name, offer.seqs, State.QUEUED, lane=lane.word, reason=reason)
            else:
                # The event that changed their state may be written but not readable yet. Without a pause the
                # caller would select the same messages again, and the event loop could not continue.
                await asyncio.sleep(0)
        finally:
            mailbox.put_back(lane, [seq for seq in seqs if seq not in left])
        return None

    def take_up(self, lane: Lane, seqs: Sequence[int]) -> Offer | None:
        """Open an offer for messages that a lane's holder still has; None if no such message is submitted.

        If the earlier connection is still open here, the newer one replaces it.
        """
        # Only submitted messages: the others have an outcome by now, and the holder's claim is old.
        named = {seq: mailbox_on_lane(self._log.rows, lane.agent, seq) for seq in seqs}
        carried = {seq: mailbox for seq, mailbox in named.items() if self._is_carried(mailbox, seq)}
        # Without this, the message would still be claimed for the earlier connection, and none would report
        # it.
        for other in [one for one in self.lanes[lane.agent] if one.ability.kind is lane.ability.kind]:
            for offer in [offer for offer in other.offers.values() if set(offer.seqs) <= carried.keys()]:
                del other.offers[offer.number]
                for mailbox, part in offer.parts.items():
                    self._mailboxes.settle(mailbox, part)
        # The others are with a reader or another lane, which reports their outcome.
        free = [seq for seq, mailbox in carried.items() if not self._mailboxes.is_in_hand(mailbox, seq)]
        events = tuple(filter(None, map(self._log.event, free)))
        if not events:
            return None
        offer = Offer(
            next(self._numbers), events, by_mailbox((carried[event.seq], event.seq) for event in events)
        )
        for mailbox, part in offer.parts.items():
            self._mailboxes.get(mailbox).hold(lane, part)
        lane.offers[offer.number] = offer
        self._watch_offers(read_agent(self._log.rows, lane.agent))
        return offer

    def _is_carried(self, mailbox: str, seq: int) -> bool:
        entry = read_entry(self._log.rows, seq, mailbox)
        return entry is not None and is_carried(entry)

    # Closed gates

    async def let_go(self, agent: str) -> None:
        """Queue again the held messages that no gate stops any more, or that are of another session now."""
        known = read_agent(self._log.rows, agent)
        reached = () if known is None else mailboxes_of_lanes(self._log.rows, known)

        def is_over(mailbox: str, reason: str) -> bool:
            if mailbox not in reached:
                return True
            if reason == DIALOG:
                has_dialog = any(lane.has_dialog for lane in self.lanes.get(agent, ()))
                return not has_dialog and self._asked(agent) is None
            return self._shut(read_agent(self._log.rows, agent)) is None

        await self.gated.release(agent, is_over, why=self._why_over(agent))
        # After the await, because a lane may have opened meanwhile.
        if agent not in self.lanes:
            self.gated.forget(agent)

    def _why_over(self, agent: str) -> str:
        """Return why no gate holds messages back. A terminal reports its end before its agent leaves."""
        known, lanes = read_agent(self._log.rows, agent), self.lanes.get(agent, ())
        if known is None or known.left or any(lane.level.reason == AgentState.EXITED for lane in lanes):
            return "the agent has ended"
        return "the agent can receive messages again" if lanes else "the agent has no lane now"

    async def hold_long(self, lane: Lane) -> None:
        """Hold the messages that have waited for `SHUT_S` at a closed gate, and check the others later."""
        while (agent := read_agent(self._log.rows, lane.agent)) and self._shut(agent) is lane:
            since = self._clock.now_ms() - _SHUT_MS
            later: list[int] = []
            for name in mailboxes_of_lanes(self._log.rows, agent):
                waiting = waiting_at_gate(self._log, agent, lane, self._mailboxes.get(name))
                if long := [event for event in waiting if event.ts <= since]:
                    asleep = DIALOG if self._asked(lane.agent) is lane else ASLEEP
                    reason = lane.level.reason if lane.is_terminal else asleep
                    await self._hold_back(lane, name, long, reason)
                    # From the beginning: the agent, its mailboxes and its gates may have changed during the
                    # write.
                    break
                later += [event.ts for event in waiting]
            else:
                if later:
                    self._backoff.watch_again(lane, (min(later) - since) / 1000)
                return

    def _shut(self, agent: Agent | None) -> Lane | None:
        if agent is None:
            return None
        if (asked := asked_lane(agent, self.lanes.get(agent.name, ()))) is not None:
            return asked
        return shut_lane(self.lanes.get(agent.name, ()), idle=agent.state == AgentState.IDLE)

    def _asked(self, agent: str) -> Lane | None:
        known = read_agent(self._log.rows, agent)
        return None if known is None else asked_lane(known, self.lanes.get(agent, ()))

    async def _hold_back(self, lane: Lane, name: str, events: Sequence[Event], reason: str) -> None:
        mailbox = self._mailboxes.get(name)
        seqs = [event.seq for event in events]
        # Claimed during the write, so that no reader takes a message whose sender reads that it is held.
        mailbox.hold(lane, seqs)
        try:
            await self.gated.hold_back(name, events, lane=lane.word, reason=reason)
        finally:
            mailbox.put_back(lane, seqs)

    def forget_idle(self, agent: str) -> None:
        """Drop the mailbox of a session, or of an agent that has no lanes, if it is unused."""
        if agent not in self.lanes:
            self._mailboxes.forget_idle(agent)

    # Lost content

    async def give_up(self, agent: str, events: Sequence[Event]) -> None:
        """Hold messages that a reader found without content.

        No reader is woken. If the write fails, the next reader finds the messages again.
        """
        try:
            await self._ledger.lost(agent, events)
        finally:
            self._mailboxes.settle(agent, [event.seq for event in events])
            self.forget_idle(agent)

    async def _has_held_lost(self, agent: str, events: Sequence[Event]) -> bool:
        """Hold messages whose content is lost. Return whether there were any; if not, nothing is awaited."""
        if lost := [event for event in events if is_lost(event)]:
            await self._ledger.lost(agent, lost)
        return bool(lost)

    async def tell_stuck(self, lane: Lane) -> None:
        """Notify the senders of messages in the composer that a dialog covers it."""
        if lane.has_dialog:
            # A copy, because an offer can end at the await below.
            open_now = [(offer, mailbox) for offer in lane.offers.values() for mailbox in offer.parts]
            for offer, mailbox in open_now:
                events = [event for event in offer.events if event.seq in offer.parts[mailbox]]
                texts = [event for event in events if not is_raw(event)]
                await self.gated.tell(mailbox, texts, reason=DIALOG)
