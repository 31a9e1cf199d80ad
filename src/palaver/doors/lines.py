"""The Unix door for programs: lines of JSON, many requests on one connection.

Requests are started in the order in which they come and answered as they finish. Bad input is answered with an error
and the connection goes on. A peer that does not read its answers is not read from either, until it does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from palaver.doors.lines_ops import Session
from palaver.doors.lines_wire import error_line, op_from_json, req_of
from palaver.errors import BadRequest, PalaverError
from palaver.links.link import Link
from palaver.model.text import LIMIT_FRAME_BYTES

Spawn = Callable[[Awaitable[None]], object]


class LinesConnection(asyncio.Protocol):
    """One program at the door."""

    def __init__(self, link: Link, session: Session, tasks: asyncio.TaskGroup) -> None:
        self._link = link
        self._session = session
        self._tasks = tasks
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._overflow: list[bytes] = []
        self._is_lost = False

    def attach(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take a transport over, with what was already read of it."""
        self._transport = transport
        self._tasks.create_task(self._write_out())
        self.data_received(first)

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._buffer += data
            self._check_length()
            return
        *lines, rest = (bytes(self._buffer) + data).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            if line.strip():
                self._start(line)
        self._check_length()

    def _check_length(self) -> None:
        if len(self._buffer) > LIMIT_FRAME_BYTES:
            self._answer(
                error_line(0, BadRequest(f"a line is at most {LIMIT_FRAME_BYTES} bytes; it was dropped"))
            )
            self._buffer.clear()

    def _start(self, line: bytes) -> None:
        try:
            op = op_from_json(line)
        except PalaverError as error:
            self._answer(error_line(req_of(line), error))
            return
        self._tasks.create_task(self._session.serve(op, self._answer))

    def _answer(self, line: bytes) -> None:
        """Answers are never dropped: while there is no room for one, nothing more is read."""
        if self._overflow or not self._link.outbox.offer(line):
            self._overflow.append(line)
            if len(self._overflow) == 1 and self._transport is not None:
                self._transport.pause_reading()
                self._tasks.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        while self._overflow and await self._link.outbox.wait_for_room():
            while self._overflow and self._link.outbox.offer(self._overflow[0]):
                del self._overflow[0]
        self._overflow.clear()
        if self._transport is not None and not self._is_lost:
            self._transport.resume_reading()

    # Writing: the outbox's writer is this connection.

    async def _write_out(self) -> None:
        await self._link.outbox.drain(self)
        if self._transport is not None:
            self._transport.close()

    def write(self, data: bytes, /) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def drain(self) -> None:
        await self._can_write.wait()
        if self._is_lost:
            raise ConnectionError("the peer has gone")

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._can_write.set()
        self._link.close()


PUSH_BATCH: Final = 50
