"""The Unix door: `daemon.sock`, mode 0600. Finds out who connects and which of the two wires it speaks.

The first byte decides: `P` is the thin client's, `{` is a line of JSON. Another user's process gets nothing.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from palaver.doors.argv.connection import ArgvConnection
from palaver.doors.argv.run import ArgvDoor
from palaver.doors.argv.wire import MAGIC
from palaver.doors.lines import LinesConnection
from palaver.doors.lines_ops import Session
from palaver.doors.lines_wire import error_line
from palaver.doors.services import Services
from palaver.errors import BadRequest, PalaverError
from palaver.links.doorstep import Doorstep
from palaver.links.identity import Claim
from palaver.links.link import Link
from palaver.links.outbox import Outbox
from palaver.links.peer import Peer, peer_of

_BACKLOG: Final = 512
_LIMIT_SOCKET_PATH: Final = 100


class UnixDoor:
    """Listens on one socket file. Whoever opens it must own the home."""

    def __init__(self, services: Services, doorstep: Doorstep, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._doorstep = doorstep
        self._tasks = tasks
        self._argv = ArgvDoor(services, doorstep)
        self._path = services.home / "daemon.sock"
        self._server: asyncio.Server | None = None
        self._ids = count(1)
        self.argv_connections: set[ArgvConnection] = set()

    async def open(self) -> None:
        """Listen. A socket file left by a daemon that died is replaced."""
        listener = bind_socket(self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Doorway(self), sock=listener, backlog=_BACKLOG)

    def close(self, farewell: str | None) -> None:
        """Take no more callers. With a farewell, waiting commands end with it; without, they will come back."""
        if self._server is not None:
            self._server.close()
        with suppress(FileNotFoundError):
            self._path.unlink()
        for connection in list(self.argv_connections):
            if farewell is not None:
                connection.write_error(f"pal: {farewell}\n")
                connection.exit(1)
            else:
                connection.abandon()

    def welcome(self, peer: Peer, transport: asyncio.Transport, first: bytes) -> asyncio.Protocol:
        """Give a caller the conversation it began."""
        if first[:1] == MAGIC[:1]:
            connection = ArgvConnection(peer, self._argv.run, self._tasks, self.argv_connections.discard)
            self.argv_connections.add(connection)
            connection.attach(transport, first[len(MAGIC) :])
            return connection
        caller = self._doorstep.who(peer.chain(), Claim())
        link = Link(id=str(next(self._ids)), caller=caller, outbox=Outbox())
        link.on_close(peer.close)
        lines = LinesConnection(link, Session(self._services, link, self._tasks), self._tasks)
        lines.attach(transport, first)
        return lines


class _Doorway(asyncio.Protocol):
    """Looks at the first bytes of a connection and hands it on."""

    def __init__(self, door: UnixDoor) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        raw = transport.get_extra_info("socket")
        self._peer = peer_of(raw)
        try:
            self._peer.check_user()
        except PalaverError as error:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._peer is None:
            return
        self._first += data
        if self._first[:1] == MAGIC[:1]:
            if len(self._first) < len(MAGIC):
                return
            if self._first[: len(MAGIC)] != MAGIC:
                self._refuse(BadRequest("this daemon speaks PAL1; install a client that does"))
                return
        elif self._first[:1] != b"{":
            self._refuse(BadRequest("begin with PAL1 or with a line of JSON"))
            return
        try:
            protocol = self._door.welcome(self._peer, self._transport, self._first)
        except PalaverError as error:
            self._refuse(error)
            return
        self._peer = None
        self._transport.set_protocol(protocol)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._peer is not None:
            self._peer.close()

    def _refuse(self, error: PalaverError) -> None:
        assert self._transport is not None
        self._transport.write(error_line(0, error))
        self._transport.close()


def bind_socket(path: Path) -> socket.socket:
    """Bind a socket file with mode 0600, also where its path is longer than the system's limit."""
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _at_short_path(path, listener.bind)
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    return listener


def connect_socket(path: Path) -> socket.socket:
    """Connect to a socket file, also where its path is longer than the system's limit."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _at_short_path(path, connection.connect)
    except OSError:
        connection.close()
        raise
    return connection


def _at_short_path(path: Path, use: Callable[[str], None]) -> None:
    if len(os.fsencode(path)) <= _LIMIT_SOCKET_PATH or sys.platform != "linux":
        use(str(path))
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        use(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
