"""A lane that cannot be asked twice: hook, native, terminal. What it can do, and the offers open on it.

`submitted` is written before an offer leaves. It ends by evidence, by a definite refusal, or with the lane:
then it stays submitted, unconfirmed. No clock sends anything twice.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from palaver.model.envelope import Event
from palaver.model.message import is_raw
from palaver.model.terminal import DIALOG
from palaver.model.text import LIMIT_INJECTION


class LaneKind(enum.IntEnum):
    """Smaller is better: delivery offers on the best live lane."""

    NATIVE = 1
    HOOK = 2
    TERMINAL = 3


class Answer(enum.StrEnum):
    """What a lane can say of an offer."""

    SEEN = "seen"
    REFUSED = "refused"
    DEFERRED = "deferred"
    UNCONFIRMED = "unconfirmed"
    """It left, and nobody can say whether it was read."""


IDLE_WAIT_S: Final = 60.0
"""So long a lane may say nothing of an offer while its agent is idle."""
PACED: Final = "paced"
"""Why a lane is closed that would pass the harness's own limit. Lanes that ask for messages need not wait."""
WITHDRAWN: Final = "it was in no prompt, and was taken back"
"""The reason for what is queued again because the harness never showed it to its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What a lane can do for its agent."""

    kind: LaneKind
    reaches_busy: bool
    wakes_idle: bool
    is_pulled: bool = False
    """It takes mail in moments of its own, with `Delivery.draw`, and is offered nothing in between."""
    limit: int = LIMIT_INJECTION
    """How many messages go at once."""
    awaits_native: bool = False
    """The harness has a native lane too, which connects by itself: it gets time to come first."""
    remembers: bool = False
    """Whoever holds it knows of every offer that ever reached it, and says so on its next connection."""
    idle_wait_s: float = IDLE_WAIT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Whether a lane lets mail through now, as whoever holds it last said.

    Paused it lets interrupts through, closed nothing; the reason says why, in a word.
    """

    is_open: bool = True
    is_paused: bool = False
    reason: str = ""


NATIVE_FIRST: Final = Level(is_open=False, reason="native")
"""The level of a terminal while a native lane is expected."""
NOT_YET: Final = Level(is_open=False, reason="starting")
"""How a terminal begins: nothing is typed until its holder has seen that it can be."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Messages on their way through one lane."""

    number: int
    events: tuple[Event, ...]

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(event.seq for event in self.events)


@dataclass(slots=True, eq=False)
class Lane:
    """One live lane of one agent. `carry` sends an offer off and does not wait."""

    agent: str
    ability: Ability
    carry: Callable[[Offer], None]
    offers: dict[int, Offer] = field(default_factory=dict)
    is_open: bool = True
    is_deferred: bool = False
    """It said 'not now': nothing is offered until something is different, or the pause is over."""
    are_keys_deferred: bool = False
    """The same of raw keys."""
    deferrals: int = 0
    """How often it has said 'not now' and nothing else."""
    refused: set[int] = field(default_factory=set)
    """What it definitely refused; another lane may take it."""
    level: Level = Level()
    arrived: set[int] = field(default_factory=set)
    """Open offers that are where they should be, though not proven to be seen: more can follow them."""
    awaits_native: bool = False
    """A native lane of the agent may still connect: until then nothing goes through this one."""
    is_spent: bool = False
    """It carries nothing more, and is there only until it is known what became of what it carried."""
    silence: Callable[[Offer], Answer] = lambda offer: Answer.UNCONFIRMED
    """Says what it means that nothing was heard of an offer although the agent is idle: refused where it is
    certain that the model was not shown it."""
    has_said_all: bool = False
    """Its holder knows every offer of an earlier connection, and has said what became of each."""
    late: dict[int, Offer] = field(default_factory=dict)
    """Offers whose wait is over. A late word on one of them still counts."""

    def __post_init__(self) -> None:
        if self.is_terminal:
            self.level = NOT_YET

    @property
    def is_terminal(self) -> bool:
        """What is offered on it is typed."""
        return self.ability.kind is LaneKind.TERMINAL

    @property
    def limit(self) -> int:
        """How many messages go at once: what is typed goes one by one, so that each has its own outcome."""
        return 1 if self.is_terminal else self.ability.limit

    @property
    def is_shut(self) -> bool:
        """Nothing can be done with it now: neither offer, nor hold back what a dialog stops."""
        is_closed = self.is_busy or self.awaits_native or not self.level.is_open
        return not self.is_behind_dialog and is_closed

    @property
    def is_paced(self) -> bool:
        """Nothing is on its way, and the next message waits for the harness's own limit."""
        return not self.level.is_open and self.level.reason == PACED and not self.is_busy

    @property
    def can_take_keys(self) -> bool:
        """Raw keys can go into it now: past its gate and beside what is typed, but one after the other."""
        is_free = not any(is_raw(event) for offer in self.offers.values() for event in offer.events)
        return self.is_terminal and is_free and not self.are_keys_deferred

    @property
    def is_behind_dialog(self) -> bool:
        """A dialog is open: not even an interrupt may be typed."""
        return not self.level.is_open and self.level.reason == DIALOG

    @property
    def word(self) -> str:
        """The kind of lane, as the ledger names it."""
        return self.ability.kind.name.lower()

    @property
    def is_busy(self) -> bool:
        """An offer is on its way, or it said 'not now': no failure, so no other lane goes first."""
        return self.is_deferred or self.is_under_way

    @property
    def is_under_way(self) -> bool:
        """Something on it has left and has not arrived."""
        return any(number not in self.arrived for number in self.offers)

    def is_overtaken_by(self, asking: "Lane") -> bool:
        """Whether what another lane takes now would come before what is on its way here, sent earlier.

        What can only wake an agent at rest goes first too, though the agent has gone to work meanwhile.
        """
        return self.ability.kind < asking.ability.kind and not self.is_spent and self.is_under_way

    def can_reach(self, *, idle: bool) -> bool:
        """Whether it can reach the agent as it is now."""
        return not self.is_spent and (self.ability.wakes_idle if idle else self.ability.reaches_busy)


def shut_lane(lanes: Sequence[Lane], *, idle: bool) -> Lane | None:
    """Give the lane behind which mail waits: a terminal whose gate is closed, with nothing better beside it.

    Where nothing can wake an agent that rests, it is the one that takes mail in moments of its own.
    """
    best = next(iter(lanes_in_order(lanes, idle=idle)), None)
    if best is None:
        pulled = (lane for lane in lanes if lane.ability.is_pulled and not lane.is_spent)
        return next(pulled, None) if idle else None
    return best if best.is_terminal and not best.level.is_open else None


def lanes_in_order(lanes: Iterable[Lane], *, idle: bool, asking: Lane | None = None) -> list[Lane]:
    """Give the lanes that can reach the agent, the best first, and the first opened first among equals.

    One that asks can, as it says itself.
    """
    able = [lane for lane in lanes if lane is asking or lane.can_reach(idle=idle)]
    return sorted(able, key=lambda lane: lane.ability.kind)
