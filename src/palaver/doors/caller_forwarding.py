"""The door for connections that holders forward: `adopt.sock`, mode 0600.

A client that connects to an agent's own socket reaches the agent's holder. The holder forwards the open
connection to this door: one line, one descriptor, one reply. The daemon then identifies the client from the
descriptor and reads the request itself, so a holder cannot speak in a caller's name.

Only the process that holds the agent now may forward, and only connections to that agent's own socket. The
forwarded descriptor is closed here in every case. The door does not wait for a holder that sends half a line,
or for a client that never reads.
"""

import array
import asyncio
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

import msgspec

from palaver.broker.context import Sent
from palaver.doors.unix import SocketAgain, bind_socket, remove_socket
from palaver.errors import BadRequest, NotYou, PalaverError, Unavailable, WhoAreYou
from palaver.home import SHORT_PREFIX, file_id, is_address
from palaver.identity.caller import CallerClaim, CallerIdentifier
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
from palaver.protocol.requests import Send
from palaver.services.agents import hide_keys
from palaver.services.services import Services

_LIMIT_S: Final = 5.0
"""Seconds for one line. Holders and their clients send it at once, so a late line is an error."""
_LIMIT_DESCRIPTORS: Final = 16
_PIECE_BYTES: Final = 64 * 1024
_BACKLOG: Final = 128
_NOT_INHERITED: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Keeps received descriptors from child processes. macOS lacks it; there `subprocess` closes them."""

_logger: Final = logging.getLogger("palaver.doors")


class AdoptedDoor:
    """The listener on `adopt.sock` of a home."""

    def __init__(self, services: Services, identifier: CallerIdentifier, tasks: asyncio.TaskGroup) -> None:
        self._services = services
        self._identifier = identifier
        self._tasks = tasks
        self._path = services.daemon.home / "adopt.sock"
        self._again = SocketAgain(self._path)
        self._file: tuple[int, int] | None = None
        self._listener: socket.socket | None = None
        self._is_open = False

    def open(self) -> None:
        """Start to listen. Replace a socket file that a crashed daemon left."""
        self._is_open = True
        self._listener = bind_socket(self._path)
        self._file = file_id(self._path)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def look_after(self) -> None:
        """Listen on a new socket file when ours was removed or replaced."""
        if self._is_open and file_id(self._path) != self._file and self._again.is_due():
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
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            remove_socket(self._path, self._file)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the peer hung up, or descriptors ran out; keep listening
            return
        connection.setblocking(False)
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
                caller = self._who(peer)
            if not line:
                return ok_line(replied=True)  # the client hung up without a request
            request = forwarded_request_from_json(line)
            if request.type != "send":
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
                with suppress(BlockingIOError):
                    data = passed.recv(_PIECE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                    found = reader.feed(data)
                    rest = b"" if found is None else found[1]
                    if data:
                        passed.recv(len(data) - len(rest), socket.MSG_DONTWAIT)
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
