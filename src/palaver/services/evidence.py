"""Prove deliveries by hooks: from the order of hooks, and from the files that hook clients leave."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from palaver.broker.broker import Broker
from palaver.broker.context import SYSTEM_CALLER
from palaver.errors import PalaverError
from palaver.harness.claude.output import seqs_in_notice
from palaver.harness.hooks import HookNews, HookStep
from palaver.log.follow import HandlerSwitch
from palaver.protocol.agent_text import typed_in
from palaver.protocol.agents import Agent
from palaver.protocol.envelope import Event, body_as
from palaver.protocol.events import BYE, DeliveryReport, Grade, State
from palaver.protocol.lanes import Ability, Delivering, Lane, LaneKind, LaneLevel, Offer, OfferOutcome
from palaver.protocol.message import format_priority
from palaver.protocol.query import Query
from palaver.protocol.requests import ReportDelivery, SetStatus
from palaver.protocol.subscriptions import DELIVERY
from palaver.services.queries import Queries
from palaver.state.agents import (
    agents_with_carried,
    carried_by_lanes,
    mailbox_on_lane,
    read_entry,
    read_lane_entry,
    read_unsure,
    read_unsure_of_all,
)
from palaver.state.rows import deliverable

# --------------------
# Decide from the order of hooks when a text passed to a harness has been in a request to its model.
#
# Pure: hooks in, seqs of messages out. It claims nothing that the order does not prove:
#
# - A text passed with a prompt, at the start, at the end of a turn or after all results is in the next
#   request.
# - A text passed with one result may still wait for the other tools of the same reply. It is in the next
#   request after the harness has reported that all have ended, or at the latest when the turn ends.
# - The model's reply shows that a request was made: a tool call, or the end of the turn.
# - A prompt that is directly followed by another one got no reply: another hook may have kept it from the
#   model, or a person withdrew it. A text passed with it stays unproven, whatever comes later.
# - A turn that failed, with no other hook after its prompt: the harness has dropped the prompt, and the text.

_ANSWERS: Final = frozenset({HookStep.CALL, HookStep.TURN_END})
_RESULTS: Final = frozenset({HookStep.RESULT, HookStep.BATCH})
_LIMIT: Final = 1000
"""Messages followed at once. When full, the oldest is dropped and stays unproven."""


class ContextEvidence:
    """The evidence of one conversation. A sub-agent has its own."""

    def __init__(self) -> None:
        self._next: dict[int, None] = {}
        """In the next request, whenever that is made."""
        self._gathering: dict[int, None] = {}
        """Passed with a result while other tools may still run."""
        self._prompted: dict[int, None] = {}
        """Passed with the last prompt, after which no hook has come yet."""
        self._unconfirmed: set[int] = set()

    @property
    def has_open(self) -> bool:
        """Return whether a text was passed whose evidence is still open."""
        return bool(self._next or self._gathering or self._prompted)

    def give(self, step: HookStep, seqs: Iterable[int]) -> None:
        """Record that these messages were passed to the harness at a hook of that step."""
        kept = {HookStep.RESULT: self._gathering, HookStep.PROMPT: self._prompted}.get(step, self._next)
        for seq in seqs:
            kept[seq] = None
        while len(kept) > _LIMIT:
            del kept[next(iter(kept))]

    def hear(self, news: HookNews) -> frozenset[int]:
        """Process a hook before anything is passed with it. Return the messages that it proves seen."""
        proven: frozenset[int] = frozenset()
        if news.step is HookStep.PROMPT:
            self._unconfirmed.update(self._prompted)
            self._prompted.clear()
        elif news.step in _ANSWERS or news.step in _RESULTS:
            self._next |= self._prompted
            self._prompted.clear()
        if news.step in _ANSWERS:
            proven = frozenset(self._next)
            self._next.clear()
        if news.step is HookStep.TURN_END:  # the request with the results is made before the turn ends
            proven |= frozenset(self._gathering)
            self._gathering.clear()
        elif news.step is HookStep.BATCH:
            self._next |= self._gathering
            self._gathering.clear()
        return proven

    def take_unconfirmed(self) -> frozenset[int]:
        """Remove and return the messages that can never be proven."""
        unconfirmed = frozenset(self._unconfirmed)
        self._unconfirmed.clear()
        return unconfirmed

    def take_dropped(self) -> frozenset[int]:
        """Remove and return the messages passed with the last prompt, because the harness has dropped it."""
        dropped = frozenset(self._prompted)
        self._prompted.clear()
        return dropped

    def forget(self) -> None:
        """Forget all texts, because the context of the conversation no longer contains them."""
        self._next.clear()
        self._gathering.clear()
        self._prompted.clear()


# --------------------
# The native lanes of an agent's harness besides its hooks: monitors, and wakes that work only once.
#
# Hooks prove the messages on these lanes. While a monitor runs, a wake has no task and is ended. A wake
# that has left carries nothing more; until its lines are in a prompt or a turn has ended, no other message
# may overtake them. If the session became active at that moment, the lines go along with tool results and
# no hook shows them. But lines still unread at the end of a turn are the next prompt, so a different prompt
# proves that they went.
#
# Lines of a monitor are always shown in a prompt, also in the middle of a turn. If a whole turn has passed
# since they were written and no prompt has shown them, the harness has dropped them.

_TURNS_MISSED: Final = 2
"""The first turn may have ended just when the lines were written. Only the second is a whole turn."""


@dataclass(slots=True, eq=False)
class Wake:
    """A process that waits to wake the agent. `end` stops it without output."""

    end: Callable[[], None]
    lane: Lane | None = None
    """None until it may have messages to carry."""


@dataclass(slots=True, eq=False)
class Natives:
    """The native lanes of one agent. Use it only on the event loop's thread."""

    monitors: list[Lane] = field(default_factory=list)
    wake: Wake | None = None
    left: dict[Lane, HookStep] = field(default_factory=dict)
    """Wakes that have left, and the progress of the turn since: START (no progress), BATCH, TURN_END."""
    turns: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """For each offer that a monitor has written and no prompt has shown, the number of turns ended since."""

    @property
    def lanes(self) -> list[Lane]:
        """Return the lanes with messages that a hook may prove."""
        return [*self.monitors, *self.left]

    @property
    def is_empty(self) -> bool:
        return not (self.monitors or self.left or self.wake)

    def wait(self, wake: Wake) -> None:
        """Register a wake; an earlier one is ended."""
        self.end_wake()
        self.wake = wake

    def end_wake(self) -> None:
        """End the waiting wake, if there is one."""
        if self.wake is not None:
            wake, self.wake = self.wake, None
            wake.end()

    def forget(self, wake: Wake) -> None:
        """Remove a wake that has ended."""
        if self.wake is wake:
            self.wake = None

    def hear(self, news: HookNews) -> frozenset[int]:
        """Process a hook. Return the messages of wakes that it proves."""
        if news.step is HookStep.END:  # at once, because the next session may begin before this is stored
            self.end_wake()
        for lane, step in self.left.items():
            if news.step is HookStep.BATCH or (news.step is HookStep.TURN_END and step is not HookStep.START):
                self.left[lane] = news.step
            lane.is_spent = lane.is_spent or news.step is HookStep.TURN_END
        # The end of a turn that a hook has prolonged is not counted, because it does not end a whole turn.
        if news.step is HookStep.TURN_END and not news.stop_active:
            on_their_way = [
                (lane, number)
                for lane in self.monitors
                for number in lane.offers
                if number not in lane.arrived
            ]
            self.turns = {one: self.turns.get(one, 0) + 1 for one in on_their_way}
        if news.step is not HookStep.PROMPT:
            return frozenset()
        shown = seqs_in_notice(news.prompt)
        over = [lane for lane, step in self.left.items() if step is HookStep.TURN_END]
        return frozenset(seq for lane in over for offer in lane.offers.values() for seq in offer.seqs) - shown

    def leave(self, wake: Wake) -> None:
        """Record that a wake has messages and leaves now."""
        self.forget(wake)
        assert wake.lane is not None  # a wake without a lane has no messages
        self.left[wake.lane] = HookStep.START

    def take_back(self, lane: Lane) -> None:
        """Stop following a wake whose lines may never have been written; hooks prove nothing about them."""
        self.left.pop(lane, None)

    def arrived(self, lane: Lane) -> None:
        """Record that the lines of a lane are in a prompt."""
        if lane in self.left:
            lane.is_spent = True

    def arrivals(self) -> list[tuple[Lane, int]]:
        """Return the offers that monitors have shown in a prompt and no hook has proven yet."""
        return [(lane, number) for lane in self.monitors for number in lane.arrived if number in lane.offers]

    def take_dropped(self) -> list[tuple[Lane, int]]:
        """Return the offers of monitors that were not shown during a whole turn. Each is returned once."""
        dropped = [one for one, ended in self.turns.items() if ended >= _TURNS_MISSED]
        for one in dropped:
            del self.turns[one]
        return dropped

    def part(self, *, only_spent: bool = False) -> "Natives":
        """Return the part that belongs to an ended session. Its wakes are removed here; monitors stay.

        `only_spent`: the next session may have begun already, and a wake that has just left may belong to it.
        """
        gone = {lane: step for lane, step in self.left.items() if lane.is_spent or not only_spent}
        for lane in gone:
            del self.left[lane]
        return Natives(monitors=list(self.monitors), left=gone)

    def take_settled(self) -> list[Lane]:
        """Remove and return the wakes whose offers are all settled."""
        settled = [lane for lane in self.left if not lane.offers]
        for lane in settled:
            del self.left[lane]
        return settled

    def take_left(self) -> list[Lane]:
        """Remove and return all wakes that have left, because their conversation has ended."""
        left = list(self.left)
        self.left.clear()
        return left


# --------------------
# One agent's conversation with its model, as its hooks show it: texts passed to it, and those proven seen.
#
# In memory only. It ends with the session, the agent or the daemon; messages that were passed to the harness
# and not proven are then unconfirmed.

HOOK: Final = Ability(kind=LaneKind.HOOK, reaches_busy=True, wakes_idle=False, is_pulled=True)
_TERMINAL: Final = LaneKind.TERMINAL.name.lower()
LIMIT_BLOCKS: Final = 3
"""Turns in a row that a message may keep from ending, whatever the harness says."""


def is_state_of(status: SetStatus | None, agent: Agent) -> bool:
    """Return whether this status is the stored state of the agent. Pure."""
    return status is not None and (status.state, status.detail) == (agent.state, agent.detail)


@dataclass(slots=True, eq=False)
class Conversation:
    """The state of one session while its hooks arrive. Use it only on the event loop's thread."""

    agent: str
    lane: Lane
    delivery: Delivering
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
    reported: SetStatus | None = None
    """The last status that a hook has reported; it may not be stored yet."""
    owes_instructions: bool = False
    """The session has begun and could not receive its instructions."""
    delegated: int = 0
    """Running sub-agents whose hooks look like the session's own, so the owner of a result is unknown."""
    may_be_delegated: bool = False
    """Such a sub-agent may run, because the turn began while no daemon was running.

    It is cleared when such a sub-agent begins or ends, or with the turn.
    """
    context_evidence: ContextEvidence = field(default_factory=ContextEvidence)
    typed: set[int] = field(default_factory=set)
    """Messages typed since the last turn ended that no prompt has contained: another prompt may follow."""
    shown: list[tuple[Lane, int]] = field(default_factory=list)
    """Set at the end: offers that monitors have shown in it and no hook has proven."""
    _proven: set[int] = field(default_factory=set)
    """Proven messages whose receipt is not stored yet."""
    _has_recovered: bool = False
    """Whether a hook settles, or has settled, the messages that an earlier daemon left."""

    @contextmanager
    def recovering(self) -> Iterator[bool]:
        """Yield whether the hook served in the block settles the messages that an earlier daemon left.

        This is true for the first hook. If its block fails, it is true for the next one.
        """
        # Before the block: another hook that comes during its awaits must not settle the same messages.
        is_first, self._has_recovered = not self._has_recovered, True
        try:
            yield is_first
        except PalaverError:
            self._has_recovered = not is_first
            raise

    def hear(self, news: HookNews) -> tuple[frozenset[int], frozenset[int]]:
        """Process a hook. Return the messages proven seen by the model, and those that never can be."""
        self.heard += 1
        if news.step is HookStep.PROMPT:
            self.blocks = 0
            self.typed -= typed_in(news.prompt)
        elif news.step in (HookStep.START, HookStep.TURN_END) or news.is_failed:
            self.typed.clear()
        # Only these hooks come while a sub-agent may run; any other one shows that all have ended.
        is_within = news.step in (HookStep.CALL, HookStep.RESULT, HookStep.ASIDE)
        if self.heard == 1:
            self.may_be_delegated = news.is_unmarked
        self.may_be_delegated = self.may_be_delegated and is_within and not news.delegates
        self.delegated = max(self.delegated + news.delegates, 0) if is_within else 0
        heard = self.context_evidence.hear(news) | self.natives.hear(news)
        unconfirmed = self.context_evidence.take_unconfirmed()
        self._proven |= (proven := heard - unconfirmed)
        return proven, unconfirmed

    def may_overlap(self, news: HookNews) -> bool:
        """Return whether another prompt may run at the same time: then no hook proves the texts in this."""
        is_typing = self.delivery.typing(self.agent) - typed_in(news.prompt)
        return news.can_overlap and bool(self.typed or is_typing)

    def arrived(self, seqs: Iterable[int]) -> None:
        """Record that these messages are in a prompt that the harness is about to send to its model."""
        found = frozenset(seqs)
        self.context_evidence.give(HookStep.PROMPT, found)
        for lane in self.natives.lanes:
            for number, offer in list(lane.offers.items()):
                if found.intersection(offer.seqs):
                    self.natives.arrived(lane)
                    self.delivery.arrived(lane, number)

    def given(self, offer: Offer, step: HookStep) -> None:
        """Record that the harness has the text of an offer."""
        self.context_evidence.give(step, offer.seqs)
        self.delivery.arrived(self.lane, offer.number)
        if step is HookStep.TURN_END:
            self.blocks += 1

    def given_before(self, step: HookStep, seqs: Sequence[int]) -> None:
        """Record that a hook served by an earlier daemon has written the text of these messages."""
        self.context_evidence.give(step, seqs)
        if (offer := self.delivery.take_up(self.lane, seqs)) is not None:
            self.delivery.arrived(self.lane, offer.number)

    async def not_given(self, offer: Offer) -> None:
        """Queue an offer again: its hook ended before it had the reply, so nothing was written."""
        reason = "the hook was cancelled before it received the reply"
        await self.delivery.answer(self.lane, offer.number, OfferOutcome.DEFERRED, reason=reason)
        # Ends the pause of a first deferral, so that the next hook gets these messages. A later pause ends by
        # time.
        self.delivery.set_level(self.lane, LaneLevel())

    async def drop(self, seqs: frozenset[int]) -> None:
        """Queue offers with these messages again: the harness has dropped the prompt that contained them."""
        # A copy, because an answer removes the offer.
        for number, offer in list(self.lane.offers.items()):
            if not seqs.isdisjoint(offer.seqs):
                reason = "the request failed, and its prompt was dropped"
                await self.delivery.answer(self.lane, number, OfferOutcome.DEFERRED, reason=reason)
        # Ends the pause of a first deferral, as in `not_given`.
        self.delivery.set_level(self.lane, LaneLevel())

    async def prove(self, seqs: frozenset[int]) -> None:
        """Store that these messages were seen: with their open offers, or separately if no offer is open."""
        self._proven |= seqs
        loose = set(seqs)
        for lane in (self.lane, *self.natives.lanes):
            # A copy, because an answer removes the offer.
            for number, offer in list(lane.offers.items()):
                loose.difference_update(offer.seqs)
                # An offer has one outcome for all its messages, so it waits until all are proven.
                if self._proven.issuperset(offer.seqs):
                    self._proven.difference_update(offer.seqs)
                    self.cut.difference_update(offer.seqs)
                    await self.delivery.answer(lane, number, OfferOutcome.SEEN, grade=Grade.CONTEXT)
        self._proven -= loose
        if loose:
            await self.delivery.recover(self.lane, sorted(loose), OfferOutcome.SEEN, grade=Grade.CONTEXT)
        await self._close_settled()

    async def unconfirm(self, seqs: frozenset[int]) -> None:
        """Store that offers with these messages are unconfirmed, except for the messages already proven."""
        for lane in (self.lane, *self.natives.lanes):
            # A copy, as above.
            for number, offer in list(lane.offers.items()):
                if seqs.isdisjoint(offer.seqs):
                    continue
                # The outcome below is for the whole offer, so the proven messages are reported before it.
                if seen := sorted(self._proven.intersection(offer.seqs)):
                    await self.delivery.recover(lane, seen, OfferOutcome.SEEN, grade=Grade.CONTEXT)
                self._proven.difference_update(offer.seqs)
                await self.delivery.answer(lane, number, OfferOutcome.UNCONFIRMED)
        await self._close_settled()

    async def finish(self) -> None:
        """End the conversation: messages not proven are unconfirmed. Repeats have no effect."""
        await self.prove(frozenset(self._proven))  # the hook that proves them may not be stored yet
        for lane, number in self.shown:
            await self.delivery.answer(lane, number, OfferOutcome.UNCONFIRMED)
        for lane in (self.lane, *self.natives.take_left()):
            await self.delivery.close_lane(lane)

    async def _close_settled(self) -> None:
        for lane in self.natives.take_settled():
            await self.delivery.close_lane(lane)


class Conversations:
    """All conversations with hooks. Each ends at the latest when its agent has left."""

    def __init__(self, delivery: Delivering, queries: Queries, tasks: asyncio.TaskGroup) -> None:
        self._delivery = delivery
        self._tasks = tasks
        self._of: dict[str, Conversation] = {}
        self._natives: dict[str, Natives] = {}
        self._over: dict[Conversation, None] = {}
        """Ended sessions whose open messages are not all settled."""
        self._unsubscribe = queries.subscribe(self._follow_ends, (BYE,))
        # Reports of delivery are frequent, so they are followed only while there is a conversation.
        self._reports = HandlerSwitch(queries, self._follow_reports, (DELIVERY,))

    def close(self) -> None:
        """Stop reading the log. Messages not proven are unconfirmed for the next daemon."""
        self._unsubscribe()
        self._reports.turn(is_on=False)

    def _follow_ends(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.sender in self._of or event.sender in self._natives:
                self._tasks.create_task(self.end(event.sender))

    def _follow_reports(self, events: Sequence[Event]) -> None:
        for event in events:
            if (known := self._of.get(event.sender)) is not None:
                report = body_as(event, DeliveryReport)
                if report.lane == _TERMINAL and report.state == State.SEEN:
                    known.typed.update(report.messages)

    def get(self, agent: str) -> Conversation | None:
        """Return the conversation of an agent, or None before its first hook."""
        return self._of.get(agent)

    def open(self, agent: str) -> Conversation:
        """Return the conversation of an agent; begin one if there is no conversation yet."""
        known = self._of.get(agent)
        if known is not None:
            return known
        # This lane requests its messages, so nothing is sent on it.
        lane = self._delivery.open_lane(agent, HOOK, lambda offer: None)
        made = self._of[agent] = Conversation(agent, lane, self._delivery, self.natives(agent))
        self._reports.turn(is_on=True)
        return made

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
                await self._delivery.answer(lane, number, OfferOutcome.UNCONFIRMED)
            for lane in natives.take_left():
                await self._delivery.close_lane(lane)
        self.let_go(agent)

    def part(self, known: Conversation, *, is_late: bool = False) -> None:
        """Detach the conversation of an ended session; later hooks start another. Then call `finish`.

        `is_late`: no hook reported the end, and the next session has begun. Repeats have no effect.
        """
        if self._of.get(known.agent) is not known:
            return
        # Detached before anything is stored, because hooks of the next session may come meanwhile.
        del self._of[known.agent]
        self._reports.turn(is_on=bool(self._of))
        self._over[known] = None
        known.lane.is_spent = True
        known.context_evidence.forget()
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


# --------------------
# The outcome of hook replies after a crash of the daemon: written to the harness, or not.
#
# A hook process leaves an empty file in `hooks/` of the home, named after its request key: `.said` once it
# has written a reply with messages, `.lost` when it ends without one. The `submitted` event of the messages
# contains the same key. So the next daemon knows for each message whether the harness has it.

FOLDER: Final = "hooks"
_LOST: Final = ".lost"
_SAID: Final = ".said"
_HOOK: Final = LaneKind.HOOK.name.lower()
_LIMIT_KEYS: Final = 1000
"""Messages whose request is remembered until they are proven. When full, the oldest is dropped."""
_LIMIT_REPORTS: Final = 1000
"""Newest delivery events of one agent that are searched for a request key."""
_KEPT_S: Final = 24 * 3600.0
"""Seconds that a file is kept if it belongs to no open message."""


@dataclass(frozen=True, slots=True)
class HookRequest:
    """One request of a hook process. A repeat has the same key: its reply was never written."""

    key: str = ""
    is_repeat: bool = False

    def at(self, step: HookStep) -> str:
        """Return the text that identifies this request in the `submitted` event."""
        return f"{step.value} {self.key}" if self.key else ""


class HookOutcomes:
    """The files of hook processes. Use it only on the event loop's thread."""

    def __init__(self, home: Path, queries: Queries, broker: Broker) -> None:
        self._folder = home / FOLDER
        self._queries = queries
        self._broker = broker
        self._keys: dict[tuple[str, int], str] = {}

    async def start(self, now_s: float) -> None:
        """Create the folder, queue the messages of replies that were never written, and remove old files."""
        # Without the folder hooks still work; only the outcome of their replies is unknown after a crash.
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
        left, rows = self._left(), self._queries.rows
        open_keys: set[str] = set()
        for agent in agents_with_carried(rows) if left else ():
            found = await self._requests(agent, carried_by_lanes(rows, agent))
            open_keys.update(key for _, key in found.values())
            lost = {seq: key for seq, (_, key) in found.items() if left.get(key) == _LOST}
            await self._queue_again(agent, lost)
        # The first hook of an agent also settles its unconfirmed messages: see `recover`.
        for agent, unsure in read_unsure_of_all(rows).items() if left else ():
            found = await self._requests(agent, unsure)
            open_keys.update(key for _, key in found.values())
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path.stem not in open_keys and now_s - path.stat().st_mtime > _KEPT_S:
                    path.unlink()

    async def recover(
        self, conversation: Conversation, request: HookRequest, *, is_first: bool, is_new: bool
    ) -> None:
        """Settle the messages of hooks that an earlier daemon served.

        Messages of a reply that was never written are queued again. Those of a written reply are proven by
        later hooks, unless a new session begins, whose context does not contain them.
        """
        left = self._left() if is_first or request.is_repeat else {}
        if not left and not request.is_repeat:
            return
        rows, agent = self._queries.rows, conversation.agent
        # Offers of this daemon have a hook that will report their outcome itself.
        in_hand = {seq for offer in conversation.lane.offers.values() for seq in offer.seqs}
        open_now = [
            seq for seq in (*carried_by_lanes(rows, agent), *read_unsure(rows, agent)) if seq not in in_hand
        ]
        found = await self._requests(agent, open_now)
        own = request.key if request.is_repeat else ""
        lost = {seq: key for seq, (_, key) in found.items() if key == own or left.get(key) == _LOST}
        await self._queue_again(agent, lost)
        written: defaultdict[tuple[HookStep, str], list[int]] = defaultdict(list)
        for seq, (step, key) in found.items():
            if not is_new and seq not in lost and left.get(key) == _SAID:
                written[step, key].append(seq)
        for (step, key), seqs in written.items():
            self.remember(agent, seqs, key)
            conversation.given_before(step, seqs)

    def remember(self, agent: str, seqs: Iterable[int], key: str) -> None:
        """Remember which request carried these messages, until they are proven."""
        for seq in seqs:
            self._keys[agent, seq] = key
        while len(self._keys) > _LIMIT_KEYS:
            self._remove(self._keys.pop(next(iter(self._keys))), _SAID)

    def forget(self, agent: str, seqs: Iterable[int]) -> None:
        """Remove the files of messages that are settled."""
        for key in {self._keys.pop((agent, seq), "") for seq in seqs}:
            self._remove(key, _SAID)

    def forget_lost(self, key: str) -> None:
        """Remove the file of a reply that was not written, because its messages are queued again."""
        self._remove(key, _LOST)

    def _remove(self, key: str, ending: str) -> None:
        if key:
            with suppress(OSError):
                # A file that remains is removed by the start of a later daemon: see `_KEPT_S`.
                (self._folder / f"{key}{ending}").unlink()

    def _left(self) -> dict[str, str]:
        """Return the files by request key. `.said` replaces `.lost`: a written reply was not lost."""
        try:
            # Sorted, so that of two files with one key `.said` comes last and counts.
            names = sorted(path.name for path in self._folder.iterdir())
        except OSError:
            return {}
        return {name[: -len(_SAID)]: name[-len(_SAID) :] for name in names}

    async def _requests(self, agent: str, seqs: Iterable[int]) -> dict[int, tuple[HookStep, str]]:
        """Return step and request key of the messages whose last lane was a hook."""
        rows = self._queries.rows
        entries = [(seq, read_lane_entry(rows, seq, agent)) for seq in seqs]
        wanted = {seq for seq, entry in entries if entry and entry.lane == _HOOK}
        if not wanted:
            return {}
        query = Query(types=("delivery",), senders=(agent,), after=min(wanted), last=_LIMIT_REPORTS)
        taken: dict[int, str] = {}
        for event in await self._queries.read(query):
            report = body_as(event, DeliveryReport)
            if report.state == State.SUBMITTED and not report.unconfirmed:
                taken.update(dict.fromkeys(wanted.intersection(report.messages), report.request))
        named = {seq: request.split(" ") for seq, request in taken.items() if request}
        return {seq: (HookStep(step), key) for seq, (step, key) in named.items()}

    async def _queue_again(self, agent: str, lost: dict[int, str]) -> None:
        for seq in lost:
            mailbox = mailbox_on_lane(self._queries.rows, agent, seq)
            event, entry = self._queries.event(seq), read_entry(self._queries.rows, seq, mailbox)
            assert event is not None
            assert entry is not None  # both were read to find the request
            again = DeliveryReport(
                agent=mailbox,
                messages=(seq,),
                state=State.QUEUED,
                lane=_HOOK,
                reason="the hook ended before it received the reply",
                # An unconfirmed message has left its mailbox, so its place there needs the priority again.
                priority=format_priority(deliverable(event).priority) if entry.unconfirmed else "",
            )
            await self._broker.submit(SYSTEM_CALLER, ReportDelivery(report=again))
        # After all writes: if one fails, the file still says that its messages must be queued.
        for key in set(lost.values()):
            self._remove(key, _LOST)
