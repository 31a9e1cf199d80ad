"""The interface that a door must implement for the flows, and the values they use.

A new door joins the suite with a driver: one class for the door, one for an agent that uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palaver.protocol.envelope import Draft


class Refused(Exception):
    """The door refused a request: the code and details of its error, independent of its wire format."""

    def __init__(self, code: str, details: Mapping[str, Any]) -> None:
        super().__init__(code, details)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The immediate result for a sender."""

    seq: int
    id: str
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    exited: tuple[str, ...] = ()
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message as its recipient reads it; `fields` is the documented flat object."""

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
    """The delivery state of a message for one recipient."""

    name: str
    state: str
    lane: str = ""
    grade: str = ""
    answer: int = 0
    wait: str = ""
    """The code and the sentence why it waits; empty if it does not."""


class Seat(Protocol):
    """An agent that uses a door."""

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
        """Take all waiting messages."""
        ...

    async def wait(self) -> list[Letter]:
        """Take messages as soon as there are some, within the limit of a test."""
        ...

    async def look(self) -> list[Letter]:
        """Return the waiting messages and leave them unread."""
        ...

    async def receipts(self, message: str) -> list[Step]:
        """Return the receipts of a message, or raise Refused."""
        ...

    async def leave(self) -> None:
        """Give up the name."""
        ...

    async def put(self, envelope: Draft) -> Sent:
        """Store an envelope, or raise Refused; for doors that offer `put`."""
        ...

    async def take_fence(self) -> str:
        """Take messages as an agent under a harness reads them; for doors that offer `fence`."""
        ...


class Door(Protocol):
    """One door to the bus of one home."""

    offers: frozenset[str]

    async def join(self, name: str, *, role: str = "worker") -> Seat:
        """Join an agent under a full name, or raise Refused."""
        ...

    async def come_back(self, name: str) -> Seat:
        """Join an agent again that has left."""
        ...

    async def close(self) -> None:
        """Disconnect all agents of this door."""
        ...
