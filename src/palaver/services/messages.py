"""The parts of delivery that a door may use: mailbox readers and lanes. Delivery implements both protocols.

A door must have checked the caller's right to an agent's messages before it opens a reader or a lane.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from palaver.protocol.envelope import Event
from palaver.protocol.events import AgentState
from palaver.protocol.lanes import Ability, Lane, LaneLevel, Offer, OfferOutcome
from palaver.protocol.query import Passes


class MailboxReader(Protocol):
    """One reader of a mailbox. It claims messages until they are settled or the reader is closed."""

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
