"""The messages pushed to one connection: decoded, and acknowledged, again if the ack was lost."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from palaver.client.answer import fields_from_json, mail_from_json
from palaver.client.inbox import Inbox
from palaver.client.message import Message
from palaver.client.receipt import Receipt
from palaver.client.stream import Stream
from palaver.client.wire import Line
from palaver.errors import PalaverError
from palaver.model.lines.program_ops import AckOp
from palaver.model.lines.wire import Op

Ask = Callable[[Op], Awaitable[msgspec.Raw]]
"""Sends a request to the current daemon."""


class Mail:
    """Received messages, each once. A message stays unread on the bus until its `ack`."""

    def __init__(self, ask: Ask, answer: Callable[..., Awaitable[Receipt]]) -> None:
        """Create the messages of a connection. `answer` sends a reply."""
        self._ask = ask
        self._answer = answer
        self._inbox = Inbox()
        self._again: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> Stream[Message]:
        """Messages that have arrived and were not taken yet."""
        return self._inbox.waiting

    def hear(self, line: Line) -> None:
        """Process a push. A message whose ack was lost is acknowledged again."""
        mail = mail_from_json(line.message)
        message = Message(
            seq=mail.seq,
            id=mail.id,
            ts=mail.ts,
            sender=mail.sender,
            text=mail.text,
            intent=mail.intent,
            thread=mail.thread,
            reply_to=mail.reply_to,
            fields=fields_from_json(line.message),
            acknowledge=self._ack,
            answer=self._answer,
        )
        if not self._inbox.put(message):
            again = asyncio.get_running_loop().create_task(self._ack_again(mail.seq))
            self._again.add(again)
            again.add_done_callback(self._again.discard)

    async def _ack(self, seq: int) -> None:
        self._inbox.acked(seq)
        await self._ask(AckOp(messages=(seq,)))

    async def _ack_again(self, seq: int) -> None:
        with suppress(PalaverError):  # it stays unread then and is pushed again on the next connection
            await self._ack(seq)
