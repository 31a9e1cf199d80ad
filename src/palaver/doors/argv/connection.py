"""One thin client: its request, what it is asked to do, and how its end is noticed.

Output goes out under a window: at most 64 KiB may be on their way and not flushed. A client that never reads holds up
only its own command. Nothing here knows any command.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable

from palaver.doors.argv.wire import (
    WINDOW_BYTES,
    Asked,
    FrameReader,
    asked_from_bytes,
    frame,
    output_frame,
    read_frame,
)
from palaver.errors import BadRequest, MessageTooLarge, NotFound, RequestError
from palaver.links.peer import Peer

Run = Callable[["ArgvConnection", Asked], Awaitable[int]]


class ArgvConnection(asyncio.Protocol):
    """A connection that carries one command."""

    def __init__(
        self, peer: Peer, run: Run, tasks: asyncio.TaskGroup, ended: Callable[["ArgvConnection"], None]
    ) -> None:
        self.peer = peer
        self._run = run
        self._tasks = tasks
        self._ended = ended
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._sizes: deque[tuple[int, int]] = deque()
        self._in_flight_bytes = 0
        self._number = 0
        self._changed = asyncio.Event()
        self._answers: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
        self.is_lost = False
        self._is_abandoned = False

    def attach(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Take a transport over, with what was read of it behind the magic word."""
        self._transport = transport
        if rest:
            self.data_received(rest)

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._reader.feed(data):
                self._on_frame(kind, payload)
        except RequestError as error:
            self.write_error(f"pal: {error}\n")
            self.exit(1)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.peer.close()
        self._ended(self)
        if self._task is not None:
            self._task.cancel()

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R" and self._task is None:
            self._task = self._tasks.create_task(self._serve(asked_from_bytes(payload)))
        elif kind == b"A" and len(payload) == 4:
            self._on_flushed(struct.unpack(">I", payload)[0])
        elif kind in (b"D", b"Z", b"X"):
            self._answers.put_nowait((kind, payload))
        elif kind == b"S":
            self._close()
        else:
            raise BadRequest(f"unexpected frame {kind!r}")

    async def _serve(self, asked: Asked) -> None:
        status = None
        try:
            status = await self._run(self, asked)
        except asyncio.CancelledError:
            if not self.is_lost:
                raise  # the daemon stops; a client that has gone is no reason to stop anything else
        finally:
            if status is not None:
                self.exit(status)
            elif not self.is_lost and not self._is_abandoned:
                self.write_error("pal: this went wrong inside the daemon; daemon.log in its home says how\n")
                self.exit(1)

    # Output

    async def write(self, data: bytes, token: bytes = b"") -> int:
        """Send standard output, waiting while the window is full; the number says what to wait for."""
        while self._in_flight_bytes and self._in_flight_bytes + len(data) > WINDOW_BYTES:
            await self._change()
        self._number += 1
        self._sizes.append((self._number, len(data)))
        self._in_flight_bytes += len(data)
        self._send(output_frame(self._number, token, data))
        return self._number

    async def flushed(self) -> None:
        """Wait until the client has written out everything it was sent."""
        while self._sizes:
            await self._change()

    def write_error(self, text: str) -> None:
        """Send standard error. There is little of it, and nobody waits for it."""
        self._send(frame(b"E", text.encode("utf-8", "backslashreplace")))

    def exit(self, status: int) -> None:
        """Tell the client to end, behind everything it was sent."""
        self._send(frame(b"Q", bytes([status])))
        self._close()

    def hand_over(self) -> None:
        """Tell a newer client that this daemon makes room for its own."""
        self._send(frame(b"N"))
        self.abandon()

    def abandon(self) -> None:
        """Let go of the client without an answer: it will ask the next daemon."""
        self._is_abandoned = True
        self._close()

    def run_in_client(self, argv: list[str]) -> None:
        """Let the client do this verb in its own process."""
        self._send(frame(b"V", b"\0".join(word.encode("utf-8", "surrogateescape") for word in argv)))
        self._close()

    # Input

    async def read_stdin(self, limit_bytes: int) -> bytes:
        """Ask for standard input; raises MessageTooLarge above the limit."""
        return await self._read(read_frame(limit_bytes), "standard input", limit_bytes)

    async def read_file(self, path: str, limit_bytes: int) -> bytes:
        """Ask the client for a file, which it opens with its own rights."""
        raw = path.encode("utf-8", "surrogateescape")
        return await self._read(read_frame(limit_bytes, raw), path, limit_bytes)

    async def _read(self, asking: bytes, what: str, limit_bytes: int) -> bytes:
        self._send(asking)
        content = bytearray()
        while True:
            kind, payload = await self._answers.get()
            if kind == b"X":
                reason = payload.partition(b" ")[2].decode("utf-8", "replace")
                raise NotFound(f"way to read {what}", reason)
            if kind == b"Z":
                break
            content += payload
        if limit_bytes and len(content) > limit_bytes:
            raise MessageTooLarge(what, len(content), limit_bytes)
        return bytes(content)

    # The wire

    def _on_flushed(self, number: int) -> None:
        while self._sizes and self._sizes[0][0] <= number:
            self._in_flight_bytes -= self._sizes.popleft()[1]
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
