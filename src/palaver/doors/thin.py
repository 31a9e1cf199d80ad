"""The connection of one thin client: its request, its frames, and its end. Knows no command."""

import asyncio
import os
import re
import signal
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from palaver.errors import BadRequest, MessageTooLarge, NotFound, RequestError
from palaver.identity.process import Peer
from palaver.protocol.thin import (
    WINDOW_BYTES,
    FrameReader,
    ThinRequest,
    asked_from_bytes,
    frame,
    output_frame,
    read_frame,
)

# --------------------
# Standard output of one thin client: frames within a window, each with a token to resume from.
#
# At most 64 KiB, or one larger frame, may be sent and not yet flushed, so a client that never reads delays
# only its own command. A client that lost the daemon brings the token of the last frame that it flushed. A
# command that streams makes its own tokens; for every other command the number of its writes is enough:
# flushed writes are not repeated.

_LIMIT_PIECE_BYTES: Final = 8 * 1024 * 1024
"""The limit of one frame. Longer data is sent in several frames, and the token with the last of them."""

_WRITES: Final = re.compile(rb"\+([0-9]{1,9})")


def _ignore_frame(data: bytes) -> None:
    """Drop a frame for a client that has disconnected."""


def _ignore() -> None:
    """Send nothing: the client has disconnected."""


class Output:
    """The output of a command, in order. For use in the event loop's thread only."""

    def __init__(self, send: Callable[[bytes], None], go: Callable[[], None] = lambda: None) -> None:
        """`send` queues a frame and does not wait; `go` sends the queued frames now."""
        self._send = send
        self._go = go
        self._in_flight: deque[tuple[int, int, Callable[[], None] | None]] = deque()
        self._bytes_in_flight = 0
        self._number = 0
        self._writes = 0
        self._writes_flushed_before = 0
        self._changed = asyncio.Event()

    def go_on_from(self, token: bytes | None) -> None:
        """Skip the writes that the client had flushed before. A command handles its own tokens itself."""
        if token is not None and (found := _WRITES.fullmatch(token)):
            self._writes_flushed_before = int(found[1])

    async def write(
        self, data: bytes, token: bytes = b"", *, flushed: Callable[[], None] | None = None
    ) -> None:
        """Send bytes, waiting while the window is full. Without bytes only the token is sent.

        `flushed` is called once, after the client has written out all bytes. It is not called if the client
        disconnects first.
        """
        self._writes += 1
        if self._writes <= self._writes_flushed_before:
            return
        token = token or b"+%d" % self._writes
        # Without data there is one empty frame, which carries the token.
        for start in range(0, len(data), _LIMIT_PIECE_BYTES) or (0,):
            end = start + _LIMIT_PIECE_BYTES
            is_last = end >= len(data)
            await self._put(data[start:end], token if is_last else b"", flushed if is_last else None)

    async def flushed(self) -> None:
        """Wait until the client has written out everything it was sent."""
        while self._in_flight:
            await self._change()

    def on_flushed(self, number: int) -> None:
        """Record that the client has written out the frame with this number, and all frames before it."""
        while self._in_flight and self._in_flight[0][0] <= number:
            _, length, flushed = self._in_flight.popleft()
            self._bytes_in_flight -= length
            if flushed is not None:
                flushed()
        self._changed.set()

    def end(self) -> None:
        """Send nothing more, because the client has disconnected. Safe to call twice."""
        # Otherwise the output and its connection keep each other until garbage in cycles is collected.
        self._send = _ignore_frame
        self._go = _ignore

    async def _put(self, data: bytes, token: bytes, flushed: Callable[[], None] | None) -> None:
        # A frame over the window goes out alone; otherwise it could never be sent.
        while self._bytes_in_flight and self._bytes_in_flight + len(data) > WINDOW_BYTES:
            await self._change()
        self._number += 1
        self._in_flight.append((self._number, len(data), flushed))
        self._bytes_in_flight += len(data)
        self._send(output_frame(self._number, token, data))

    async def _change(self) -> None:
        self._changed.clear()
        self._go()  # the client acknowledges only frames that have left
        await self._changed.wait()


# --------------------
# The connection: one request in, the frames of its command out, and the end.

Run = Callable[["ArgvConnection", ThinRequest], Awaitable[int]]

_END_SIGNALS: Final = frozenset({bytes([signal.SIGTERM]), bytes([signal.SIGHUP])})

_SIGN_S: Final = 1.0
"""Seconds after which a client that still waits for its first frame receives an empty one."""


_STDIN: Final = "standard input"


@dataclass(slots=True)
class _Incoming:
    """Content that the client was asked to read. It sends at most one piece more than the limit."""

    what: str
    limit_bytes: int
    is_line: bool = False
    """Only the first line is wanted. The client does not know that, and may send more."""
    content: bytearray = field(default_factory=bytearray)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: RequestError | None = None

    @property
    def label(self) -> str:
        """The name of the content, for an error."""
        return self.what if self.what == _STDIN else f"file {self.what}"

    def end(self, refusal: RequestError | None = None) -> None:
        self.refusal = refusal
        self.done.set()


class ArgvConnection(asyncio.Protocol):
    """A connection that carries one command."""

    def __init__(
        self, peer: Peer, run: Run, tasks: asyncio.TaskGroup, ended: Callable[["ArgvConnection"], None]
    ) -> None:
        """`run` runs the command and returns its exit status; `ended` is called when the connection ends."""
        self.peer = peer
        self.output = Output(self._send, self._go)
        self._run = run
        self._tasks = tasks
        self._ended = ended
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._incoming: _Incoming | None = None
        self._has_line = False
        self.is_lost = False
        self._is_let_go = False
        self._waits = 0
        self._can_end_gently = False
        self._can_be_patient = False
        self._ends_gently = False
        self.is_asked_to_end = False
        self._part: Callable[[], None] | None = None
        self._has_sent = False
        self.comes_back = False
        """The client waits for the next daemon, even if this one was stopped with `pal down`."""

    @property
    def has_gone(self) -> bool:
        """Whether the client has closed the connection itself, and will ask no other daemon."""
        return self.is_lost and not self._is_let_go

    def attach(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Take over a transport, and the bytes that were already read after the magic number."""
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
        self.is_lost = True  # before the task is cancelled: `_serve` looks at it
        self.output.end()
        self.peer.close()
        self._ended(self)
        if self._task is not None:
            self._task.cancel()

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R" and self._task is None:
            asked = asked_from_bytes(payload)
            self.output.go_on_from(asked.resume)
            self._can_end_gently = b"G" in asked.can
            self._can_be_patient = b"W" in asked.can
            self._task = self._tasks.create_task(self._serve(asked))
        elif kind == b"A" and len(payload) == 4:
            self.output.on_flushed(struct.unpack(">I", payload)[0])
        elif kind in (b"D", b"Z", b"X") and self._incoming is not None:
            self._on_content(self._incoming, kind, payload)
        elif kind in (b"D", b"Z", b"X") and self._has_line:
            pass  # typed after the line that was asked for
        elif kind == b"S":
            self._on_signal(payload)
        else:
            raise BadRequest(f"unexpected frame {kind!r}")

    async def _serve(self, asked: ThinRequest) -> None:
        status = None
        sign = asyncio.get_running_loop().call_later(_SIGN_S, self._give_sign)
        try:
            status = await self._run(self, asked)
        except asyncio.CancelledError:
            if not self.is_lost:
                raise  # The daemon stops. The end of one client must not stop other tasks.
        finally:
            sign.cancel()
            if status is not None:
                self.exit(status)
            elif not self.is_lost and not self._is_let_go:
                # Also after a bug: a client without an end would wait for more frames.
                self.write_error("pal: an internal error in the daemon; see daemon.log in its home\n")
                self.exit(1)

    def _give_sign(self) -> None:
        """Send an empty frame: a client without any frame tells its user that the daemon does not respond."""
        if not self._has_sent:
            self.write_error("")

    # Frames to the client

    def write_error(self, text: str) -> None:
        """Send text for standard error, outside the window: there is little of it, and no acknowledgement."""
        self._send(frame(b"E", text.encode("utf-8", "backslashreplace")))

    def exit(self, status: int) -> None:
        """Tell the client to exit with a status, after everything that was sent before."""
        self._send(frame(b"Q", bytes([status])))
        self._close()

    def hand_over(self) -> None:
        """Tell a newer client that this daemon stops, so that the client can start its own."""
        self._send(frame(b"N"))
        self._let_go()

    def come_again(self) -> None:
        """Let a client that waits for daemons repeat its request: its caller may be a new agent by now."""
        self._let_go()

    def run_here(self, *words: str) -> None:
        """Tell the client to run a command in its own process, with its own rights, and to exit with it."""
        self._send(frame(b"V", b"\0".join(word.encode("utf-8", "surrogateescape") for word in words)))
        self._let_go()

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a task that does not end with the client."""
        self._tasks.create_task(work)

    def _let_go(self) -> None:
        """Close without a result: the client will ask the next daemon."""
        self._is_let_go = True
        self._close()

    # Signals to the client

    @contextmanager
    def ending_gently(self, cursor: int | None = None) -> Iterator[None]:
        """Leave the block when the client receives SIGTERM or SIGHUP, instead of losing the client.

        Inside the block, the client survives these signals for a short time: it still writes out and
        acknowledges everything that it was sent, and the command then decides how it ends. The block may be
        left at any `await` in it. A client that does not support this ends on the signal, as everywhere else.
        `cursor` is the seq that the client prints if it ends before its first token and without a daemon.
        """
        if not self._can_end_gently:
            yield
            return
        self._ends_gently = True
        self._send(frame(b"G", b"" if cursor is None else str(cursor).encode()))
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            # The cancellation by the signal is taken back. One for another reason still counts.
            if not self.is_asked_to_end or task.uncancel() > 0:
                raise  # the client has disconnected, or the daemon stops
        finally:
            self._ends_gently = False

    def _on_signal(self, payload: bytes) -> None:
        if not self._ends_gently or payload not in _END_SIGNALS:
            self._close()
        elif not self.is_asked_to_end and self._task is not None:
            self.is_asked_to_end = True
            self._task.cancel()

    # When the daemon stops

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark a block in which the command only waits: if the daemon stops, it may be ended there."""
        self._waits += 1
        if self._can_be_patient:
            self._can_be_patient = False  # The frame is sent once.
            self._send(frame(b"W"))
        if self._part is not None:  # the daemon stops already, and has waited for this
            self._part()
        try:
            yield
        finally:
            self._waits -= 1

    def part(self, closing_text: str | None) -> None:
        """End the command because the daemon stops: a waiting one now, any other when it is done or waits.

        With a closing text, the command ends with that sentence and status 1. Without one, or if the client
        comes back, the client asks the next daemon.
        """
        is_let_go = closing_text is None or self.comes_back
        self._part = self._let_go if is_let_go else lambda: self._bid(closing_text or "")
        if self._waits or self._task is None:
            self._part()

    def _bid(self, closing_text: str) -> None:
        self.write_error(f"pal: {closing_text}\n")
        self.exit(1)

    def abort(self) -> None:
        """Cut the connection at once. Unsent data is lost."""
        if self._transport is not None:
            self._transport.abort()

    # Files that the client reads

    async def read_stdin(self, limit_bytes: int) -> bytes:
        """Let the client read its standard input; raise MessageTooLarge above the limit."""
        return await self._read(read_frame(limit_bytes), _Incoming(_STDIN, limit_bytes))

    async def read_line(self, limit_bytes: int) -> bytes:
        """Let the client read one line of its standard input, such as a person's reply to a question.

        Returns what was read if the input ends before the end of a line. Nothing else can be read afterwards.
        """
        incoming = _Incoming(_STDIN, limit_bytes, is_line=True)
        content = await self._read(read_frame(limit_bytes), incoming)
        return content.partition(b"\n")[0]

    async def read_file(self, path: str, limit_bytes: int) -> bytes:
        """Let the client read a file with its own rights. Raises NotFound, or MessageTooLarge."""
        raw = path.encode("utf-8", "surrogateescape")
        return await self._read(read_frame(limit_bytes, raw), _Incoming(path, limit_bytes))

    async def _read(self, asking: bytes, incoming: _Incoming) -> bytes:
        self._incoming = incoming
        self._send(asking)
        with self.waiting():
            await incoming.done.wait()
        if incoming.refusal is not None:
            raise incoming.refusal
        return bytes(incoming.content)

    def _on_content(self, incoming: _Incoming, kind: bytes, data: bytes) -> None:
        if kind == b"D":
            # Checked before the piece is added: the last piece may exceed the limit, so that this is known.
            if len(incoming.content) > incoming.limit_bytes:
                raise BadRequest("the client sent more than was requested")
            incoming.content += data
            if incoming.is_line and b"\n" in data:
                self._incoming, self._has_line = None, True
                incoming.end()
            return
        self._incoming = None
        if kind == b"X":
            reason = data.partition(b" ")[2].decode("utf-8", "replace")
            incoming.end(NotFound(f"readable {incoming.label}", reason))
        elif len(incoming.content) > incoming.limit_bytes:
            # The size is unknown: the client stops reading above the limit.
            incoming.end(MessageTooLarge(incoming.what, None, incoming.limit_bytes))
        else:
            incoming.end()

    # The wire

    def _send(self, data: bytes) -> None:
        """Queue a frame. All frames of one step of the event loop are sent in one write."""
        self._has_sent = True
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._go)
        self._unsent.append(data)

    def _go(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            # The client may have been woken on this processor: let it run before the work for other clients.
            os.sched_yield()

    def _close(self) -> None:
        self._go()  # a closing transport accepts nothing more
        if self._transport is not None:
            self._transport.close()
