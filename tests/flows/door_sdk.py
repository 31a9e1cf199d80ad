"""The SDK as a door, and with it the JSON lines of the Unix socket: every agent is a connection of this
process.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.flows.door import Letter, Refused, Sent, Step
from tests.limits import LIMIT_S

import palaver
from palaver.errors import PalaverError


class SdkSeat:
    """An agent on a connection. Received messages stay in `_unread` until they are taken."""

    def __init__(self, me: palaver.Connection) -> None:
        self._me = me
        self._unread: list[palaver.Message] = []
        self._news = asyncio.Condition()
        self.name = me.name

    async def collect(self) -> None:
        """Collect messages until the connection ends."""
        async for message in self._me.messages():
            async with self._news:
                self._unread.append(message)
                self._news.notify_all()

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
        try:
            receipt = await self._me.send(
                to,
                text,
                intent=intent,
                thread=thread,
                reply_to=reply_to,
                priority=priority,
                expires_ms=expires_ms,
                id=id,
                dry_run=dry_run,
            )
        except PalaverError as error:
            raise Refused(error.code, error.details) from error
        return _sent(receipt)

    async def take(self) -> list[Letter]:
        letters = await self.look()
        await self._ack()
        return letters

    async def wait(self) -> list[Letter]:
        await self._gathered(1)
        return await self.take()

    async def look(self) -> list[Letter]:
        (own,) = [agent for agent in await self._me.agents() if agent.name == self.name]
        await self._gathered(own.unread)
        return [Letter(fields=message.fields) for message in self._unread]

    async def _gathered(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S), self._news:
            await self._news.wait_for(lambda: len(self._unread) >= count)

    async def _ack(self) -> None:
        taken, self._unread = self._unread, []
        for message in taken:
            await message.ack()

    async def receipts(self, message: str) -> list[Step]:
        try:
            found = await self._me.receipts(message)
        except PalaverError as error:
            raise Refused(error.code, error.details) from error
        return [
            Step(
                name=one.name,
                state=one.state,
                lane=one.lane,
                grade=one.grade,
                answer=one.answer,
                wait=f"{one.wait.code}: {one.wait.text}; {one.wait.moves}" if one.wait else "",
            )
            for one in found
        ]

    async def leave(self) -> None:
        await self._me.__aexit__(None, None, None)

    async def put(self, envelope: palaver.Envelope) -> Sent:
        try:
            return _sent(await self._me.put(envelope))
        except PalaverError as error:
            raise Refused(error.code, error.details) from error

    async def take_fence(self) -> str:
        raise NotImplementedError


class SdkDoor:
    """Connections in this process."""

    offers = frozenset({"put"})

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ends = AsyncExitStack()
        self._tasks: asyncio.TaskGroup | None = None

    async def join(self, name: str, *, role: str = "worker") -> SdkSeat:
        if (
            self._tasks is None
        ):  # entered first, so that it exits last and waits for the tasks of the connections
            self._tasks = await self._ends.enter_async_context(asyncio.TaskGroup())
        try:
            me = await self._ends.enter_async_context(palaver.connect(name, role=role, home=self._home))
        except PalaverError as error:
            raise Refused(error.code, error.details) from error
        seat = SdkSeat(me)
        self._tasks.create_task(seat.collect())
        return seat

    async def come_back(self, name: str) -> SdkSeat:
        return await self.join(name)

    async def close(self) -> None:
        await self._ends.aclose()


def _sent(receipt: palaver.Receipt) -> Sent:
    return Sent(
        seq=receipt.seq,
        id=receipt.id,
        to=receipt.to,
        delivered_to=receipt.delivered_to,
        empty_groups=receipt.empty_groups,
        dead=receipt.dead,
        exited=tuple(one.agent for one in receipt.exited),
        is_repeat=receipt.is_repeat,
    )
