"""A room as the log knows it: its place, its members, and who has the stick. Values only.

Who is present, who waits and how long a lease still runs is not in it: see `attendance` and `conditions`.
Moments are Unix milliseconds, 0 for never.
"""

import enum
from collections.abc import Iterator

import msgspec


class StickState(enum.StrEnum):
    """Where the stick is."""

    IDLE = "idle"
    OWNED = "owned"
    RESERVED = "reserved"
    CLOSED = "closed"


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody in a room. Who comes back has the ordinal and the turns that it had."""

    name: str
    ordinal: int
    """Its place in the circle: the order of first joining."""
    harness: str = ""
    joined_ms: int = 0
    last_turn: int = 0
    """The last turn that it held; 0 when it never held one."""
    last_owned_ms: int = 0
    """When it was given that turn."""


class Handover(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one holder leaves for the next: by whom, in which event, and what it says."""

    by: str
    seq: int
    """The place of the event that left it."""
    fields: dict[str, object]


class Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One room. No default is a word: a row that was read must be the row that was written."""

    id: str
    base: str
    """The id of the first room at this path: decisions are committed on `stick/<base>`."""
    path: str
    name: str
    """The folder's name, as people see it."""
    made_ms: int
    seq: int
    """The place of the event that made it."""
    state: str
    members: tuple[Member, ...] = ()
    """In the order of the circle."""
    next_ordinal: int = 0
    turn: int = 0
    """How often the stick was given so far."""
    owner: str = ""
    lease: str = ""
    lease_until_ms: int = 0
    """Until when the lease runs if nothing renews it."""
    claimed_ms: int = 0
    brought: Handover | None = None
    """The hand-over with which the present turn began."""
    reserved_for: str = ""
    is_direct: bool = False
    """It was passed to `reserved_for` by name."""
    claim_until_ms: int = 0
    pending: Handover | None = None
    """The hand-over for whoever is next, also while nobody is."""
    prior_owner: str = ""
    """Who gave the stick up last."""
    idle_since_ms: int = 0
    """When the stick came to lie free, or was reserved; 0 while it is held, and before it ever was."""
    lapsed: str = ""
    """Who let the last reservation run out."""
    closed_ms: int = 0

    @property
    def is_open(self) -> bool:
        return self.state != StickState.CLOSED

    @property
    def slug(self) -> str:
        """The short name: the id without its hash."""
        return self.base.rpartition("-")[0]

    @property
    def names(self) -> Iterator[str]:
        """The members' names, in the order of the circle."""
        return (member.name for member in self.members)

    def member(self, name: str) -> Member | None:
        """Look a member up by its full name."""
        return next((member for member in self.members if member.name == name), None)
