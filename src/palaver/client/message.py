"""A message to you, as a value. It knows its connection, and nothing else."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from palaver.client.receipt import Receipt


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
        """Answer its sender, and nobody else, in the same thread."""
        return await self.answer((), text, reply_to=str(self.seq), intent=intent, priority=priority)
