"""What a request comes to when it is not refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from palaver.log.api import Archived
from palaver.model.agent import Agent
from palaver.model.envelope import Event
from palaver.rooms.room import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message, its place, and whom it was meant for. `event` is None for a dry run."""

    event: Event | None
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """An agent that has its name. `is_new` is false when it had it before."""

    agent: Agent
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An event, or None when there was nothing left to write."""

    event: Event | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A room with the caller in it. `event` is None when it was in it before, or only looks on."""

    room: Room
    event: Event | None
    is_new: bool
    """The room was made by this."""
    ancestor_of: str = ""
    """The place that was asked for, when the room is one above it."""
    nested_in: str = ""
    """The id of the room above the one that was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What asking for the stick came to."""

    status: str
    """`your_turn`, `not_yet`, `takeover_available` or `closed`."""
    room: Room
    reason: str = ""
    """Why it is the caller's turn, or not yet, or why the stick may be taken over; one word."""
    turn: int = 0
    lease: str = ""
    handoff: dict[str, object] | None = None
    sender: str = ""
    """Who left the hand-over, or gave the stick up."""
    look_again_ms: int | None = None
    """In how many milliseconds the answer can change although nothing happens; None when only events can."""
    hint: str = ""
    """A sentence about the reason. For `auto_claim_disabled` it is news only once for each hand-over."""
    revoked: str = ""
    """From whom a takeover took it."""
    event: Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """The record of a removed text, the event that had it, and where else it was found."""

    event: Event | None
    """None when its removal was ordered before; then nothing was written."""
    of: Event
    copies: tuple[Event, ...] = ()
    """Events in which Palaver had copied it; their text is removed too."""
    quotes: tuple[Event, ...] = ()
    """Other events with the same text; they are as they were."""
    unsearched: tuple[str, ...] = ()
    """Archive files in which other events with the same text could not be looked for."""
    unredacted: Mapping[int, str] = field(default_factory=dict)
    """Events whose text could not be removed as ordered, now or before, with the reason."""


Outcome = Sent | Joined | Written | Seated | Turn | Archived | Redacted
