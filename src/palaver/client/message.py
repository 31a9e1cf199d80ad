"""A received message as a value. It knows only its connection."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from palaver.client.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to you. It stays unread until `ack`; `fields` contains all of its data."""

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
        """Mark the message as seen. Durable on return; idempotent."""
        await self.acknowledge(self.seq)

    async def reply(self, text: str, *, intent: str = "", priority: str = "") -> Receipt:
        """Reply to the sender only, in the same thread."""
        return await self.answer((), text, reply_to=str(self.seq), intent=intent, priority=priority)
