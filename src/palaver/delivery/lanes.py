"""The lanes of an agent, and which of them takes a message now. A lane says whether it may repeat one."""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from palaver.clock import Clock
from palaver.protocol.envelope import Event
from palaver.protocol.message import is_raw
from palaver.protocol.requests import DIALOG
from palaver.protocol.text import LIMIT_INJECTION

# --------------------
# Lanes that must not receive a message twice: hook, native, terminal. Their abilities and open offers.
#
# `submitted` is written before an offer is sent. An offer ends by evidence, by a definite refusal, or with
# the lane; then it stays submitted and unconfirmed. A timeout never sends a message a second time.


class LaneKind(enum.IntEnum):
    """Kinds of lanes. A smaller number is better: delivery uses the best live lane."""

    NATIVE = 1
    HOOK = 2
    TERMINAL = 3


class OfferOutcome(enum.StrEnum):
    """The outcome of an offer."""

    SEEN = "seen"
    REFUSED = "refused"
    DEFERRED = "deferred"
    UNCONFIRMED = "unconfirmed"
    """It was sent, and it is unknown whether it was read."""


IDLE_WAIT_S: Final = 60.0
"""How long an offer may stay without an outcome while its agent is idle."""
PACED: Final = "paced"
"""Reason of a lane that waits for a rate limit of the harness. Lanes that pull need not wait."""
WITHDRAWN: Final = "it was in no prompt, and was taken back"
"""Reason of messages that are queued again because the harness never showed them to its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """The abilities of a lane."""

    kind: LaneKind
    reaches_busy: bool
    wakes_idle: bool
    is_pulled: bool = False
    """It requests messages itself, with `Delivery.draw`, and receives no other offers."""
    limit: int = LIMIT_INJECTION
    """Messages per offer, at most."""
    awaits_native: bool = False
    """The harness also has a native lane: wait some time for it to connect."""
    remembers: bool = False
    """Its holder remembers every offer that reached it, and reports them on its next connection."""
    idle_wait_s: float = IDLE_WAIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLevel:
    """The gate state of a lane, as its holder last reported it.

    A paused lane accepts only interrupts, a closed one nothing. `reason` is one word.
    """

    is_open: bool = True
    is_paused: bool = False
    reason: str = ""


NATIVE_FIRST: Final = LaneLevel(is_open=False, reason="native")
"""The gate state of a terminal while a native lane is expected."""
NOT_YET: Final = LaneLevel(is_open=False, reason="starting")
"""The first gate state of a terminal: nothing is typed until its holder reports that it is ready."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch of messages submitted on one lane."""

    number: int
    events: tuple[Event, ...]

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(event.seq for event in self.events)


@dataclass(slots=True, eq=False)
class Lane:
    """One live lane of one agent. `carry` sends an offer without waiting."""

    agent: str
    ability: Ability
    carry: Callable[[Offer], None]
    offers: dict[int, Offer] = field(default_factory=dict)
    is_open: bool = True
    is_deferred: bool = False
    """It deferred an offer: make no offer until something changes or the pause ends."""
    are_keys_deferred: bool = False
    """The same for raw keys."""
    deferrals: int = 0
    """Number of deferrals in a row."""
    refused: set[int] = field(default_factory=set)
    """Seqs of messages that it definitely refused. Another lane may take them."""
    level: LaneLevel = LaneLevel()
    arrived: set[int] = field(default_factory=set)
    """Open offers that have arrived, but are not proven to be seen. More offers can follow them."""
    awaits_native: bool = False
    """A native lane of the agent may still connect; until then nothing is offered on this one."""
    is_spent: bool = False
    """It receives no more offers, and stays only until the outcomes of its open offers are known."""
    silence: Callable[[Offer], OfferOutcome] = lambda offer: OfferOutcome.UNCONFIRMED
    """Returns the outcome of an offer about which an idle agent's lane reported nothing: refused if the model
    certainly did not see it."""
    has_said_all: bool = False
    """Its holder knows every offer of an earlier connection, and has reported the outcome of each."""
    late: dict[int, Offer] = field(default_factory=dict)
    """Offers whose wait has ended. A late outcome still counts."""

    def __post_init__(self) -> None:
        if self.is_terminal:
            self.level = NOT_YET

    @property
    def is_terminal(self) -> bool:
        """Whether its messages are typed into a terminal."""
        return self.ability.kind is LaneKind.TERMINAL

    @property
    def limit(self) -> int:
        """Messages per offer. Messages are typed one by one, so that each has its own outcome."""
        return 1 if self.is_terminal else self.ability.limit

    @property
    def is_shut(self) -> bool:
        """Whether nothing can be done with it now: neither make an offer, nor hold messages for a dialog."""
        is_closed = self.is_busy or self.awaits_native or not self.level.is_open
        return not self.is_behind_dialog and is_closed

    @property
    def is_paced(self) -> bool:
        """Whether it has no pending offer and waits for a rate limit of the harness."""
        return not self.level.is_open and self.level.reason == PACED and not self.is_busy

    @property
    def can_take_keys(self) -> bool:
        """Whether it accepts raw keys now: despite its gate and other typing, but one message at a time."""
        is_free = not any(is_raw(event) for offer in self.offers.values() for event in offer.events)
        return self.is_terminal and is_free and not self.are_keys_deferred

    @property
    def is_behind_dialog(self) -> bool:
        """Whether a dialog is open, so that not even an interrupt may be typed."""
        return not self.level.is_open and self.level.reason == DIALOG

    @property
    def word(self) -> str:
        """The kind of lane, as the ledger names it."""
        return self.ability.kind.name.lower()

    @property
    def is_busy(self) -> bool:
        """Whether an offer is pending or was deferred. That is not a failure, so no other lane is used."""
        return self.is_deferred or self.is_under_way

    @property
    def is_under_way(self) -> bool:
        """Whether an offer was sent and has not arrived."""
        return any(number not in self.arrived for number in self.offers)

    def is_overtaken_by(self, asking: "Lane") -> bool:
        """Return whether messages taken by `asking` now would arrive before earlier ones pending here.

        That includes a lane that can only wake an idle agent, even if the agent has become active since.
        """
        return self.ability.kind < asking.ability.kind and not self.is_spent and self.is_under_way

    def can_reach(self, *, idle: bool) -> bool:
        """Return whether it can reach the agent in its current state."""
        return not self.is_spent and (self.ability.wakes_idle if idle else self.ability.reaches_busy)


def shut_lane(lanes: Sequence[Lane], *, idle: bool) -> Lane | None:
    """Return the lane that messages wait for: a terminal with a closed gate, if it is the best lane.

    If no lane can wake an idle agent, it is the lane that pulls messages itself.
    """
    best = next(iter(lanes_in_order(lanes, idle=idle)), None)
    if best is None:
        pulled = (lane for lane in lanes if lane.ability.is_pulled and not lane.is_spent)
        return next(pulled, None) if idle else None
    return best if best.is_terminal and not best.level.is_open else None


def lanes_in_order(lanes: Iterable[Lane], *, idle: bool, asking: Lane | None = None) -> list[Lane]:
    """Return the lanes that can reach the agent: best kind first, then in the order of opening.

    The lane that requests messages (`asking`) is always included.
    """
    able = [lane for lane in lanes if lane is asking or lane.can_reach(idle=idle)]
    return sorted(able, key=lambda lane: lane.ability.kind)


# --------------------
# Deadlines at which a lane is checked again without an event: after a deferral or at a closed gate.
#
# A waiting message and an open gate are enough for delivery, so a deferral must also end by time. Senders
# are notified of messages that wait long at a closed gate. This module only keeps deadlines; delivery acts
# on them.

FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 60.0
"""The pause after a deferral doubles from the first to the longest value."""
SHUT_S: Final = 30.0
"""How long messages may wait at a closed gate before their senders are notified."""
STUCK_S: Final = 2.0
"""How long an offer may be stuck at a dialog. A new offer may have opened the dialog itself."""


NATIVE_S: Final = 5.0
"""How long a native lane may take to connect before the terminal is used. It tries every half second."""


class Patience:
    """The deadlines of all lanes. `changed` is called when the next one may be earlier."""

    def __init__(self, clock: Clock, changed: Callable[[], None], *, native_wait_s: float = NATIVE_S) -> None:
        self._clock = clock
        self._native_wait_s = native_wait_s
        self._changed = changed
        self._deferred: dict[Lane, float] = {}
        self._shut: dict[Lane, float] = {}
        self._stuck: dict[Lane, float] = {}
        self._awaiting: dict[Lane, float] = {}

    def defer(self, lane: Lane, *, is_raw: bool) -> None:
        """Record a deferral. The pause doubles with each deferral in a row."""
        pause_s = min(FIRST_PAUSE_S * 2**lane.deferrals, LONGEST_PAUSE_S)
        lane.deferrals += 1
        if is_raw:
            lane.are_keys_deferred = True
        else:
            lane.is_deferred = True
        self._set(self._deferred, lane, pause_s)

    def try_again(self, lane: Lane) -> None:
        """Check a lane again after a pause, because a write failed."""
        if lane not in self._deferred:
            self._set(self._deferred, lane, FIRST_PAUSE_S)

    def resume(self, lane: Lane) -> None:
        """End a deferral, because something has changed."""
        lane.is_deferred = lane.are_keys_deferred = False
        self._deferred.pop(lane, None)

    def watch(self, lane: Lane, *, is_asleep: bool = False) -> None:
        """Set or clear the deadlines for a closed gate, and for offers that are stuck at a dialog.

        `is_asleep`: the gate is open, but the agent is idle and no lane can wake it.
        """
        if lane.level.is_open and not is_asleep:
            self._shut.pop(lane, None)
        elif lane not in self._shut:
            self._set(self._shut, lane, SHUT_S)
        if not (lane.is_behind_dialog and lane.offers):
            self._stuck.pop(lane, None)
        elif lane not in self._stuck:
            self._set(self._stuck, lane, STUCK_S)

    def watch_again(self, lane: Lane, wait_s: float) -> None:
        """Check a closed gate again after `wait_s`, because some messages have not waited long enough."""
        self._set(self._shut, lane, min(wait_s, SHUT_S))

    def await_native(self, lane: Lane) -> None:
        """Keep a terminal closed until a native lane of its agent opens, for a limited time."""
        lane.awaits_native = True
        self._set(self._awaiting, lane, self._native_wait_s)

    def stop_awaiting(self, lane: Lane) -> None:
        """Allow the use of a terminal: a native lane has opened and takes precedence, or the time is over."""
        lane.awaits_native = False
        self._awaiting.pop(lane, None)

    def forget(self, lane: Lane) -> None:
        """Drop all deadlines of a lane."""
        for moments in (self._deferred, self._shut, self._stuck, self._awaiting):
            moments.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        kinds = (self._deferred, self._shut, self._stuck, self._awaiting)
        moments = [moment for kind in kinds for moment in kind.values()]
        return max(0.0, min(moments) - self._clock.monotonic_s()) if moments else None

    def take_deferred(self) -> list[Lane]:
        """Return, once, the lanes whose pause is over."""
        return self._take(self._deferred)

    def take_shut(self) -> list[Lane]:
        """Return, once, the lanes whose gate has been closed for `SHUT_S`."""
        return self._take(self._shut)

    def take_stuck(self) -> list[Lane]:
        """Return, once, the lanes on which an offer has been stuck at a dialog for `STUCK_S`."""
        return self._take(self._stuck)

    def take_awaiting(self) -> list[Lane]:
        """Return, once, the terminals that have waited long enough for a native lane."""
        return self._take(self._awaiting)

    def _take(self, moments: dict[Lane, float]) -> list[Lane]:
        now_s = self._clock.monotonic_s()
        over = [lane for lane, moment_s in moments.items() if moment_s <= now_s]
        for lane in over:
            del moments[lane]
        return over

    def _set(self, moments: dict[Lane, float], lane: Lane, wait_s: float) -> None:
        moments[lane] = self._clock.monotonic_s() + wait_s
        self._changed()


# --------------------
# Deadlines for lanes that report no outcome. This module only keeps deadlines; delivery acts on them.
#
# While its agent is idle, a lane has a limited time to report the outcome of an offer. A submitted message
# that no lane has claimed, because a connection was lost, has a limited time to be claimed by the next
# connection.

CLAIM_S: Final = IDLE_WAIT_S


class SilenceLimits:
    """The ends of all waits. `changed` is called when the next one may be earlier."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._offers: dict[Lane, dict[int, float]] = {}
        """For each open offer of an idle agent, the time at which the wait ends."""
        self._strays: dict[str, float] = {}
        """Agents with submitted messages that no lane has claimed, and the time at which the wait ends."""

    def watch(self, lanes: Sequence[Lane], *, is_idle: bool) -> None:
        """Start the wait for the open offers of an idle agent. Stop it if the agent is not idle."""
        now_s = self._clock.monotonic_s()
        for lane in lanes:
            known = self._offers.pop(lane, {})
            if is_idle and lane.offers:
                end_s = now_s + lane.ability.idle_wait_s
                self._offers[lane] = {number: known.get(number, end_s) for number in lane.offers}
                if not known.keys() >= lane.offers.keys():
                    self._changed()

    def stray(self, agent: str) -> None:
        """Start the wait for a lane that claims the submitted messages of an agent."""
        self._strays[agent] = self._clock.monotonic_s() + CLAIM_S
        self._changed()

    def forget(self, lane: Lane) -> None:
        """Drop the waits of a lane."""
        self._offers.pop(lane, None)

    def next_wait_s(self) -> float | None:
        """Return the time until the next deadline, or None if there is no deadline."""
        moments = [*self._strays.values()]
        for offers in self._offers.values():
            moments += offers.values()
        return max(0.0, min(moments) - self._clock.monotonic_s()) if moments else None

    def take_silent(self) -> list[tuple[Lane, int]]:
        """Return the offers whose wait is over. For an offer that stays open, the wait starts again."""
        now_s = self._clock.monotonic_s()
        over = [
            (lane, number)
            for lane, offers in self._offers.items()
            for number, end_s in offers.items()
            if end_s <= now_s
        ]
        for lane, number in over:
            self._offers[lane][number] = now_s + lane.ability.idle_wait_s
        return over

    def take_strays(self) -> list[str]:
        """Return, once, the agents whose messages were not claimed in time."""
        now_s = self._clock.monotonic_s()
        over = [agent for agent, end_s in self._strays.items() if end_s <= now_s]
        for agent in over:
            del self._strays[agent]
        return over
