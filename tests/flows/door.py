"""What a door must be able to do for the flows to run through it, and the values they speak of.

A new door joins the suite by a driver: one class for the door, one for an agent that sits at it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palaver import Envelope


class Refused(Exception):
    """The door said no: the code and details of its error, whatever its wire looks like."""

    def __init__(self, code: str, details: Mapping[str, Any]) -> None:
        super().__init__(code, details)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a sender is told at once."""

    seq: int
    id: str
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as its recipient reads it; `fields` is the flat object of the design."""

    fields: Mapping[str, Any]

    @property
    def seq(self) -> int:
        found: int = self.fields["seq"]
        return found

    @property
    def text(self) -> str:
        return str(self.fields["text"])

    @property
    def sender(self) -> str:
        return str(self.fields["from"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far a message got with one recipient."""

    name: str
    state: str
    lane: str = ""
    grade: str = ""
    answer: int = 0


class Seat(Protocol):
    """An agent at a door."""

    @property
    def name(self) -> str: ...

    async def send(
        self,
        to: Sequence[str],
        text: str,
        *,
        intent: str = "",
        thread: str = "",
        reply_to: str = "",
        priority: str = "",
        expires_ms: int = 0,
        id: str = "",
        dry_run: bool = False,
    ) -> Sent:
        """Send a message, or raise Refused."""
        ...

    async def take(self) -> list[Letter]:
        """Take all mail that waits now."""
        ...

    async def wait(self) -> list[Letter]:
        """Take mail as soon as there is some, within the limit of a test."""
        ...

    async def look(self) -> list[Letter]:
        """Look at the mail that waits, and leave it unread."""
        ...

    async def receipts(self, message: str) -> list[Step]:
        """See what became of a message, or raise Refused."""
        ...

    async def leave(self) -> None:
        """Give the name up."""
        ...

    async def put(self, envelope: Envelope) -> Sent:
        """Store an envelope, or raise Refused; for doors that offer `put`."""
        ...

    async def take_fence(self) -> str:
        """Take mail as an agent under a harness reads it; for doors that offer `fence`."""
        ...


class Door(Protocol):
    """One way into the bus of one home."""

    offers: frozenset[str]

    async def join(self, name: str, *, role: str = "worker") -> Seat:
        """Sit an agent down under a full name, or raise Refused."""
        ...

    async def come_back(self, name: str) -> Seat:
        """Sit somebody down again who has left."""
        ...

    async def close(self) -> None:
        """Let everybody go who sits here."""
        ...
