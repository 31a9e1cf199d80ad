"""`pal hook` on the Unix socket: one request, one reply, and the client's confirmation.

    client  R request with the input of the hook   A it has the reply, and now writes it out
    daemon  H reply, may be empty                  W wait up to this many seconds for the next frame
            M reply with messages in it, for a client that then leaves a file with the outcome

While a person is asked for a decision, W is repeated, so that no hook waits for a daemon that hangs. After
any error the reply is empty: a hook must never block its harness. A client that disconnects without A has
written nothing. A client that loses the daemon first repeats its request, with `r`, to the next daemon.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Final

import msgspec

from palaver.doors.argv.wire import Asked, FrameReader, asked_from_bytes, frame
from palaver.doors.hooks.asking import HookAsking
from palaver.doors.hooks.desk import Answer
from palaver.doors.permissions import Pending
from palaver.errors import PalaverError
from palaver.links.peer import Peer

MAGIC: Final = b"PALH"
KEEP_S: Final = 5.0
"""Seconds between two W frames while a person is asked."""
_LIMIT_S: Final = 20
"""Seconds in a W frame: a client that receives nothing for this time ends."""
_encode: Final = msgspec.json.Encoder().encode

_logger: Final = logging.getLogger("palaver.doors")


class HookConnection(asyncio.Protocol):
    """A connection that carries one hook."""

    def __init__(
        self,
        peer: Peer,
        asking: HookAsking,
        tasks: asyncio.TaskGroup,
        ended: Callable[["HookConnection"], None],
        *,
        keep_s: float = KEEP_S,
    ) -> None:
        self._peer = peer
        self._asking = asking
        self._tasks = tasks
        self._ended = ended
        self._keep_s = keep_s
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._has_asked = False
        self._answer: Answer | None = None
        self._is_lost = False
        self._pending: Pending | None = None

    def attach(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Take over a transport, with the bytes that were read after the magic string."""
        self._transport = transport
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._reader.feed(data):
                self._on_frame(kind, payload)
        except PalaverError:
            self._say(b"")

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R" and not self._has_asked:
            self._has_asked = True
            self._tasks.create_task(self._serve(asked_from_bytes(payload)))
        elif kind == b"A":
            self._settle(has_left=True)
            if self._pending is not None:
                self._pending.arrive(has_it=True)

    async def _serve(self, asked: Asked) -> None:
        said, kind = b"", b"H"
        try:
            answer = await self._asking.answer(self._peer, asked)
            if answer is not None:
                said = _encode(answer.said) if answer.said else b""
                kind = b"M" if answer.offer is not None and b"M" in asked.can else kind
                self._answer = answer
                if not said:
                    said = await self._permission(answer)
        except PalaverError as error:
            _logger.info("no answer to a hook of process %d: %s: %s", self._peer.pid, error.code, error)
        finally:
            self._say(said, kind)
            if not said:
                self._settle(has_left=True)
            elif self._is_lost:
                self._settle(has_left=False)

    async def _permission(self, answer: Answer) -> bytes:
        """Let the hook wait for a person's decision on a permission request, if the setting is on."""
        pending = await self._asking.permissions.open(answer)
        if pending is None:
            return b""
        self._pending = pending
        if self._is_lost:
            pending.leave()
        blocked = self._settle(has_left=True)  # report at once that the agent is blocked
        keeping = self._tasks.create_task(self._keep_waiting())
        try:
            if blocked is not None:
                await asyncio.wait({blocked})  # store it before the state that follows the decision
            said = await self._asking.permissions.decision(answer, pending)
        finally:
            keeping.cancel()
        return _encode(said) if said else b""

    async def _keep_waiting(self) -> None:
        """Tell the client to keep waiting, until cancelled."""
        while True:
            self._send(frame(b"W", struct.pack(">I", _LIMIT_S)))
            await asyncio.sleep(self._keep_s)

    def _settle(self, *, has_left: bool) -> asyncio.Task[None] | None:
        answer, self._answer = self._answer, None
        return None if answer is None else self._asking.desk.settle(answer, has_left=has_left)

    def _say(self, said: bytes, kind: bytes = b"H") -> None:
        self._send(frame(kind, said))

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def part(self, farewell: str | None) -> None:
        """End a connection without a request or with an open permission request. Others are nearly done."""
        if not self._has_asked or self._pending is not None:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once and drop unsent output."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._peer.close()
        self._ended(self)
        self._settle(has_left=False)
        if self._pending is not None:
            self._pending.leave()
