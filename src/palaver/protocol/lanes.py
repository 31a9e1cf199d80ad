"""Delivery as doors see it: lanes with their offers, and the readers of mailboxes. Pure."""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.message import is_raw
from palaver.protocol.query import Passes
from palaver.protocol.requests import DIALOG
from palaver.protocol.text import LIMIT_INJECTION

# --------------------
# Lanes: their abilities, gate states, offers and outcomes.
#
# A lane that delivery must not use twice for one message (hook, native, terminal) reports the outcome of each
# offer. `submitted` is written before an offer is sent: after a crash, no message that may have arrived is
# queued and typed again. An offer ends by evidence, by a definite refusal, or with the lane; then it stays
# submitted and unconfirmed. A timeout never sends a message a second time.


# The ledger stores the names in lower case, so they cannot change.
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
WITHDRAWN: Final = "it was in no prompt, and was withdrawn"
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
    awaits: LaneKind | None = None
    """The agent also has a lane of this kind, which may not be open yet: wait some time for it."""
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


NOT_YET: Final = LaneLevel(is_open=False, reason="starting")
"""The first gate state of a terminal: nothing is typed until its holder reports that it is ready."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A batch of messages submitted on one lane."""

    number: int
    events: tuple[Event, ...]
    parts: Mapping[str, tuple[int, ...]]
    """The mailboxes that they come from, the agent's own or those of its sessions, and the seqs from each."""

    @property
    def seqs(self) -> tuple[int, ...]:
        return tuple(event.seq for event in self.events)


# Compared by identity: two lanes of one agent may have the same values and are still two connections.
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
    is_awaiting: bool = False
    """The lane that it awaits may still open; until then nothing is offered on this one."""
    is_spent: bool = False
    """It receives no more offers, and stays only until the outcomes of its open offers are known."""
    silence: Callable[[Offer], OfferOutcome] = lambda offer: OfferOutcome.UNCONFIRMED
    """Returns the outcome of an offer about which an idle agent's lane reported nothing: refused if the model
    certainly did not see it."""
    has_reported_all: bool = False
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
    def level_now(self) -> LaneLevel:
        """Its gate state; while it awaits a better lane, it is closed and the reason is that lane's kind."""
        awaited = self.ability.awaits if self.is_awaiting else None
        return self.level if awaited is None else LaneLevel(is_open=False, reason=awaited.name.lower())

    @property
    def is_shut(self) -> bool:
        """Whether nothing can be done with it now: neither make an offer, nor hold messages for a dialog."""
        is_closed = self.is_busy or self.is_awaiting or not self.level.is_open
        return not self.has_dialog and is_closed

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
    def has_dialog(self) -> bool:
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


# --------------------
# The parts of delivery that a door may use: mailbox readers and lanes. Delivery implements both protocols.
#
# A door must have checked the caller's right to an agent's messages before it opens a reader or a lane.


class MailboxReader(Protocol):
    """One reader of a mailbox. It claims messages until they are settled or the reader is closed."""

    @property
    def has_all(self) -> bool:
        """Whether the last `poll` or `wait` returned every open message of the mailbox."""
        ...

    def poll(self, limit: int) -> list[Event]:
        """Claim and return the messages available now, at most `limit`."""
        ...

    async def wait(self, limit: int) -> list[Event]:
        """Like `poll`, but wait for at least one message. Returns no message only if the reader is closed."""
        ...

    def settled(self, seqs: Collection[int]) -> None:
        """End the claims to acknowledged messages. Those not recorded as seen are open again."""
        ...

    def close(self) -> None:
        """Close, and release unacknowledged messages. A second call does nothing."""
        ...


class Delivering(Protocol):
    """Delivery as doors see it. Every outcome that a lane reports is written to the log."""

    level_changed: Callable[[str], None]
    """Called with an agent each time one of its lanes opens, closes, or has another gate state."""

    def take(
        self, agent: str, *, passes: Passes | None = None, window: int = 0, is_pushed: bool = False
    ) -> MailboxReader:
        """Open a reader of an agent's mailbox.

        At most `window` messages are handed out and not settled; 0 means no limit. A reader with `is_pushed`
        receives only the messages that the agent's state allows.
        """
        ...

    def open_lane(self, agent: str, ability: Ability, carry: Callable[[Offer], None]) -> Lane:
        """Add a lane to an agent. `carry` sends an offer without waiting."""
        ...

    async def close_lane(self, lane: Lane) -> None:
        """Remove a lane. Its open offers stay submitted until their outcome is known."""
        ...

    def set_level(self, lane: Lane, level: LaneLevel) -> None:
        """Set the gate state that a lane reports. Messages are offered at once if it opens."""
        ...

    def levels(self, agent: str) -> list[tuple[str, LaneLevel]]:
        """Return the kind and gate state of every lane of an agent."""
        ...

    def lanes(self, agent: str) -> list[tuple[Ability, LaneLevel]]:
        """Return the abilities and the gate state of every lane of an agent, the best one first."""
        ...

    def can_wake(self, agent: str) -> bool:
        """Return whether a lane can reach the agent while it is idle."""
        ...

    def typing(self, agent: str) -> frozenset[int]:
        """Return the seqs of the messages that are being typed into the agent's terminal now."""
        ...

    async def draw(
        self, lane: Lane, state: AgentState, *, limit_text: int = 0, request: str = ""
    ) -> Offer | None:
        """Offer waiting messages on a lane that requests them; None without messages."""
        ...

    def arrived(self, lane: Lane, number: int) -> None:
        """Record that an offer has arrived, although it may not have been seen."""
        ...

    async def answer(
        self,
        lane: Lane,
        number: int,
        answer: OfferOutcome,
        *,
        grade: str = "",
        reason: str = "",
        evidence: str = "",
    ) -> None:
        """Write the outcome of an offer."""
        ...

    async def end_silence(self, lane: Lane, number: int) -> None:
        """End the wait for the outcome of an offer: its messages are queued again, or become unconfirmed."""
        ...

    async def reclaim(self, lane: Lane, seqs: Sequence[int]) -> None:
        """Claim withdrawn messages again, because the model sees them after all."""
        ...

    def take_up(self, lane: Lane, seqs: Sequence[int]) -> Offer | None:
        """Return an offer for messages that the lane's holder still has from an earlier connection."""
        ...

    async def recover(
        self, lane: Lane, seqs: Sequence[int], answer: OfferOutcome, *, grade: str = ""
    ) -> None:
        """Write the outcome of messages of an earlier connection, as the lane's holder remembers it."""
        ...

    async def recovered(self, lane: Lane, *, knows_all: bool = True, since_ms: int = 0) -> None:
        """Conclude that a lane has reported all it remembers: other messages of its kind are unconfirmed."""
        ...
