"""What a program gets and gives: messages and receipts as values. They know their connection, and nothing else."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a sender is told at once: the message is stored, in this place, for these recipients."""

    seq: int
    id: str
    to: tuple[str, ...]
    delivered_to: tuple[str, ...]
    empty_groups: tuple[str, ...] = ()
    """Groups with nobody in them now."""
    dead: tuple[str, ...] = ()
    """Paths that nobody is subscribed to."""
    is_repeat: bool = False
    """The same id was sent before; this is what became of it then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to you. It stays unread until `ack`; `fields` has everything there is to know of it."""

    seq: int
    id: str
    ts: int
    sender: str
    text: str
    intent: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    fields: Mapping[str, object] = field(repr=False)
    acknowledge: Callable[[int], Awaitable[None]] = field(repr=False, compare=False)
    answer: Callable[..., Awaitable[Receipt]] = field(repr=False, compare=False)

    async def ack(self) -> None:
        """Say that it was seen. Durable on return; twice is once."""
        await self.acknowledge(self.seq)

    async def reply(self, text: str, *, intent: str = "", priority: str = "") -> Receipt:
        """Answer its sender, in the same thread."""
        return await self.answer(self.sender, text, reply_to=str(self.seq), intent=intent, priority=priority)
