"""The Unix door, and the door for connections that holders forward to it."""

import array
import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePath
from typing import Final

import msgspec

from palaver.broker.context import Sent
from palaver.doors.cli.run import ArgvDoor
from palaver.doors.connection import IdentifyCaller, Link, Outbox
from palaver.doors.hooks import MAGIC as HOOK_MAGIC
from palaver.doors.hooks import HookAsking, HookConnection, HookHandler
from palaver.doors.lines_holders import AnchorOfSession
from palaver.doors.lines_ops import LinesConnection, LineSession
from palaver.doors.mcp.pump import Loader, PumpConnection, PumpDoor
from palaver.doors.thin import ArgvConnection
from palaver.errors import BadRequest, NotYou, PalaverError, Unavailable, WhoAreYou
from palaver.home import SHORT_PREFIX, at_short_path, file_id, first_reserved_file, is_address, is_at
from palaver.identity.caller import SCRIPT, CallerClaim, CallerIdentifier
from palaver.identity.process import Peer, peer_of
from palaver.protocol.agent_socket import (
    LIMIT_LINE_BYTES,
    ReadFor,
    RequestReader,
    SendRequest,
    forwarded_request_from_json,
    ok_line,
    read_for_from_json,
    refusal_line,
)
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import SEAT_TYPES
from palaver.protocol.lines import error_line
from palaver.protocol.requests import Send
from palaver.protocol.thin import MAGIC, PUMP_MAGIC, frame
from palaver.services.agents import hide_keys
from palaver.services.services import Services

# --------------------
# The sockets of the door. They do what `loop.create_unix_server` does, for less than half of the time between
# the connection of a client and its first request: a command lives for one request, so that time counts.

_READ_BYTES: Final = 256 * 1024
_HIGH_WATER_BYTES: Final = 64 * 1024
_TURNS_BEFORE_WATCH: Final = 1
"""Turns of the loop after the one that follows the first read, until the selector watches a connection."""
_MOST_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop. Other callers wait for about a millisecond then."""
_FLOOD_S: Final = 0.005
"""Two clients within this time may be the beginning of many."""
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of `accept` when the process or the system has no more descriptors or memory."""
_SHORT_PAUSE_S: Final = 1.0
_NO_DESCRIPTORS: Final = "socket.accept() out of system resource"
"""As asyncio reports it for other listeners, so that the daemon logs both in the same way."""

_NO_PROTOCOL: Final = asyncio.Protocol()
"""The protocol of every transport that has ended. Otherwise a protocol and its transport would keep each
other, with everything that the client has sent, until garbage in cycles is collected. The daemon seldom
does that."""


class SocketListener:
    """A listening socket. Calls back with each new connection, on the event loop."""

    def __init__(
        self, listener: socket.socket, backlog: int, accepted: Callable[[socket.socket], None]
    ) -> None:
        """Start to listen on a bound socket."""
        self._listener = listener
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._at_once = 1
        self._accepted_s = 0.0
        listener.listen(backlog)
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more connections. Closing twice is harmless."""
        if self._resuming is not None:
            self._resuming.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        # Mostly one client waits, and a second try would find nothing. But a turn of a busy loop takes long,
        # so while all tries find a client, each turn has twice as many.
        now_s = self._loop.time()
        if now_s - self._accepted_s > _FLOOD_S:
            self._at_once = 1
        self._accepted_s = now_s
        for number in range(self._at_once):
            connection = self._accept_one()
            if connection is None:
                self._at_once = 1
                return
            connection.setblocking(False)
            if number:
                # It may have come during this turn, after the end of a client that the next turn notices.
                self._loop.call_soon(self._accepted, connection)
            else:
                self._accepted(connection)
        self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)

    def _accept_one(self) -> socket.socket | None:
        try:
            return self._listener.accept()[0]
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno not in _SHORT:
                raise
            # The socket stays readable, so the loop would spin without a pause.
            self._loop.call_exception_handler({"message": _NO_DESCRIPTORS, "exception": error})
            self._loop.remove_reader(self._listener)
            self._resuming = self._loop.call_later(_SHORT_PAUSE_S, self._resume)
            return None


class SocketTransport(asyncio.Transport):
    """The transport of one accepted connection. Closing it closes the socket."""

    def __init__(self, connection: socket.socket, protocol: asyncio.Protocol) -> None:
        super().__init__({"socket": connection})
        self._socket = connection
        # For a socket object that it does not know yet, the selector would make the text of an error, twice.
        self._descriptor = connection.fileno()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._unwritten = bytearray()
        self._high_bytes = _HIGH_WATER_BYTES
        self._is_reading = False
        self._is_paused = False
        self._has_ended = False
        """The peer sends nothing more."""
        self._is_write_paused = False
        self._is_closing = False
        self._is_lost = False

    def begin(self) -> None:
        """Tell the protocol about the connection, and read from it soon.

        A client that has exited is noticed in this turn of the loop, and cleaned up in the next one. A
        request that was sent after its exit must find that done: messages that it had claimed are open again.
        So this request is read in the next turn, and its task begins in the turn after that.
        """
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._fail(error)
            return
        self._loop.call_soon(self._begin_reading)

    def _begin_reading(self) -> None:
        if not (self._is_paused or self._is_closing):
            self._read()  # Mostly the request is there already; then the selector need not report it.
            # After the first two steps of the task that serves the request: most commands end in them, and
            # then the selector never needs to know the connection.
            self._loop.call_soon(self._begin_watching, _TURNS_BEFORE_WATCH)

    def _begin_watching(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._begin_watching, turns - 1)
        else:
            self._read_or_not()
            # The selector reports only in the next turn that the client has exited meanwhile, and by then the
            # request of another client may be served: see `begin`.
            if self._is_reading:
                self._read()

    # Reading

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error, at_once=True)
            return
        try:
            if data:
                self._protocol.data_received(data)
            elif self._protocol.eof_received():
                # The protocol still writes. A socket at its end stays readable, so the loop would spin.
                self._has_ended = True
                self._read_or_not()
            elif self._unwritten:
                self.close()
            else:
                self._lose(None, at_once=True)
        except Exception as error:
            self._fail(error)

    def _read_or_not(self) -> None:
        is_wanted = not (self._is_paused or self._has_ended or self._is_closing)
        if is_wanted and not self._is_reading:
            self._loop.add_reader(self._descriptor, self._read)
        elif self._is_reading and not is_wanted:
            self._loop.remove_reader(self._descriptor)
        self._is_reading = is_wanted

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self._is_paused = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        self._read_or_not()

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write now what the socket takes, and the rest later; nothing after the connection was lost."""
        if self._is_lost or not data:
            return
        if not self._unwritten:  # otherwise these bytes would overtake those that wait
            try:
                data = data[self._socket.send(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._lose(error)
                return
            if not data:
                return
            self._loop.add_writer(self._descriptor, self._write_rest)
        self._unwritten += data
        if len(self._unwritten) > self._high_bytes and not self._is_write_paused:
            self._is_write_paused = True
            self._protocol.pause_writing()

    def _write_rest(self) -> None:
        try:
            del self._unwritten[: self._socket.send(self._unwritten)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        # Well below the limit, so that a protocol is not paused again by its next write.
        if self._is_write_paused and len(self._unwritten) <= self._high_bytes // 4:
            self._is_write_paused = False
            self._protocol.resume_writing()
        # Looked at again, because the protocol may have written more in this call.
        if not self._unwritten:
            self._loop.remove_writer(self._descriptor)
            if self._is_closing:
                self._lose(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many bytes may wait before the protocol is asked to pause."""
        self._high_bytes = _HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be written."""
        return len(self._unwritten)

    # The end

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass everything that comes to another protocol from now on."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be when everything is written."""
        return self._is_closing

    def close(self) -> None:
        """Read nothing more, write the waiting bytes, then close."""
        if not self._is_closing:
            self._is_closing = True
            self._read_or_not()
            if not self._unwritten:
                self._lose(None)

    def abort(self) -> None:
        """Close now, and drop the bytes that are not written yet."""
        self._lose(None)

    def _fail(self, error: Exception) -> None:
        """Report a bug of the protocol and close: a connection in an unknown state is of no use."""
        context = {"message": "a connection raised", "exception": error, "transport": self}
        self._loop.call_exception_handler(context)
        self._lose(error)

    def _lose(self, error: Exception | None, *, at_once: bool = False) -> None:
        """End the connection. `at_once` is for callers that the loop itself has called: see `begin`."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._read_or_not()
        if self._unwritten:
            self._loop.remove_writer(self._descriptor)
            self._unwritten.clear()
        if at_once:
            self._end(error)
        else:
            # Later, because the protocol may be in the middle of a call to this transport.
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._protocol = _NO_PROTOCOL
            self._socket.close()


# --------------------
# The Unix door: `daemon.sock`, mode 0600. Identifies each peer and selects one of four protocols.
#
# A connection that starts with a magic string comes from the thin client: a command, a hook or an MCP pump.
# Any other is lines of JSON. A process of another user is refused.

_BACKLOG: Final = 512
_FAMILY: Final = MAGIC[:3]
_MAGICS: Final = (MAGIC, PUMP_MAGIC, HOOK_MAGIC)
_SILENT_LIMIT_S: Final = 1.0
"""Seconds that a connection which will be refused may stay silent."""
_FULL: Final = (
    "the daemon has too many open files to serve another caller: end some programs that are connected to it, "
    "or raise the limit ('ulimit -n') and restart it"
)
_LONGEST_PAUSE_LOOKS: Final = 8
"""Longest pause between two tries to create a socket file again, in checks (one a second)."""
_STOP_GRACE_S: Final = 3.0
"""Seconds that running requests may take when the daemon stops."""


_logger: Final = logging.getLogger("palaver.doors")

_Connection = ArgvConnection | LinesConnection | PumpConnection | HookConnection


class UnixDoor:
    """The listener on one socket file. Hold the lock of the home before `open`, which replaces the file."""

    def __init__(
        self, services: Services, identifier: CallerIdentifier, hooks: HookHandler, tasks: asyncio.TaskGroup
    ) -> None:
        self._services = services
        self._identifier = identifier
        self._tasks = tasks
        self._argv = ArgvDoor(services, identifier)
        self._pumps = PumpDoor(services, identifier, tasks, Loader())
        self._hooks = HookAsking(services, identifier, hooks)
        self._path = services.daemon.home / "daemon.sock"
        self._file: tuple[int, int] | None = None
        self._again = SocketAgain(self._path)
        self._listener: SocketListener | None = None
        self._is_shut = False
        self.has_closed = False
        """Whether all connections are closed. The tasks that would serve another one end then."""
        self._ids = count(1)
        self._connections: set[_Connection] = set()
        self._nobody_left = asyncio.Event()
        self._seats_changed = 0
        self._unsubscribe = services.queries.subscribe(self._follow_seats, SEAT_TYPES)
        self.first_reserved_file: Final = first_reserved_file()

    def open(self) -> None:
        """Start to listen. Replace a socket file that a crashed daemon left."""
        self._listener = SocketListener(bind_socket(self._path), _BACKLOG, self._accepted)
        # Last, so that `look_after` tries again if this fails.
        self._file = file_id(self._path)

    def look_after(self) -> None:
        """Listen on a new socket file if ours was removed or replaced. Open connections stay."""
        if self._is_shut or is_at(self._path, self._file) or not self._again.is_due():
            return
        before = self._listener
        try:
            self.open()
        except OSError as error:
            self._again.fail(error)
            return
        self._again.succeed()
        # After the new socket listens: there is no time without one.
        if before is not None:
            before.close()

    def shut(self) -> None:
        """Accept no more connections. Open ones stay."""
        self._is_shut = True
        if self._listener is not None:
            self._listener.close()
        remove_socket(self._path, self._file)

    def _accepted(self, connection: socket.socket) -> None:
        SocketTransport(connection, _Doorway(self)).begin()

    async def close(self, closing_text: str | None) -> None:
        """Let running requests finish for a few seconds, then close all connections.

        Waiting commands end with `closing_text`. If it is None, they reconnect to the next daemon, as
        programs do.
        """
        self._nobody_left.clear()
        # First a request to all of them, then one wait: the grace is not spent on each.
        for connection in list(self._connections):
            if isinstance(connection, LinesConnection):
                connection.finish()
            else:
                connection.part(closing_text)
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_GRACE_S):
                    await self._nobody_left.wait()
        for connection in list(self._connections):
            connection.abort()
        self.has_closed = True
        self._unsubscribe()

    def welcome(self, peer: Peer, transport: asyncio.Transport, first: bytes) -> asyncio.Protocol:
        """Select the protocol by the first bytes, and return the connection object."""
        if first[: len(MAGIC)] == MAGIC:
            command = ArgvConnection(peer, self._argv.run, self._tasks, self._ended)
            self._connections.add(command)
            command.attach(transport, first[len(MAGIC) :])
            return command
        if first[: len(PUMP_MAGIC)] == PUMP_MAGIC:
            pump = PumpConnection(peer, self._pumps, self._ended)
            self._connections.add(pump)
            pump.attach(transport, first[len(PUMP_MAGIC) :])
            return pump
        if first[: len(HOOK_MAGIC)] == HOOK_MAGIC:
            hook = HookConnection(peer, self._hooks, self._tasks, self._ended)
            self._connections.add(hook)
            hook.attach(transport, first[len(HOOK_MAGIC) :])
            return hook
        look = self._look_at(peer)
        link = Link(id=str(next(self._ids)), caller=self._first_look(look), outbox=Outbox())
        link.on_close(peer.close)
        session = LineSession(self._services, link, look, peer.chain, self._tasks, self._anchors_of(peer))
        lines = LinesConnection(link, session, self._tasks, self._ended)
        self._connections.add(lines)
        lines.attach(transport, first)
        return lines

    def _look_at(self, peer: Peer) -> IdentifyCaller:
        """Return a function that identifies the peer, and repeats the search only after a seat has changed.

        This protocol carries no claim of the caller, so the session is read from the environment of its
        process.
        """
        known: Caller | None = None
        seen = -1

        def look() -> Caller:
            nonlocal known, seen
            # The seat of an automatic turn ends without an event.
            if known is None or known.turn or seen != self._seats_changed:
                seen = self._seats_changed
                chain = peer.chain(self._services.callers.seats.is_anchor)
                # Otherwise the empty chain of a closed peer would make this caller a script.
                if peer.is_closed:
                    raise WhoAreYou("the calling connection has ended")
                marks = self._identifier.environments.look(chain[0]).marks if chain else {}
                known = self._identifier.who(chain, CallerClaim(marks=marks))
            return known

        return look

    def _first_look(self, look: IdentifyCaller) -> Caller:
        """Accept a peer that may be several agents. Each request then names one, or is refused."""
        try:
            return look()
        except WhoAreYou:
            return SCRIPT

    def _anchors_of(self, peer: Peer) -> AnchorOfSession:
        return lambda key: self._identifier.anchor_of(peer.chain(), CallerClaim(key=key))

    def _follow_seats(self, events: Sequence[Event]) -> None:
        if any(event.type in SEAT_TYPES for event in events):
            self._seats_changed += 1

    def _ended(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._nobody_left.set()


class _Doorway(asyncio.Protocol):
    """A new connection until its first bytes select a protocol. A silent connection stays here."""

    def __init__(self, door: UnixDoor) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connection = transport.get_extra_info("socket")
        # The highest numbers are a reserve: for the daemon's own files, and to refuse callers with a reason.
        is_full = connection.fileno() >= self._door.first_reserved_file
        if not is_full:
            self._peer = peer_of(connection)
            # The peer has a descriptor too, and that may be the first one of the reserve.
            is_full = self._peer.pidfd is not None and self._peer.pidfd >= self._door.first_reserved_file
        if is_full:
            # Refuse it once its protocol is known, and close it if it stays silent.
            self._leaving = asyncio.get_running_loop().call_later(_SILENT_LIMIT_S, transport.abort)
            if self._peer is not None:
                self._peer.close()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._first += data
        # The first bytes can arrive in pieces; do not choose a protocol from a prefix.
        if len(self._first) < len(MAGIC) and any(magic.startswith(self._first) for magic in _MAGICS):
            return
        if self._leaving is not None:
            self._refuse(Unavailable(_FULL))
            return
        if self._door.has_closed:  # The next daemon serves it.
            self._transport.abort()
            return
        assert self._peer is not None  # it is passed on together with the transport
        try:
            self._peer.check_user()
            if self._first.startswith(_FAMILY) and not self._first.startswith(_MAGICS):
                raise BadRequest(
                    f"this daemon uses the protocol {MAGIC.decode()}; install a client of its version"
                )
            protocol = self._door.welcome(self._peer, self._transport, self._first)
        except PalaverError as error:
            self._refuse(error)
            return
        self._peer = None
        self._transport.set_protocol(protocol)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        if self._peer is not None:
            self._peer.close()

    def _refuse(self, error: PalaverError) -> None:
        """Write the error in the protocol that the peer uses, and close."""
        assert self._transport is not None
        # A client of another version begins with the same family, and reads frames, not lines.
        if self._first.startswith(_FAMILY):
            self._transport.write(frame(b"E", f"pal: {error}\n".encode()) + frame(b"Q", b"\1"))
        else:
            self._transport.write(error_line(0, error))
        self._transport.close()


def remove_socket(path: Path, file: tuple[int, int] | None) -> None:
    """Remove a socket file, unless another daemon has put its own there."""
    if is_at(path, file):
        with suppress(FileNotFoundError):
            path.unlink()


class SocketAgain:
    """Decides when to create a removed socket file again, and logs each outcome once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failures = 0
        self._looks_left = 0

    def is_due(self) -> bool:
        """Return whether to try now. Called at each check, about once a second."""
        self._looks_left -= 1
        return self._looks_left < 0

    def fail(self, error: OSError) -> None:
        """Wait longer after each failure. Log the first one with instructions."""
        if not self._failures:
            _logger.error(
                "%s was removed and cannot be created again (%s): remove the file or folder at that path and "
                "make the home writable. No command reaches the bus until then; it keeps trying, at least "
                "every %d seconds",
                self._path,
                error,
                _LONGEST_PAUSE_LOOKS,
            )
        self._failures += 1
        self._looks_left = min(2**self._failures, _LONGEST_PAUSE_LOOKS) - 1

    def succeed(self) -> None:
        """Log that the file is there again."""
        self._failures = self._looks_left = 0
        _logger.warning("%s was removed or replaced; it is created again", self._path)


def bind_socket(path: Path) -> socket.socket:
    """Bind a socket file with mode 0600, also where its path is longer than the system's limit."""
    # A bind fails if the file exists, even if no process listens there.
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        at_short_path(path, listener.bind)
        path.chmod(0o600)  # in time: no client can connect before `listen`
    except OSError:
        listener.close()
        raise
    return listener


# --------------------
# The door for connections that holders forward: `adopt.sock`, mode 0600.
#
# A client that connects to an agent's own socket reaches the agent's holder. The holder forwards the open
# connection to this door: one line, one descriptor, one reply. The daemon then identifies the client from the
# descriptor and reads the request itself, so a holder cannot speak in a caller's name.
#
# Only the process that holds the agent now may forward, and only connections to that agent's own socket. The
# forwarded descriptor is closed here in every case. The door does not wait for a holder that sends half a
# line, or for a client that never reads.

_LIMIT_S: Final = 5.0
"""Seconds for one line. Holders and their clients send it at once, so a late line is an error."""
_LIMIT_DESCRIPTORS: Final = 16
_PIECE_BYTES: Final = 64 * 1024
_FORWARDED_BACKLOG: Final = 128
_NOT_INHERITED: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Keeps received descriptors from child processes. macOS lacks it; there `subprocess` closes them."""


class AdoptedDoor:
    """The listener on `adopt.sock` of a home."""

    def __init__(self, services: Services, identifier: CallerIdentifier, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._identifier = identifier
        self._tasks = tasks
        self._path = services.daemon.home / "adopt.sock"
        self._again = SocketAgain(self._path)
        self._file: tuple[int, int] | None = None
        self._listener: SocketListener | None = None
        self._is_open = False

    def open(self) -> None:
        """Start to listen. Replace a socket file that a crashed daemon left."""
        self._is_open = True
        self._listener = SocketListener(bind_socket(self._path), _FORWARDED_BACKLOG, self._accepted)
        self._file = file_id(self._path)

    def look_after(self) -> None:
        """Listen on a new socket file when ours was removed or replaced."""
        if self._is_open and not is_at(self._path, self._file) and self._again.is_due():
            self._stop_listening()
            try:
                self.open()
            except OSError as error:
                self._again.fail(error)
            else:
                self._again.succeed()

    def close(self) -> None:
        """Accept no further connections. Safe to call twice."""
        self._is_open = False
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            remove_socket(self._path, self._file)

    def _accepted(self, connection: socket.socket) -> None:
        self._tasks.create_task(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        """Serve one holder. This is the only function of this door that catches errors of requests."""
        received = _Received()
        with connection:
            try:
                with peer_of(connection) as holder:
                    holder.check_user()
                    async with asyncio.timeout(_LIMIT_S):
                        line = await _receive(connection, received)
                    answer = await self._do(read_for_from_json(line), received.only(), holder)
            except TimeoutError:
                answer = refusal_line(BadRequest("the line did not end in time"))
            except PalaverError as error:
                _logger.info("refused a connection that a holder passed on: %s: %s", error.code, error)
                answer = refusal_line(error)
            finally:
                received.close()
            with suppress(OSError):  # the holder hung up or does not read
                connection.send(answer)

    async def _do(self, asked: ReadFor, descriptor: int, holder: Peer) -> bytes:
        hold = self._services.agents.holds.get(asked.name)
        if hold is None or hold.holder.pid != holder.pid:
            raise NotYou(asked.name, f"process {holder.pid}, which does not hold it")
        with _socket_of(descriptor) as passed:
            if not _is_bound_to(passed, self._services.daemon.home / "agents" / f"{asked.name}.sock"):
                raise BadRequest(f"the descriptor is not a connection to the socket of {asked.name}")
            with peer_of(passed) as peer:
                peer.check_user()
                line = await _read_request(passed)
                # The peer was pinned before the read, so its pid cannot be that of another process by now.
                caller = self._who(peer)
            if not line:
                return ok_line(replied=True)  # the client hung up without a request
            request = forwarded_request_from_json(line)
            if request.type != "send":  # The holder serves the others itself, on the same connection.
                who = {"name": caller.name, "standing": caller.standing.word, "kind": caller.kind}
                return ok_line(**who, request=msgspec.Raw(line))
            reply = await self._sent(caller, asked.name, request)
            with suppress(OSError):  # the client hung up or does not read
                passed.send(reply, socket.MSG_DONTWAIT)
        return ok_line(replied=True)

    def _who(self, peer: Peer) -> Caller:
        chain = peer.chain(self._services.callers.seats.is_anchor)
        if not chain:
            raise WhoAreYou("the calling process has ended")
        return self._identifier.who(chain, CallerClaim())

    async def _sent(self, caller: Caller, name: str, request: SendRequest) -> bytes:
        try:
            send = await hide_keys(self._services.agents.holds, _send_from(caller, name, request))
            sent = await self._services.broker.submit(caller, send)
        except PalaverError as error:
            _logger.info("refused send of %s to %s: %s: %s", caller.name, name, error.code, error)
            return refusal_line(error)
        assert isinstance(sent, Sent)
        assert sent.event is not None  # not a dry run
        return ok_line(message_id=sent.event.id, seq=sent.event.seq)


def _send_from(caller: Caller, name: str, request: SendRequest) -> Send:
    if request.sender not in ("", caller.name):
        raise NotYou(request.sender, caller.name)
    if not request.body:
        raise BadRequest("the message is empty")
    if request.priority == "" and not request.raw:
        raise BadRequest("invalid priority: ")
    return Send(
        text="" if request.raw else request.body,
        recipient=name,
        raw=request.body.encode() if request.raw else b"",
        priority="" if request.raw else request.priority or "",
        id=request.id,
        thread=request.thread,
        intent=request.intent,
        reply_to=request.reply_to,
        expects_reply=request.expects_reply,
        is_bare=request.bare,
    )


class _Received:
    """The descriptors received with a line. `close` closes all of them, whatever happens to the line."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self.is_cut = False

    def add(self, ancillary: list[tuple[int, int, bytes]], flags: int) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                # Data that the system has cut may end in the middle of a number.
                found.frombytes(data[: len(data) - len(data) % found.itemsize])
                self._descriptors.extend(found)
        self.is_cut = self.is_cut or bool(flags & socket.MSG_CTRUNC)

    def only(self) -> int:
        """Return the descriptor. Raise BadRequest unless exactly one was received."""
        if self.is_cut or len(self._descriptors) != 1:
            count = f"more than {_LIMIT_DESCRIPTORS}" if self.is_cut else str(len(self._descriptors))
            raise BadRequest(f"pass exactly one descriptor with the line, not {count}")
        return self._descriptors[0]

    def close(self) -> None:
        while self._descriptors:
            with suppress(OSError):
                os.close(self._descriptors.pop())


async def _receive(connection: socket.socket, received: _Received) -> bytes:
    """Read one line and its descriptors. Raise BadRequest if it is too long or the connection ends early."""
    line = bytearray()
    while b"\n" not in line:
        await _readable(connection)
        room = socket.CMSG_SPACE(_LIMIT_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = connection.recvmsg(_PIECE_BYTES, room, _NOT_INHERITED)
        except BlockingIOError:
            continue
        except OSError as error:
            raise BadRequest("the connection ended in the middle of a line") from error
        received.add(ancillary, flags)
        if not data:
            raise BadRequest("the connection ended in the middle of a line")
        line += data
        if len(line) > LIMIT_LINE_BYTES:
            raise BadRequest(f"a line is at most {LIMIT_LINE_BYTES} bytes")
    return bytes(line.partition(b"\n")[0])


async def _read_request(passed: socket.socket) -> bytes:
    """Read the one request of a client and leave all later bytes unread. Return b"" if it sent nothing."""
    reader = RequestReader(LIMIT_LINE_BYTES)
    try:
        async with asyncio.timeout(_LIMIT_S):
            while True:
                await _readable(passed)
                # MSG_DONTWAIT instead of `setblocking`: the mode belongs to the connection, so the holder,
                # which has it open too, would get it as well.
                with suppress(BlockingIOError):
                    # First without taking anything: the bytes after an `attach` request are the holder's.
                    data = passed.recv(_PIECE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                    found = reader.feed(data)
                    rest = b"" if found is None else found[1]
                    size = len(data) - len(rest)
                    if data and len(passed.recv(size, socket.MSG_DONTWAIT)) < size:
                        return b""  # The holder has refused the request and discarded it meanwhile.
                    if found is not None or not data:
                        return reader.end() if found is None else found[0]
    except TimeoutError:
        raise BadRequest("no request came in time: send it at once, in one line") from None
    except OSError:
        return b""  # the client hung up


def _is_bound_to(passed: socket.socket, path: Path) -> bool:
    """Return whether a listener at this path accepted the connection."""
    name = passed.getsockname()
    # A relative name depends on the folder that the listener was bound in, which is unknown here.
    if not isinstance(name, str) or not name.startswith("/") or PurePath(name).name != path.name:
        return False
    if name.startswith(SHORT_PREFIX):  # too long for an address, so bound through its folder
        return not is_address(path)
    try:
        return PurePath(name).parent == path.parent or Path(name).parent.samefile(path.parent)
    except OSError:
        return False


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)


def _socket_of(descriptor: int) -> socket.socket:
    """Return a Unix stream socket for a copy of the descriptor, or refuse it. The caller closes the copy."""
    try:
        # A socket object owns its descriptor, and `_Received` closes the received one.
        copy = os.dup(descriptor)
    except OSError as error:
        raise Unavailable("there are no descriptors left") from error
    try:
        taken = socket.socket(fileno=copy)
    except OSError as error:
        os.close(copy)
        raise BadRequest("the descriptor is not a socket") from error
    if taken.family != socket.AF_UNIX or taken.type != socket.SOCK_STREAM:
        taken.close()
        raise BadRequest("the descriptor is not a connection to a Unix socket")
    return taken
