"""The Unix door for programs: lines of JSON, many requests on one connection.

Requests start in the order of arrival; each reply is sent when its request finishes. Requests after one that
changes the names of the connection (`join`, `hold`, `leave` and others) wait until it is done, because it
decides their caller; those after a `permission` wait because the next one may withdraw it. Bad input gets an
error reply and the connection continues. A peer that does not read its replies, or sends requests faster than
they are served, is not read from in the meantime.

A separate module from `unix.py`, which only selects the protocol of a connection.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable
from typing import Final

from palaver.doors.connection import Link
from palaver.doors.lines_ops import LineSession
from palaver.errors import BadRequest, PalaverError
from palaver.protocol.lines import (
    AccompanyOp,
    HoldOp,
    JoinOp,
    LeaveOp,
    LineReader,
    Op,
    PermissionOp,
    RouteOp,
    SendOp,
    SubBeginOp,
    SubEndOp,
    error_line,
    op_from_json,
    req_of,
)
from palaver.protocol.text import LIMIT_FRAME_BYTES

_IN_ORDER: Final = (JoinOp, HoldOp, AccompanyOp, LeaveOp, SubBeginOp, SubEndOp, PermissionOp)
"""Requests that must be finished before the next one starts."""
_LIMIT_RUNNING: Final = 4096
"""Requests of one connection that run at once; further ones wait in order."""
_LIMIT_SENDS: Final = 64
"""Sends and routes that are served together.

They share a task and a commit, and take a few milliseconds of the loop.
"""


class LinesConnection(asyncio.Protocol):
    """The connection of one program."""

    def __init__(
        self,
        link: Link,
        session: LineSession,
        tasks: asyncio.TaskGroup,
        ended: Callable[["LinesConnection"], None],
    ) -> None:
        """`ended` is called when the connection is closed."""
        self._link = link
        self._session = session
        self._tasks = tasks
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._reader = LineReader()
        self._line: deque[Op] = deque()
        self._running = 0
        self._is_held_up = False
        self._is_last = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._overflow: deque[bytes] = deque()
        self._is_lost = False

    def attach(self, transport: asyncio.Transport, first: bytes) -> None:
        """Take over a transport, with the bytes that were already read from it."""
        self._transport = transport
        self._tasks.create_task(self._write_out())
        self.data_received(first)

    # Requests

    def data_received(self, data: bytes) -> None:
        for line in self._reader.feed(data):
            if line is None:
                refusal = BadRequest(f"a line is at most {LIMIT_FRAME_BYTES} bytes; it was dropped")
                self._answer(error_line(0, refusal))
            else:
                self._take(line)
        self._advance()

    def eof_received(self) -> bool:
        """Serve the requests that were read, then end the connection: the peer sends nothing more.

        If the peer has closed the connection completely, requests that only wait for a result are cancelled.
        """
        if self._reader.rest().strip():
            self._answer(error_line(0, BadRequest("the connection ended in the middle of a line")))
        self._is_last = True
        if self._has_hung_up():
            self._session.hang_up()
        self._advance()
        return True

    def _has_hung_up(self) -> bool:
        """Return whether the peer has closed both directions; the end of its input looks the same."""
        assert self._transport is not None
        looking = select.poll()
        looking.register(self._transport.get_extra_info("socket").fileno(), 0)
        return any(found & (select.POLLHUP | select.POLLERR) for _, found in looking.poll(0))

    def finish(self) -> None:
        """Accept no more requests, reply to the running ones, and end. Called when the daemon stops."""
        self._session.let_go()
        self._line.clear()
        self._is_last = True
        self._advance()

    def abort(self) -> None:
        """Close the connection at once and drop unsent output."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, line: bytes) -> None:
        try:
            self._line.append(op_from_json(line))
        except PalaverError as error:
            self._answer(error_line(req_of(line), error))

    def _advance(self) -> None:
        while self._line and not self._is_held_up and self._running < _LIMIT_RUNNING:
            ops = self._next_ops()
            self._running += len(ops)
            self._is_held_up = isinstance(ops[0], _IN_ORDER)
            self._tasks.create_task(self._run(ops))
        if self._is_last and not self._running and not self._line and not self._overflow:
            self._link.outbox.end()
        self._read_or_not()

    def _next_ops(self) -> list[Op]:
        """Remove the next request, and with a send or route all that follow it: they are served together."""
        ops = [self._line.popleft()]
        if _is_plain_send(ops[0]):
            while self._line and len(ops) < _LIMIT_SENDS and _is_plain_send(self._line[0]):
                ops.append(self._line.popleft())
        return ops

    async def _run(self, ops: list[Op]) -> None:
        try:
            await self._session.serve(ops, self._answer)
        finally:
            self._running -= len(ops)
            if isinstance(ops[0], _IN_ORDER):
                self._is_held_up = False
            if self._line or self._is_last:
                self._advance()

    def _read_or_not(self) -> None:
        if self._transport is None or self._is_lost:
            return
        if self._overflow or self._line or self._is_last:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Replies: the outbox writes to this connection.

    def _answer(self, line: bytes) -> None:
        """Queue a reply. Replies are never dropped: while the outbox is full, nothing more is read."""
        if self._overflow or not self._link.outbox.offer(line):
            self._overflow.append(line)
            if len(self._overflow) == 1:
                self._read_or_not()
                self._tasks.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        while self._overflow and await self._link.outbox.wait_for_room():
            while self._overflow and self._link.outbox.offer(self._overflow[0]):
                self._overflow.popleft()
        self._overflow.clear()
        self._advance()

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
            raise ConnectionError("the other side has closed the connection")

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._can_write.set()
        self._line.clear()
        self._link.close()
        self._ended(self)


def _is_plain_send(op: Op) -> bool:
    return isinstance(op, RouteOp) or (isinstance(op, SendOp) and not op.dry_run)
