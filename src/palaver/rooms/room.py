"""A room as stored: its workspace, its members and its stick. Values only.

Presence, waits and the remaining lease are not part of it: see `attendance` and `conditions`. Times are Unix
milliseconds, 0 for never.
"""

import enum
from collections.abc import Iterator

import msgspec


class StickState(enum.StrEnum):
    """The state of the stick."""

    IDLE = "idle"
    OWNED = "owned"
    RESERVED = "reserved"
    CLOSED = "closed"


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a room. A member that returns keeps its ordinal and its turns."""

    name: str
    ordinal: int
    """Its position in the circular order: the order of first joining."""
    harness: str = ""
    joined_ms: int = 0
    last_turn: int = 0
    """The number of its last turn; 0 if it never had one."""
    last_owned_ms: int = 0
    """When its last turn started."""


class Handover(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The notes from one owner to the next: the author, the event and the content."""

    by: str
    seq: int
    """The seq of the event that contains it."""
    fields: dict[str, object]


class Room(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One room. All text defaults are empty: a row must be read exactly as it was written."""

    id: str
    base: str
    """The id of the first room at this path: decisions are committed on `stick/<base>`."""
    path: str
    name: str
    """The folder name, as people see it."""
    made_ms: int
    seq: int
    """The seq of the event that created it."""
    state: str
    members: tuple[Member, ...] = ()
    """In circular order."""
    next_ordinal: int = 0
    turn: int = 0
    """The number of turns so far."""
    owner: str = ""
    lease: str = ""
    lease_until_ms: int = 0
    """When the lease ends if it is not renewed."""
    claimed_ms: int = 0
    brought: Handover | None = None
    """The handoff that the current owner received."""
    reserved_for: str = ""
    is_direct: bool = False
    """The stick was passed to `reserved_for` by name."""
    claim_until_ms: int = 0
    pending: Handover | None = None
    """The handoff for the next owner, also before the next owner is known."""
    prior_owner: str = ""
    """The member that last released, passed or lost the stick."""
    idle_since_ms: int = 0
    """When the stick became free or reserved; 0 while it is owned, and before its first turn."""
    lapsed: str = ""
    """The recipient of the last expired reservation."""
    closed_ms: int = 0

    @property
    def is_open(self) -> bool:
        return self.state != StickState.CLOSED

    @property
    def slug(self) -> str:
        """The short name: the base without its hash."""
        return self.base.rpartition("-")[0]

    @property
    def names(self) -> Iterator[str]:
        """The names of the members, in circular order."""
        return (member.name for member in self.members)

    def member(self, name: str) -> Member | None:
        """Return a member by its full name."""
        return next((member for member in self.members if member.name == name), None)
