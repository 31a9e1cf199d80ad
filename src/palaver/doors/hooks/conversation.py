"""One agent's conversation with its model, as its hooks show it: texts passed to it, and those proven seen.

In memory only. It ends with the session, the agent or the daemon; messages that were passed to the harness
and not proven are then unconfirmed.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from palaver.delivery.delivery import Delivery
from palaver.delivery.lane import Ability, Answer, Lane, LaneKind, Level, Offer
from palaver.doors.hooks.natives import Natives
from palaver.doors.hooks.trail import Trail
from palaver.harness.hook_news import HookNews, Step
from palaver.log.api import Log
from palaver.model.agent import Agent
from palaver.model.delivery import Grade, State
from palaver.model.envelope import Event
from palaver.model.forms import typed_in
from palaver.model.life import BYE
from palaver.model.mail import DeliveryReport
from palaver.model.request import SetStatus

HOOK: Final = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)
_TERMINAL: Final = LaneKind.TERMINAL.name.lower()
LIMIT_BLOCKS: Final = 3
"""Turns in a row that a message may keep from ending, whatever the harness says."""


@dataclass(slots=True, eq=False)
class Conversation:
    """The state of one session while its hooks arrive. Use it only on the event loop's thread."""

    agent: str
    lane: Lane
    delivery: Delivery
    natives: Natives = field(default_factory=Natives)
    """Lanes of the harness itself that are also open; hooks prove their messages too."""
    blocks: int = 0
    heard: int = 0
    """Number of hooks received."""
    cut: set[int] = field(default_factory=set)
    """Messages of which a native lane could carry only the beginning."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Hooks are stored one after the other."""
    newest: SetStatus | None = None
    """The status of the last hook. An older status that is not stored yet is skipped."""
    said: SetStatus | None = None
    owes_instructions: bool = False
    """The session has begun and could not receive its instructions."""
    delegated: int = 0
    """Running sub-agents whose hooks look like the session's own, so the owner of a result is unknown."""
    may_be_delegated: bool = False
    """Such a sub-agent may run, because the turn began while no daemon was running.

    It is cleared when such a sub-agent begins or ends, or with the turn.
    """
    trail: Trail = field(default_factory=Trail)
    typed: set[int] = field(default_factory=set)
    """Messages typed since the last turn ended that no prompt has contained: another prompt may follow."""
    shown: list[tuple[Lane, int]] = field(default_factory=list)
    """Set at the end: offers that monitors have shown in it and no hook has proven."""
    _proven: set[int] = field(default_factory=set)
    """Proven messages whose receipt is not stored yet."""

    def hear(self, news: HookNews) -> tuple[frozenset[int], frozenset[int]]:
        """Process a hook. Return the messages proven seen by the model, and those that never can be."""
        self.heard += 1
        if news.step is Step.PROMPT and not news.agent_id:
            self.blocks = 0
            self.typed -= typed_in(news.prompt)
        elif (news.step in (Step.START, Step.TURN_END) or news.is_failed) and not news.agent_id:
            self.typed.clear()
        is_within = news.step in (Step.CALL, Step.RESULT, Step.ASIDE)
        if self.heard == 1:
            self.may_be_delegated = news.is_unmarked
        self.may_be_delegated = self.may_be_delegated and is_within and not news.delegates
        self.delegated = max(self.delegated + news.delegates, 0) if is_within else 0
        heard = self.trail.hear(news) | self.natives.hear(news)
        doubtful = self.trail.take_doubtful()
        self._proven |= (proven := heard - doubtful)
        return proven, doubtful

    def has_said(self, agent: Agent) -> bool:
        """Return whether the stored state of the agent was reported by a hook."""
        return self.said is not None and (self.said.state, self.said.detail) == (agent.state, agent.detail)

    def may_overlap(self, news: HookNews) -> bool:
        """Return whether another prompt may run at the same time: then no hook proves the texts in this."""
        is_typing = self.delivery.typing(self.agent) - typed_in(news.prompt)
        return news.can_overlap and bool(self.typed or is_typing)

    def arrived(self, places: Iterable[int]) -> None:
        """Record that these messages are in a prompt that the harness is about to send to its model."""
        found = frozenset(places)
        self.trail.give(Step.PROMPT, found)
        for lane in self.natives.lanes:
            for number, offer in list(lane.offers.items()):
                if found.intersection(offer.seqs):
                    self.natives.arrived(lane)
                    self.delivery.arrived(lane, number)

    def given(self, offer: Offer, step: Step) -> None:
        """Record that the harness has the text of an offer."""
        self.trail.give(step, offer.seqs)
        self.delivery.arrived(self.lane, offer.number)
        if step is Step.TURN_END:
            self.blocks += 1

    def given_before(self, step: Step, places: Sequence[int]) -> None:
        """Record that a hook served by an earlier daemon has written the text of these messages."""
        self.trail.give(step, places)
        if (offer := self.delivery.take_up(self.lane, places)) is not None:
            self.delivery.arrived(self.lane, offer.number)

    async def not_given(self, offer: Offer) -> None:
        """Queue an offer again: its hook ended before it had the reply, so nothing was written."""
        reason = "the hook was given up before it had the answer"
        await self.delivery.answer(self.lane, offer.number, Answer.DEFERRED, reason=reason)
        self.delivery.set_level(self.lane, Level())

    async def drop(self, places: frozenset[int]) -> None:
        """Queue offers with these messages again: the harness has dropped the prompt that contained them."""
        for number, offer in list(self.lane.offers.items()):
            if not places.isdisjoint(offer.seqs):
                reason = "the request failed, and its prompt was dropped"
                await self.delivery.answer(self.lane, number, Answer.DEFERRED, reason=reason)
        self.delivery.set_level(self.lane, Level())

    async def prove(self, places: frozenset[int]) -> None:
        """Store that these messages were seen: with their open offers, or separately if no offer is open."""
        self._proven |= places
        loose = set(places)
        for lane in (self.lane, *self.natives.lanes):
            for number, offer in list(lane.offers.items()):
                loose.difference_update(offer.seqs)
                if self._proven.issuperset(offer.seqs):
                    self._proven.difference_update(offer.seqs)
                    self.cut.difference_update(offer.seqs)
                    await self.delivery.answer(lane, number, Answer.SEEN, grade=Grade.CONTEXT)
        self._proven -= loose
        if loose:
            await self.delivery.recover(self.lane, sorted(loose), Answer.SEEN, grade=Grade.CONTEXT)
        await self._close_settled()

    async def doubt(self, places: frozenset[int]) -> None:
        """Store that offers with these messages are unconfirmed, except for the messages already proven."""
        for lane in (self.lane, *self.natives.lanes):
            for number, offer in list(lane.offers.items()):
                if places.isdisjoint(offer.seqs):
                    continue
                if seen := sorted(self._proven.intersection(offer.seqs)):
                    await self.delivery.recover(lane, seen, Answer.SEEN, grade=Grade.CONTEXT)
                self._proven.difference_update(offer.seqs)
                await self.delivery.answer(lane, number, Answer.UNCONFIRMED)
        await self._close_settled()

    async def finish(self) -> None:
        """End the conversation: messages not proven are unconfirmed. Repeats have no effect."""
        await self.prove(frozenset(self._proven))  # the hook that proves them may not be stored yet
        for lane, number in self.shown:
            await self.delivery.answer(lane, number, Answer.UNCONFIRMED)
        for lane in (self.lane, *self.natives.take_left()):
            await self.delivery.close_lane(lane)

    async def _close_settled(self) -> None:
        for lane in self.natives.take_settled():
            await self.delivery.close_lane(lane)


class Conversations:
    """All conversations with hooks. Each ends at the latest when its agent has left."""

    def __init__(self, delivery: Delivery, log: Log, tasks: asyncio.TaskGroup) -> None:
        self._delivery = delivery
        self._tasks = tasks
        self._of: dict[str, Conversation] = {}
        self._natives: dict[str, Natives] = {}
        self._over: dict[Conversation, None] = {}
        """Ended sessions whose open messages are not all settled."""
        self._unsubscribe = log.subscribe(self._follow)

    def close(self) -> None:
        """Stop reading the log. Messages not proven are unconfirmed for the next daemon."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == BYE and (event.sender in self._of or event.sender in self._natives):
                self._tasks.create_task(self.end(event.sender))
            elif event.type == "delivery" and (known := self._of.get(event.sender)) is not None:
                report = msgspec.convert(event.payload, DeliveryReport)
                if report.lane == _TERMINAL and report.state == State.SEEN:
                    known.typed.update(report.messages)

    def get(self, agent: str) -> Conversation | None:
        """Return the conversation of an agent, or None before its first hook."""
        return self._of.get(agent)

    def open(self, agent: str) -> tuple[Conversation, bool]:
        """Return the conversation of an agent, and whether this call created it."""
        known = self._of.get(agent)
        if known is not None:
            return known, False
        lane = self._delivery.open_lane(agent, HOOK, lambda offer: None)
        made = self._of[agent] = Conversation(agent, lane, self._delivery, self.natives(agent))
        return made, True

    def natives(self, agent: str) -> Natives:
        """Return the native lanes of an agent's harness; may be empty. Call `let_go` afterwards."""
        return self._natives.setdefault(agent, Natives())

    def let_go(self, agent: str) -> None:
        """Remove the entry of an agent if it is empty."""
        if agent not in self._of and agent in self._natives and self._natives[agent].is_empty:
            del self._natives[agent]

    def add_native(self, lane: Lane) -> None:
        """Add a native lane of the harness. Hooks can prove the messages on it."""
        natives = self.natives(lane.agent)
        natives.monitors.append(lane)
        natives.end_wake()

    def remove_native(self, lane: Lane) -> None:
        """Remove a native lane of the harness."""
        self._natives[lane.agent].monitors.remove(lane)
        self.let_go(lane.agent)

    async def end(self, agent: str) -> None:
        """End the session of an agent, with or without hooks: messages not proven are unconfirmed."""
        if (known := self._of.get(agent)) is not None:
            self.part(known)
        await self.finish(agent)
        if (natives := self._natives.get(agent)) is not None:
            for lane, number in natives.arrivals():
                await self._delivery.answer(lane, number, Answer.UNCONFIRMED)
            for lane in natives.take_left():
                await self._delivery.close_lane(lane)
        self.let_go(agent)

    def part(self, known: Conversation, *, is_late: bool = False) -> None:
        """Detach the conversation of an ended session; later hooks start another. Then call `finish`.

        `is_late`: no hook reported the end, and the next session has begun. Repeats have no effect.
        """
        if self._of.get(known.agent) is not known:
            return
        del self._of[known.agent]
        self._over[known] = None
        known.lane.is_spent = True
        known.trail.forget()
        known.shown = known.natives.arrivals()
        known.natives = known.natives.part(only_spent=is_late)

    def begin(self, agent: str) -> None:
        """Begin a session without the earlier texts: detach a conversation that has open offers."""
        known = self._of.get(agent)
        if known is None:
            return
        natives = known.natives
        if known.lane.offers or natives.arrivals() or any(lane.is_spent for lane in natives.left):
            self.part(known, is_late=True)

    async def finish(self, agent: str) -> None:
        """Settle the open messages of an agent's ended sessions."""
        for known in [known for known in self._over if known.agent == agent]:
            await known.finish()
            self._over.pop(known, None)
        self.let_go(agent)
