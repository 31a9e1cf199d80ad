"""One connection to the daemon: lines out, lines in. It does not reconnect and sends nothing by itself."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.start import NoHope, Socket, StartError, reach, start
from palaver.errors import Disconnected, PalaverError, error_from_wire

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 2.0, 5.0)
"""Seconds before each further try to return to a daemon; after the last one the connection gives up."""
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
    snapshot: msgspec.Raw = _NOTHING
    """A new snapshot for a view, instead of the changes that it has not read."""
    changes: msgspec.Raw = _NOTHING
    """The changes since the last record of a view."""
    seq: int = 0
    """How far a question about the past has come."""

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
        # Written at the end of this round of the loop, so that many requests cost one system call.
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
        """Close the connection after the lines that were written out.

        Lines that wait because the daemon does not read are lost.
        """
        assert self._transport is not None
        # First: a transport that is being closed drops every further line.
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
        # A long line arrives in many pieces: copying the whole buffer for each of them would be quadratic.
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
        # `_give_up` has set the more precise reason.
        self.error = self.error or Disconnected("the connection to the daemon was lost")
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
            self._out.append(b"")  # for the line end of the last line
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
    # `start` imports only the C module of sockets, and asyncio needs an object of the module `socket`.
    plain = socket.socket(fileno=found.detach())
    plain.setblocking(False)
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(lambda: Wire(on_line, on_lost), sock=plain)
    return wire


async def _reach_aside(home: str, *, person: bool | None, can_start: bool) -> Socket:
    """Reach the daemon in a separate thread, without blocking the loop."""
    # A thread cannot be cancelled. Shielded, so that a socket that it still opens is closed and not lost.
    reaching = asyncio.get_running_loop().run_in_executor(None, _reach, home, person, can_start)
    try:
        return await asyncio.shield(reaching)
    except asyncio.CancelledError:
        reaching.add_done_callback(_close_found)
        raise


def _reach(home: str, person: bool | None, can_start: bool) -> Socket:
    found = reach(home)
    if found is None and not can_start:
        raise NoHope(f"no daemon listens on {home}/daemon.sock")
    found = found or start(home, person=person)
    if found is None:
        raise StartError(f"the daemon of {home} exited right after its start")
    return found


def _close_found(reached: "asyncio.Future[Socket]") -> None:
    with suppress(StartError):
        reached.result().close()
