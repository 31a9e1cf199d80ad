"""The context of every handler of the broker, the outcomes of requests, and the caller of the bus itself."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from palaver.clock import Clock
from palaver.domain.rights import Brakes
from palaver.domain.routing import Directory
from palaver.domain.stick import MemberPresence, Policy, Unattended
from palaver.ids import UlidSource
from palaver.log.api import Archived as Archived  # doors use it: they must not import the log
from palaver.log.api import Log
from palaver.protocol.agents import Agent, Caller, Seat, Standing
from palaver.protocol.envelope import Event
from palaver.protocol.message import SYSTEM
from palaver.protocol.paths import MigrationResult
from palaver.state.rooms import Room

# The name is the sender of stored events, so it cannot change. No agent can have a name with brackets.
SYSTEM_CALLER: Final = Caller(name="[pal-events]", standing=Standing.HUMAN, kind=SYSTEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The log to write to, and what a decision may read."""

    log: Log
    directory: Directory
    clock: Clock
    ids: UlidSource
    is_present: Callable[[str], bool]
    draw: Callable[[], int]
    brakes: Brakes = field(default_factory=lambda: Brakes(limit_hops=0, limit_a_minute=0))
    member_presence: MemberPresence = field(default_factory=lambda: Unattended(lambda name: False))
    """Which agents are present in rooms, and which wait."""
    policy: Policy = field(default_factory=Policy)
    """The limits of rooms."""
    joining: WeakValueDictionary[Seat, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """Held while an agent joins at a seat, so that a second join of that seat sees the first one.

    Weak, so that a lock disappears with its last holder, and the table does not grow.
    """
    redacting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while texts are removed or events archived.

    So a second order for the same text sees the first one, and no text is removed while its event moves.
    """


# --------------------
# The outcomes of requests that are not refused.


class ExitedRecipient(msgspec.Struct, frozen=True, kw_only=True):
    """A recipient that has left the bus: the message waits until it comes back."""

    agent: str
    state: str
    since: int
    """When it left, in Unix milliseconds."""
    resumable: bool
    """Whether the sender can start it again with `pal resume`."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its seq and its recipients. `event` is None for a dry run."""

    event: Event | None
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    exited: tuple[ExitedRecipient, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """An agent that has its name. `is_new` is false if it had the name before."""

    agent: Agent
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An event, or None if there was nothing left to write."""

    event: Event | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A room with the caller in it. `event` is None if it was a member before, or is only an observer."""

    room: Room
    event: Event | None
    is_new: bool
    """The room was created by this request."""
    ancestor_of: str = ""
    """The requested workspace, if the room is in one above it."""
    nested_in: str = ""
    """The id of the room above the one that was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The outcome of a request for the stick."""

    status: str
    """`your_turn`, `not_yet`, `takeover_available` or `closed`."""
    room: Room
    reason: str = ""
    """Why it is the caller's turn, or not yet, or why the stick may be taken over; one identifier."""
    turn: int = 0
    lease: str = ""
    handoff: dict[str, object] | None = None
    sender: str = ""
    """The member that wrote the handoff, or released the stick."""
    look_again_ms: int | None = None
    """In how many ms the result can change without an event; None if only events can change it."""
    hint: str = ""
    """A sentence about the reason. For `auto_claim_disabled` it is news only once per handoff."""
    revoked: str = ""
    """The owner that a takeover took the stick from."""
    event: Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """The record of a removed text, the event that had it, and where else it was found."""

    event: Event | None
    """None if its removal was ordered before; then nothing was written."""
    of: Event
    copies: tuple[Event, ...] = ()
    """Events to which Palaver had copied it; their text is removed too."""
    quotes: tuple[Event, ...] = ()
    """Other events with the same text; they are unchanged."""
    unsearched: tuple[str, ...] = ()
    """Archive files that could not be searched for other events with the same text."""
    unredacted: Mapping[int, str] = field(default_factory=dict)
    """Events whose text could not be removed as ordered, now or before, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import: how many events were stored, and which were not."""

    count: int
    known: int
    """Events that the log had already."""
    different: tuple[Event, ...] = ()
    """Events whose sender and id belong to another event here; they are not stored."""


Outcome = Sent | Joined | Written | Seated | Turn | Archived | Redacted | Imported | MigrationResult
