"""A connection without a name: requests are made as the calling process, and repeated after a loss."""

import asyncio
from itertools import count
from types import TracebackType
from typing import Final, Self

import msgspec

from palaver.client.wire import Line, Wire, open_wire
from palaver.errors import Disconnected, ShuttingDown
from palaver.model.lines.wire import Op, op_to_json

_TRIES: Final = 20
"""Consecutive connections that may be lost without a reply before it gives up."""


class Plain:
    """Send requests and wait for their results. Requests unanswered by a lost daemon are sent to the next
    one.

    So each request must be safe to repeat: it changes nothing, or carries a key. Calls may run concurrently.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._wire: Wire | None = None
        self._connecting = asyncio.Lock()
        self._was_connected = False
        self._losses = 0
        self._is_over = False

    async def __aenter__(self) -> Self:
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if (wire := self._wire) is not None:
            wire.close()
            await wire.wait_closed()

    async def ask(self, request: Op) -> msgspec.Raw:
        """Send a request and return its result. Raises its refusal, or Disconnected without a bus."""
        while True:
            wire = await self._connected()
            try:
                return await self._ask(wire, request)
            except ShuttingDown:
                await wire.wait_closed()
            except Disconnected:
                if self._losses >= _TRIES:
                    raise

    async def _ask(self, wire: Wire, request: Op) -> msgspec.Raw:
        number = next(self._numbers)
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        wire.write(op_to_json(number, request))
        try:
            return await answer
        finally:
            del self._calls[number]

    async def _connected(self) -> Wire:
        async with self._connecting:
            if self._is_over:
                raise Disconnected("the connection was closed")
            if self._wire is None:
                self._wire = await open_wire(
                    self._home, self._hear, self._lose, is_returning=self._was_connected
                )
                self._was_connected = True
            return self._wire

    def _hear(self, line: Line) -> None:
        self._losses = 0
        answer = self._calls.get(line.req)
        if answer is None or answer.done():
            return
        if line.error:
            answer.set_exception(line.refusal)
        else:
            answer.set_result(line.ok)

    def _lose(self, wire: Wire) -> None:
        self._wire = None
        self._losses += 1
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(wire.error or Disconnected("the daemon has gone"))
