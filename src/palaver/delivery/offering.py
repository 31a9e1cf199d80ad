"""Offer messages on the lanes of agents: select the lane and the messages, and hold those at a closed gate.

Each agent has one check at a time. Its cost depends neither on the backlog nor on other agents.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Final

import msgspec

from palaver.clock import Clock
from palaver.delivery.gated import ASLEEP, Gated
from palaver.delivery.lane import Lane, Offer, shut_lane
from palaver.delivery.ledger import Ledger
from palaver.delivery.mailboxes import Mailboxes
from palaver.delivery.patience import SHUT_S, Patience
from palaver.delivery.pick import asked_lane, behind_gate, pick, within
from palaver.delivery.silence import Silence
from palaver.errors import Unavailable
from palaver.log.api import Log
from palaver.log.state import is_carried, read_agent, read_entry
from palaver.model.agent import Agent
from palaver.model.delivery import AgentState, State
from palaver.model.envelope import Event
from palaver.model.message import is_lost, is_raw
from palaver.model.terminal import DIALOG

_SHUT_MS: Final = round(SHUT_S * 1000)


class Offering:
    """The lanes of every agent of this daemon, and their offers."""

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        mailboxes: Mailboxes,
        patience: Patience,
        silence: Silence,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Start work in `tasks`; the owner of the group waits for it."""
        self._log = log
        self._ledger = ledger
        self._mailboxes = mailboxes
        self._patience = patience
        self._silence = silence
        self._clock = clock
        self._tasks = tasks
        self._pumps: set[str] = set()
        self._drawing: list[str] = []
        """Agents that are requesting messages now. No dialog blocks them, whatever their state says."""
        self._numbers = count(1)
        self.gated: Final = Gated(log, ledger)
        self.lanes: Final[defaultdict[str, list[Lane]]] = defaultdict(list)

    def look(self, agent: str) -> None:
        """Check whether messages can go to an agent now. Checks of one agent do not overlap."""
        if agent not in self.lanes:
            return
        known = read_agent(self._log.rows, agent)
        shut = self._shut(known)
        self._watch_offers(known)
        for lane in self.lanes[agent]:
            self._patience.watch(lane, is_asleep=lane is shut)
        if agent not in self._pumps:
            self._pumps.add(agent)
            self._tasks.create_task(self._pump(agent))

    def _watch_offers(self, agent: Agent | None) -> None:
        """Limit the wait for the outcomes of an agent's open offers while it is idle."""
        if agent is not None:
            self._silence.watch(self.lanes.get(agent.name, ()), is_idle=agent.state == AgentState.IDLE)

    async def _pump(self, agent: str) -> None:
        try:
            await self.let_go(agent)
            while agent not in self._drawing and (chosen := self.choose(agent)) is not None:
                lane, events = chosen
                if await self._has_held_lost(agent, events):
                    continue
                if is_raw(events[0]) or (lane.level.is_open and self._asked(agent) is None):
                    await self.offer(lane, events)
                else:
                    await self._hold_back(lane, events, DIALOG)
                await self.let_go(agent)
        except Unavailable:
            for lane in self.lanes.get(agent, ()):  # No other event may trigger the next check.
                self._patience.try_again(lane)
            raise
        finally:
            self._pumps.discard(agent)

    def choose(
        self, agent: str, asking: Lane | None = None, state: AgentState | None = None
    ) -> tuple[Lane, list[Event]] | None:
        """Select a lane and messages for it. No await in here: lanes may change at each await."""
        known = read_agent(self._log.rows, agent)
        if known is not None and state is not None:
            known = msgspec.structs.replace(known, state=state, detail="")
        lanes = self.lanes.get(agent, [])
        return None if known is None else pick(self._log, known, lanes, self._mailboxes.get(agent), asking)

    async def draw(
        self, lane: Lane, state: AgentState, *, limit_text: int, request: str = ""
    ) -> Offer | None:
        """Offer messages on a lane that requests them. See `Delivery.draw`.

        The request proves that the agent is awake. Messages held for a dialog are offered too: the dialog is
        over, although the stored state changes only later.
        """
        agent = lane.agent
        over = {ASLEEP, DIALOG} if self._asked(agent) is lane else {ASLEEP}
        asked = [agent] if DIALOG in over else []
        self._drawing += asked
        try:
            await self.gated.release(agent, over.__contains__, why="the agent asks for its messages")
            chosen = self.choose(agent, lane, state)
            while chosen is not None and await self._has_held_lost(agent, chosen[1]):
                chosen = self.choose(agent, lane, state)
        finally:
            for one in asked:
                self._drawing.remove(one)
                self.look(one)
        if chosen is None or chosen[0] is not lane:
            return None
        return await self.offer(lane, within(chosen[1], limit_text), request=request)

    async def offer(self, lane: Lane, events: Sequence[Event], *, request: str = "") -> Offer | None:
        """Write `submitted`, then send the messages, so that the log has every sent message after a crash.

        Return None if no message could be sent: their state has changed, or the lane has closed.
        """
        mailbox = self._mailboxes.get(lane.agent)
        seqs = [event.seq for event in events]
        mailbox.hold(lane, seqs)
        left: set[int] = set()
        try:
            await self._ledger.report(lane.agent, seqs, State.SUBMITTED, lane=lane.word, request=request)
            # In the meantime some may have been seen or answered elsewhere, or the lane may have closed.
            ours = tuple(event for event in events if self._is_carried(lane.agent, event.seq))
            offer = Offer(next(self._numbers), ours)
            if ours and lane.is_open:
                left.update(offer.seqs)
                lane.offers[offer.number] = offer
                lane.carry(offer)
                self._watch_offers(read_agent(self._log.rows, lane.agent))
                return offer
            if ours:
                reason = "the lane closed before anything left"
                await self._ledger.report(lane.agent, offer.seqs, State.QUEUED, lane=lane.word, reason=reason)
            else:
                # The event that changed their state may be written but not readable yet.
                await asyncio.sleep(0)
        finally:
            mailbox.put_back(lane, [seq for seq in seqs if seq not in left])
        return None

    def take_up(self, lane: Lane, seqs: Sequence[int]) -> Offer | None:
        """Open an offer for messages that a lane's holder still has; None if no such message is submitted.

        If the earlier connection is still open here, the newer one replaces it.
        """
        mailbox = self._mailboxes.get(lane.agent)
        carried = [seq for seq in seqs if self._is_carried(lane.agent, seq)]
        for other in [one for one in self.lanes[lane.agent] if one.ability.kind is lane.ability.kind]:
            for offer in [offer for offer in other.offers.values() if set(offer.seqs) <= set(carried)]:
                del other.offers[offer.number]
                mailbox.settle(offer.seqs)
        free = [seq for seq in carried if not mailbox.has_in_hand(seq)]
        events = tuple(filter(None, map(self._log.event, free)))
        if not events:
            return None
        offer = Offer(next(self._numbers), events)
        mailbox.hold(lane, offer.seqs)
        lane.offers[offer.number] = offer
        self._watch_offers(read_agent(self._log.rows, lane.agent))
        return offer

    def _is_carried(self, agent: str, seq: int) -> bool:
        entry = read_entry(self._log.rows, seq, agent)
        return entry is not None and is_carried(entry)

    # Closed gates

    async def let_go(self, agent: str) -> None:
        """Queue again the held messages that no gate stops any more."""

        def is_over(reason: str) -> bool:
            if reason == DIALOG:
                has_dialog = any(lane.is_behind_dialog for lane in self.lanes.get(agent, ()))
                return not has_dialog and self._asked(agent) is None
            return self._shut(read_agent(self._log.rows, agent)) is None

        await self.gated.release(agent, is_over, why=self._why_over(agent))
        if agent not in self.lanes:
            self.gated.forget(agent)

    def _why_over(self, agent: str) -> str:
        """Return why no gate holds messages back. A terminal reports its end before its agent leaves."""
        known, lanes = read_agent(self._log.rows, agent), self.lanes.get(agent, ())
        if known is None or known.left or any(lane.level.reason == AgentState.EXITED for lane in lanes):
            return "the agent has ended"
        return "the agent can take messages again" if lanes else "no lane leads to the agent now"

    async def hold_long(self, lane: Lane) -> None:
        """Hold the messages that have waited for `SHUT_S` at a closed gate, and check the others later."""
        while (agent := read_agent(self._log.rows, lane.agent)) and self._shut(agent) is lane:
            waiting = behind_gate(self._log, agent, lane, self._mailboxes.get(lane.agent))
            since = self._clock.now_ms() - _SHUT_MS
            if long := [event for event in waiting if event.ts <= since]:
                asleep = DIALOG if self._asked(lane.agent) is lane else ASLEEP
                await self._hold_back(lane, long, lane.level.reason if lane.is_terminal else asleep)
                continue
            if waiting:
                self._patience.watch_again(lane, (min(event.ts for event in waiting) - since) / 1000)
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

    async def _hold_back(self, lane: Lane, events: Sequence[Event], reason: str) -> None:
        mailbox = self._mailboxes.get(lane.agent)
        seqs = [event.seq for event in events]
        mailbox.hold(lane, seqs)
        try:
            await self.gated.hold_back(lane.agent, events, lane=lane.word, reason=reason)
        finally:
            mailbox.put_back(lane, seqs)

    def forget_idle(self, agent: str) -> None:
        """Drop the mailbox of an agent that has no lanes, if it is unused."""
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
        if lane.is_behind_dialog:
            open_now = [event for offer in lane.offers.values() for event in offer.events]
            texts = [event for event in open_now if not is_raw(event)]
            await self.gated.tell(lane.agent, texts, reason=DIALOG)
