"""The Unix door: `daemon.sock`, mode 0600. Identifies each peer and selects one of four protocols.

A connection that starts with a magic string comes from the thin client: a command, a hook or an MCP pump. Any
other is lines of JSON. A process of another user is refused.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from palaver.doors.cli.run import ArgvDoor
from palaver.doors.connection import IdentifyCaller, Link, Outbox
from palaver.doors.hooks import MAGIC as HOOK_MAGIC
from palaver.doors.hooks import HookAsking, HookConnection, HookHandler
from palaver.doors.lines_holders import AnchorOfSession
from palaver.doors.lines_ops import LinesConnection, LineSession
from palaver.doors.mcp.pump import Loader, PumpConnection, PumpDoor
from palaver.doors.thin import ArgvConnection
from palaver.errors import BadRequest, PalaverError, Unavailable, WhoAreYou
from palaver.home import at_short_path, file_id, first_reserved_file
from palaver.identity.caller import SCRIPT, CallerClaim, CallerIdentifier
from palaver.identity.process import Peer, peer_of
from palaver.protocol.agents import Caller
from palaver.protocol.envelope import Event
from palaver.protocol.events import SEAT_TYPES
from palaver.protocol.lines import error_line
from palaver.protocol.thin import MAGIC, PUMP_MAGIC, frame
from palaver.services.services import Services

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
        self._server: asyncio.Server | None = None
        self._is_shut = False
        self.has_closed = False
        """Whether all connections are closed. The tasks that would serve another one end then."""
        self._ids = count(1)
        self._connections: set[_Connection] = set()
        self._nobody_left = asyncio.Event()
        self._seats_changed = 0
        self._unsubscribe = services.queries.subscribe(self._follow_seats, SEAT_TYPES)
        self.first_reserved_file: Final = first_reserved_file()

    async def open(self) -> None:
        """Start to listen. Replace a socket file that a crashed daemon left."""
        listener = bind_socket(self._path)
        self._file = file_id(self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Doorway(self), sock=listener, backlog=_BACKLOG)

    def look_after(self) -> None:
        """Listen on a new socket file if ours was removed or replaced. Open connections stay."""
        if not self._is_shut and file_id(self._path) != self._file and self._again.is_due():
            self._tasks.create_task(self._open_again())

    async def _open_again(self) -> None:
        before = self._server
        try:
            await self.open()
        except OSError as error:
            self._again.fail(error)
            return
        self._again.succeed()
        # After the new socket listens: there is no time without one.
        if before is not None:
            before.close()
        if self._is_shut:
            self.shut()

    def shut(self) -> None:
        """Accept no more connections. Open ones stay."""
        self._is_shut = True
        if self._server is not None:
            self._server.close()
        remove_socket(self._path, self._file)

    async def close(self, closing_text: str | None) -> None:
        """Let running requests finish for a few seconds, then close all connections.

        Waiting commands end with `closing_text`. If it is None, they reconnect to the next daemon, as
        programs do.
        """
        self._nobody_left.clear()
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
            # Many connections are accepted before the first of them reaches this line.
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
                raise BadRequest(f"this daemon speaks {MAGIC.decode()}: install a client that does")
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
        if self._first.startswith(_FAMILY):
            self._transport.write(frame(b"E", f"pal: {error}\n".encode()) + frame(b"Q", b"\1"))
        else:
            self._transport.write(error_line(0, error))
        self._transport.close()


def remove_socket(path: Path, file: tuple[int, int] | None) -> None:
    """Remove a socket file, unless another daemon has put its own there."""
    if file_id(path) == file:
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
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        at_short_path(path, listener.bind)
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    return listener
