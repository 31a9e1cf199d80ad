"""One agent's conversation with its model, as its hooks tell it: what was given, and what of it is proven.

In memory only. It ends with the session, with the agent, or with the daemon: then what was given and not
proven is unconfirmed.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from palaver.delivery.delivery import Delivery
from palaver.delivery.lane import Ability, Answer, Lane, LaneKind, Level, Offer
from palaver.doors.hooks.natives import Natives
from palaver.doors.hooks.trail import Trail
from palaver.harness.hook_news import HookNews, Step
from palaver.log.api import Log
from palaver.model.agent import Agent
from palaver.model.delivery import Grade
from palaver.model.envelope import Event
from palaver.model.life import BYE
from palaver.model.request import SetStatus

HOOK: Final = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)
LIMIT_BLOCKS: Final = 3
"""So many turns in a row are kept from ending, whatever the harness says."""


@dataclass(slots=True, eq=False)
class Conversation:
    """What is known of a session while its hooks come. Belongs to the loop's thread."""

    agent: str
    lane: Lane
    delivery: Delivery
    natives: Natives = field(default_factory=Natives)
    """Lanes of the harness itself that are open beside: what goes through them is proven here too."""
    blocks: int = 0
    heard: int = 0
    """How many hooks have come."""
    cut: set[int] = field(default_factory=set)
    """Messages of which such a lane could carry only the beginning."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One hook after the other is written down."""
    newest: SetStatus | None = None
    """What the agent is doing, as the last hook had it; what is older and not written yet is skipped."""
    said: SetStatus | None = None
    owes_instructions: bool = False
    """Its session has begun and could not be told who it is."""
    delegated: int = 0
    """So many sub-agents run whose hooks look like the session's own: nobody knows whose result it is."""
    may_be_delegated: bool = False
    """Its turn began while nobody listened, and maybe such a sub-agent with it; until one begins or ends."""
    trail: Trail = field(default_factory=Trail)
    shown: list[tuple[Lane, int]] = field(default_factory=list)
    """Once it is over: what monitors had shown in it and no hook had proven."""
    _proven: set[int] = field(default_factory=set)
    """What is proven, and not written down yet."""

    def hear(self, news: HookNews) -> tuple[frozenset[int], frozenset[int]]:
        """Take a hook in; gives what it proves was in a request to the model, and of what none ever can."""
        self.heard += 1
        if news.step is Step.PROMPT and not news.agent_id:
            self.blocks = 0
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
        """Whether what is known of the agent's state was said by a hook."""
        return self.said is not None and (self.said.state, self.said.detail) == (agent.state, agent.detail)

    def arrived(self, places: Iterable[int]) -> None:
        """These stand in a prompt that the harness is about to put to its model."""
        found = frozenset(places)
        self.trail.give(Step.PROMPT, found)
        for lane in self.natives.lanes:
            for number, offer in list(lane.offers.items()):
                if found.intersection(offer.seqs):
                    self.natives.arrived(lane)
                    self.delivery.arrived(lane, number)

    def given(self, offer: Offer, step: Step) -> None:
        """The harness has the text of an offer."""
        self.trail.give(step, offer.seqs)
        self.delivery.arrived(self.lane, offer.number)
        if step is Step.TURN_END:
            self.blocks += 1

    def given_before(self, step: Step, places: Sequence[int]) -> None:
        """A hook that an earlier daemon answered has written the text of these."""
        self.trail.give(step, places)
        if (offer := self.delivery.take_up(self.lane, places)) is not None:
            self.delivery.arrived(self.lane, offer.number)

    async def not_given(self, offer: Offer) -> None:
        """The hook gave up before it had the answer, so nothing of it left: it is in line again."""
        reason = "the hook was given up before it had the answer"
        await self.delivery.answer(self.lane, offer.number, Answer.DEFERRED, reason=reason)
        self.delivery.set_level(self.lane, Level())

    async def prove(self, places: frozenset[int]) -> None:
        """Have written that these were seen: by offers, and alone where no offer is open any more."""
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
        """Have written that nobody will know of the offers with these, but for what is proven of them."""
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
        """It is over: what was given and not proven is unconfirmed. Twice is once."""
        await self.prove(frozenset(self._proven))  # the hook that proves it may not be written down yet
        for lane, number in self.shown:
            await self.delivery.answer(lane, number, Answer.UNCONFIRMED)
        for lane in (self.lane, *self.natives.take_left()):
            await self.delivery.close_lane(lane)

    async def _close_settled(self) -> None:
        for lane in self.natives.take_settled():
            await self.delivery.close_lane(lane)


class Conversations:
    """Every conversation whose hooks come. One ends at the latest when its agent has left."""

    def __init__(self, delivery: Delivery, log: Log, tasks: asyncio.TaskGroup) -> None:
        self._delivery = delivery
        self._tasks = tasks
        self._of: dict[str, Conversation] = {}
        self._natives: dict[str, Natives] = {}
        self._over: dict[Conversation, None] = {}
        """Sessions that have ended, of which not all is written down."""
        self._unsubscribe = log.subscribe(self._follow)

    def close(self) -> None:
        """Stop reading the log. What was given and not proven is unconfirmed for the next daemon."""
        self._unsubscribe()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == BYE and (event.sender in self._of or event.sender in self._natives):
                self._tasks.create_task(self.end(event.sender))

    def get(self, agent: str) -> Conversation | None:
        """Give the conversation of an agent, if its hooks have come."""
        return self._of.get(agent)

    def open(self, agent: str) -> tuple[Conversation, bool]:
        """Give the conversation of an agent, and whether it begins with this."""
        known = self._of.get(agent)
        if known is not None:
            return known, False
        lane = self._delivery.open_lane(agent, HOOK, lambda offer: None)
        made = self._of[agent] = Conversation(agent, lane, self._delivery, self.natives(agent))
        return made, True

    def natives(self, agent: str) -> Natives:
        """Give what an agent's harness has beside hooks, now or later. `let_go` must follow."""
        return self._natives.setdefault(agent, Natives())

    def let_go(self, agent: str) -> None:
        """Forget what is empty."""
        if agent not in self._of and agent in self._natives and self._natives[agent].is_empty:
            del self._natives[agent]

    def add_native(self, lane: Lane) -> None:
        """A lane of the harness itself is open: what goes through it can be proven by hooks."""
        natives = self.natives(lane.agent)
        natives.monitors.append(lane)
        natives.end_wake()

    def remove_native(self, lane: Lane) -> None:
        """That lane is gone."""
        self._natives[lane.agent].monitors.remove(lane)
        self.let_go(lane.agent)

    async def end(self, agent: str) -> None:
        """The session is over, with or without hooks: what was given and not proven is unconfirmed."""
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
        """The session of a conversation is over: what comes next is another's. `finish` must follow.

        `is_late`: nobody said so, and the next one has begun. Twice is once.
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
        """A session begins behind which nothing is left of what was given before: see to what is open."""
        known = self._of.get(agent)
        if known is None:
            return
        natives = known.natives
        if known.lane.offers or natives.arrivals() or any(lane.is_spent for lane in natives.left):
            self.part(known, is_late=True)

    async def finish(self, agent: str) -> None:
        """Have written what the sessions of an agent that are over have left open."""
        for known in [known for known in self._over if known.agent == agent]:
            await known.finish()
            self._over.pop(known, None)
        self.let_go(agent)
