"""One connection to the daemon: lines out, lines in. It does not reconnect and sends nothing by itself."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from palaver.client.start import NoHope, Socket, StartError, reach, start
from palaver.client.values import JoinReply, joined_from_json
from palaver.errors import Disconnected, PalaverError, ShuttingDown, error_from_wire
from palaver.protocol.lines import JoinOp, LeaveOp, ListenOp, Op, op_to_json

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 2.0, 5.0)
_NOTHING: Final = msgspec.Raw(b"null")


class ReplyLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line from the daemon: the result of `req`, its refusal, or a push."""

    req: int = 0
    ok: msgspec.Raw = _NOTHING
    error: str = ""
    message: msgspec.Raw = _NOTHING
    """The sentence of a refusal; the message of a push."""
    details: dict[str, object] = {}
    push: str = ""
    event: msgspec.Raw = _NOTHING
    lane: int = 0
    """With `offer` and `messages`: an offer on a lane."""
    offer: int = 0
    messages: msgspec.Raw = _NOTHING
    ask: int = 0
    """With `verb`, and `lines` where it applies: a request to a holder."""
    verb: str = ""
    lines: int = 0
    request: str = ""
    """With `allowed`: a person's decision on a permission request."""
    allowed: bool = False
    digest: str = ""
    """Digest of the request as the person saw it."""

    @property
    def refusal(self) -> PalaverError:
        """The daemon's refusal as its error class."""
        return error_from_wire(self.error, msgspec.json.decode(self.message, type=str), self.details)


_decode: Final = msgspec.json.Decoder(ReplyLine).decode


def default_home() -> str:
    """Return the home that `pal` would use."""
    return str(Path(os.environ.get("PALAVER_HOME") or Path.home() / ".palaver").absolute())


class Wire(asyncio.Protocol):
    """Lines of one loop iteration leave in one write.

    Lines that the daemon does not read wait here, in order.
    """

    def __init__(self, on_line: Callable[[ReplyLine], None], on_lost: Callable[["Wire"], None]) -> None:
        """Create a connection. `on_lost` is called once, whichever side ends the connection."""
        self._on_line = on_line
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._is_blocked = False
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        self.error: Disconnected | None = None
        """The reason of the loss; set before `on_lost` is called."""

    def write(self, line: bytes) -> None:
        """Send a line, given without its line end, after all earlier ones. Lost with the connection."""
        if not self._out and not self._is_blocked:
            self._loop.call_soon(self._flush)
        self._out.append(line)

    def pause_reading(self) -> None:
        """Stop reading lines: the daemon waits when it has many."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again. Without a pause before, nothing happens."""
        assert self._transport is not None
        self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection after all sent lines."""
        assert self._transport is not None
        self._flush()
        self._transport.close()

    async def wait_closed(self) -> None:
        """Wait for the end of the connection, whichever side ends it."""
        await asyncio.shield(self._closed)

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if b"\n" not in data:
            self._buffer += data
            return
        *lines, rest = (bytes(self._buffer) + data if self._buffer else data).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            try:
                read = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._give_up("the program that listens there is not a Palaver daemon")
                return
            self._on_line(read)

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = self.error or Disconnected("the daemon has gone")
        self._out.clear()
        self._closed.set_result(None)
        self._on_lost(self)

    def _give_up(self, reason: str) -> None:
        assert self._transport is not None
        self.error = Disconnected(reason)
        self._transport.abort()

    def _flush(self) -> None:
        assert self._transport is not None
        if self._out and not self._is_blocked:
            self._out.append(b"")
            data = b"\n".join(self._out)
            self._out.clear()
            self._transport.write(data)


async def open_wire(
    home: str,
    on_line: Callable[[ReplyLine], None],
    on_lost: Callable[[Wire], None],
    *,
    is_returning: bool = False,
    can_start: bool = True,
) -> Wire:
    """Connect to the daemon of a home; start it if it does not listen. Raises Disconnected if that fails.

    With `is_returning`, retry for some seconds, unless a retry cannot help. After `pal down` such a
    connection starts nothing: a reconnect is never the wish of a person.
    """
    pauses_s = iter(_PAUSES_S if is_returning else ())
    while True:
        try:
            person = False if is_returning else None
            found = await _reach_aside(home, person=person, can_start=can_start)
            break
        except StartError as error:
            pause_s = None if isinstance(error, NoHope) else next(pauses_s, None)
            if pause_s is None:
                raise Disconnected(str(error)) from error
        await asyncio.sleep(pause_s)
    plain = socket.socket(fileno=found.detach())
    plain.setblocking(False)
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(lambda: Wire(on_line, on_lost), sock=plain)
    return wire


async def _reach_aside(home: str, *, person: bool | None, can_start: bool) -> Socket:
    """Reach the daemon in a separate thread, without blocking the loop."""
    reaching = asyncio.get_running_loop().run_in_executor(None, _reach, home, person, can_start)
    try:
        return await asyncio.shield(reaching)
    except asyncio.CancelledError:
        reaching.add_done_callback(_close_found)
        raise


def _reach(home: str, person: bool | None, can_start: bool) -> Socket:
    found = reach(home)
    if found is None and not can_start:
        raise NoHope(f"no daemon listens at {home}/daemon.sock")
    found = found or start(home, person=person)
    if found is None:
        raise StartError(f"the daemon of {home} exited right after its start")
    return found


def _close_found(reached: "asyncio.Future[Socket]") -> None:
    with suppress(StartError):
        reached.result().close()


# --------------------
# One name on the bus across restarts of the daemon. Knows requests and results, not their meaning.

_TRIES: Final = 5
_LEAVE_LIMIT_S: Final = 5.0

Answer = asyncio.Future[msgspec.Raw]


class Lifeline:
    """Requests are sent in the order of the calls; unanswered ones are sent again, in that order, after a
    loss.

    So each request must be safe to repeat: it carries an id, or is idempotent. While the daemon does not read
    or is being restarted, calls wait; nothing is dropped. If the reconnect fails, all waiting calls get the
    error, and the next call tries again.
    """

    def __init__(
        self,
        home: str,
        join: JoinOp,
        on_push: Callable[[ReplyLine], None],
        on_broken: Callable[[PalaverError], None],
    ) -> None:
        """Create a connection. `on_broken` is called when a reconnect has failed."""
        self._home = home
        self._join = join
        self._on_push = on_push
        self._on_broken = on_broken
        self._numbers = count(1)
        self._wire: Wire | None = None
        self._greeting: Answer | None = None
        self._greeting_number = 0
        self._calls: dict[int, tuple[bytes, Answer]] = {}
        self._returning: asyncio.Task[None] | None = None
        self._is_open = False
        self.is_listening = False
        """Whether every new connection starts with a listen request."""
        self.joined = JoinReply()

    # Connecting and leaving

    async def open(self) -> None:
        """Join; raises at once if the join is refused, and then leaves nothing open."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        try:
            await self._connect(is_returning=False)
        except BaseException:
            self._is_open = False
            raise

    async def close(self) -> None:
        """Leave the bus, if the daemon is connected, and close. Waiting calls fail."""
        wire = self._wire
        try:
            if self._returning is not None:
                self._returning.cancel()
                await asyncio.wait([self._returning])
            elif wire is not None:
                goodbye = self.ask(LeaveOp())
                self._is_open = False
                async with asyncio.timeout(_LEAVE_LIMIT_S):
                    await goodbye
        except (PalaverError, TimeoutError):
            pass  # the daemon itself writes the leave event if the client does not return
        finally:
            self._is_open = False
            self._wire = None
            self._fail(Disconnected("the connection was closed"))
            if wire is not None:
                wire.close()
                await wire.wait_closed()

    async def _connect(self, *, is_returning: bool) -> None:
        tries_left = _TRIES
        while True:
            tries_left -= 1
            wire = await open_wire(self._home, self._hear, self._lose, is_returning=is_returning)
            try:
                self.joined = await self._greet(wire)
                break
            except (Disconnected, ShuttingDown):
                wire.close()
                if not tries_left:
                    raise
            except BaseException:
                wire.close()
                raise
        # No await between the join and here: later requests are written after the waiting ones.
        self._wire = wire
        if self.is_listening:
            wire.write(op_to_json(next(self._numbers), ListenOp()))
        self._calls = {number: call for number, call in self._calls.items() if not call[1].done()}
        for line, _ in self._calls.values():
            wire.write(line)

    async def _greet(self, wire: Wire) -> JoinReply:
        self._greeting = self._loop.create_future()
        self._greeting_number = next(self._numbers)
        join = self._join
        if self.joined.name:
            join = msgspec.structs.replace(join, name=self.joined.name, tag="")
        wire.write(op_to_json(self._greeting_number, join))
        answer = await self._greeting
        if wire.error is not None:
            raise wire.error  # lost again after the reply
        return joined_from_json(answer)

    def _lose(self, wire: Wire) -> None:
        assert wire.error is not None
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(wire.error)
        if wire is self._wire:
            self._wire = None
            if self._is_open:
                self._come_back()
            else:
                self._fail(wire.error)

    def _come_back(self) -> None:
        if self._returning is None:
            self._returning = self._loop.create_task(self._return())

    async def _return(self) -> None:
        try:
            await self._connect(is_returning=True)
        except PalaverError as error:
            self._fail(error)
            self._on_broken(error)
        finally:
            self._returning = None

    def _fail(self, error: PalaverError) -> None:
        calls, self._calls = self._calls, {}
        for _, answer in calls.values():
            if not answer.done():
                answer.set_exception(error)

    # Requests

    def ask(self, request: Op) -> Answer:
        """Send a request; the future returns its result or raises its refusal.

        Raises at once if the request can never be sent. After cancelling the future it is unknown whether the
        request was executed.
        """
        if not self._is_open:
            raise Disconnected("the connection is not open: use it inside its `async with` block")
        number = next(self._numbers)
        line = op_to_json(number, request)
        answer: Answer = self._loop.create_future()
        self._calls[number] = line, answer
        if self._wire is not None:
            self._wire.write(line)
        else:
            self._come_back()
        return answer

    def _hear(self, line: ReplyLine) -> None:
        if line.push:
            self._on_push(line)
        elif line.req == self._greeting_number:
            assert self._greeting is not None
            _settle(self._greeting, line)
        elif line.error != ShuttingDown.code and (call := self._calls.pop(line.req, None)) is not None:
            # A request refused by a stopping daemon is sent to the next one.
            _settle(call[1], line)


def _settle(answer: Answer, line: ReplyLine) -> None:
    if answer.done():
        return
    if line.error:
        answer.set_exception(line.refusal)
    else:
        answer.set_result(line.ok)


# --------------------
# A connection without a name: requests are made as the calling process, and repeated after a loss.

_PLAIN_TRIES: Final = 20
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
                if self._losses >= _PLAIN_TRIES:
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

    def _hear(self, line: ReplyLine) -> None:
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
