"""The socket of an agent: its path, how to open it, and the requests that it accepts."""

import asyncio
import logging
import os
import select
import socket
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from palaver.errors import BadRequest, Disconnected, NameTaken, NotAllowed, PalaverError, RequestError
from palaver.home import at_short_path, connect_socket
from palaver.protocol.agent_socket import (
    AgentRequest,
    RequestReader,
    SocketReply,
    refusal,
    reply_to_json,
    request_from_json,
)

# --------------------
# The path of an agent's socket, and how to open it.
#
# The socket has mode 0600 in a directory of mode 0700. The socket of a dead holder is replaced; that of a
# running holder is not.

_BACKLOG: Final = 128


def socket_path(home: str, name: str) -> Path:
    """Return the path of an agent's socket."""
    return Path(home) / "agents" / f"{name}.sock"


def listen(path: Path) -> socket.socket:
    """Open an agent's socket; raises NameTaken if another holder listens there, OSError if it fails."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_live(path):
        raise NameTaken(path.stem, "a holder of that name is already running here")
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # `bind` creates the file: until a later `chmod`, others could connect.
        before = os.umask(0o177)
        try:
            at_short_path(path, listener.bind)
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _is_live(path: Path) -> bool:
    try:
        connect_socket(path, can_wait=False).close()
    except BlockingIOError:
        return True  # Its backlog is full, so it is running.
    except OSError:
        return False
    return True


# --------------------
# Forward a caller's connection to the daemon by its descriptor, so that the daemon identifies the caller.
#
# The daemon reads the request from the descriptor itself, identifies the process at the other end, and
# either replies to the caller directly or returns the request to the holder. The code here decides nothing,
# and cannot make a request on behalf of a caller.

DAEMON_LIMIT_S: Final = 10.0
"""Seconds that the daemon may take to serve a request: it may be writing to a slow disk."""
_FORWARD_READ_BYTES: Final = 65536
_FORWARD_PAUSE_S: Final = 0.01
_AWAY: Final = "the bus is not running, so your identity cannot be checked: start it with 'pal up'"
_STUCK: Final = "the bus does not answer, so nothing was done: run 'pal doctor', then try again"
_UNKNOWN: Final = (
    "the bus has read the request but did not answer: check whether it was carried out before you repeat it"
)


class ForwardedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's result: the request and the identity of the caller, or that the caller was served."""

    is_ok: bool = msgspec.field(name="ok")
    error: str = ""
    code: str = ""
    name: str = ""
    standing: str = ""
    kind: str = ""
    request: msgspec.Raw = msgspec.Raw(b"")
    """The request that the daemon read; empty if the caller sent nothing or was served already."""
    replied: bool = False
    """Whether the daemon has already sent the reply to the caller."""


_verdict: Final = msgspec.json.Decoder(ForwardedCaller).decode


async def ask_daemon(
    home: str, name: str, descriptor: int, *, limit_s: float = DAEMON_LIMIT_S
) -> ForwardedCaller:
    """Let the daemon read the request that is waiting on a connection to the agent's socket.

    The descriptor stays open here as well. Raises Disconnected if the daemon is not running or does not reply
    within `limit_s` seconds; it may still read the request later.
    """
    request = {"do": "read", "name": name}
    try:
        async with asyncio.timeout(limit_s):
            return _verdict(await _exchange(home, descriptor, msgspec.json.encode(request) + b"\n"))
    # First, because a TimeoutError is an OSError too.
    except TimeoutError as error:
        raise Disconnected(_STUCK) from error
    except (OSError, msgspec.DecodeError) as error:
        raise Disconnected(_AWAY) from error


async def _exchange(home: str, descriptor: int, line: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with await _connect(Path(home) / "adopt.sock") as wire:
        sent = await _send_with(loop, wire, line, descriptor)
        # The daemon may refuse before it has read everything; its reply can still be read.
        with suppress(BrokenPipeError):
            while sent < len(line):
                await _wait_writable(loop, wire)
                sent += wire.send(line[sent:])
        answer = b""
        while not answer.endswith(b"\n") and (piece := await loop.sock_recv(wire, _FORWARD_READ_BYTES)):
            answer += piece
        return answer


async def _connect(path: Path) -> socket.socket:
    while True:
        try:
            # Not waiting, because a blocking connect would stop the whole holder.
            return connect_socket(path, can_wait=False)
        # The system reports no event when there is room again, so try after a pause.
        except BlockingIOError:  # The backlog of the socket is full.
            await asyncio.sleep(_FORWARD_PAUSE_S)


async def _send_with(
    loop: asyncio.AbstractEventLoop, wire: socket.socket, line: bytes, descriptor: int
) -> int:
    """Send the first bytes together with the descriptor, as soon as the socket is writable."""
    own = os.dup(descriptor)  # The caller's connection may be closed in the meantime.
    try:
        while True:
            try:
                return socket.send_fds(wire, [line], [own])
            except BlockingIOError:
                await _wait_writable(loop, wire)
    finally:
        os.close(own)


async def _wait_writable(loop: asyncio.AbstractEventLoop, wire: socket.socket) -> None:
    is_ready = asyncio.Event()
    loop.add_writer(wire, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        loop.remove_writer(wire)


# --------------------
# An agent's socket: one request and one reply for each caller; only an attached viewer stays connected.
#
# A caller is never identified by its own claim. The holder peeks at a request without consuming it. Any
# request that depends on the caller is forwarded to the daemon by its descriptor, and the daemon reads it
# from there.

_READ_BYTES: Final = 65536
LIMIT_CALLERS: Final = 128
"""Callers that have not been served yet. When full, the one that has been silent longest is refused."""
REQUEST_LIMIT_S: Final = 5.0
"""Seconds that a caller may take to send its request."""
_OPERATORS: Final = ("human", "operator")
_FOR_ALL: Final = ("status", "show")
"""Requests that every caller may make, with or without a daemon."""
_PAUSE_S: Final = 0.01
"""Seconds between two peeks at an incomplete request."""
# macOS has no POLLRDHUP.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP

_logger: Final = logging.getLogger("palaver.holder")


class SocketControl(Protocol):
    """The functions of a holder that its agent's socket uses."""

    def show(self, message_id: str) -> Awaitable[dict[str, object]]:
        """Return a message and its state; raises NotFound."""
        ...

    def status(self) -> dict[str, object]:
        """Return the status of the agent."""
        ...

    def attach(self, connection: socket.socket, request: AgentRequest) -> None:
        """Take over the connection of a viewer. Bytes after its request are still unread."""
        ...

    def hook(self, event_name: str, payload: Mapping[str, object]) -> None:
        """Apply an event that the harness reports about itself."""
        ...

    def stop(self) -> None:
        """Ask the agent to quit."""
        ...


class AgentServer:
    """Serves callers until cancelled. A caller that sends nothing delays no other."""

    def __init__(
        self,
        home: str,
        name: str,
        listener: socket.socket,
        control: SocketControl,
        *,
        request_limit_s: float = REQUEST_LIMIT_S,
        limit_s: float = DAEMON_LIMIT_S,
    ) -> None:
        """`limit_s` is for the daemon, which serves a request, and for a caller, which reads its reply."""
        self._request_limit_s = request_limit_s
        self._limit_s = limit_s
        self._home = home
        self._name = name
        self._listener = listener
        self._control = control
        self._room = asyncio.Semaphore(LIMIT_CALLERS)
        self._silent: dict[socket.socket, asyncio.Timeout] = {}

    async def run(self) -> None:
        """Accept callers until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as callers:
            while True:
                connection, _ = await self._accept(loop)
                if self._room.locked():
                    await asyncio.sleep(0)  # Let the newest callers register as silent first.
                    self._end_longest_silence()
                await self._room.acquire()
                callers.create_task(self._serve(connection))

    def _end_longest_silence(self) -> None:
        if (oldest := next(iter(self._silent), None)) is not None:
            # Its own task ends it, so that it still gets the reply of a timeout.
            self._silent.pop(oldest).reschedule(0)

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> tuple[socket.socket, object]:
        while True:
            try:
                return await loop.sock_accept(self._listener)
            except OSError as error:  # Out of descriptors, or the caller disconnected at once.
                _logger.warning("a caller was not accepted: %s", error)
                # A caller that was not accepted stays in the backlog: an attempt at once may fail again.
                await asyncio.sleep(0.1)

    async def _serve(self, connection: socket.socket) -> None:
        """Serve one caller. This is the only function of this socket that catches refusals."""
        connection.setblocking(False)
        is_kept = False
        try:
            is_kept = await self._answer(connection)
        except PalaverError as error:
            await self._reply(connection, refusal(str(error)))
        except OSError:
            pass  # The caller has disconnected.
        except Exception:  # An error in one request must not end the agent.
            _logger.exception("a request on the socket of %s failed", self._name)
            await self._reply(connection, refusal("an internal error in the holder; see agents/holder.log"))
        finally:
            self._room.release()
            if not is_kept:
                connection.close()

    async def _answer(self, connection: socket.socket) -> bool:
        """Execute the request; return True if the connection now belongs to a viewer."""
        line, size = await self._look_at_request(connection)
        request = request_from_json(line) if line else None
        if request is None or request.type not in _FOR_ALL:
            return size > 0 and await self._pass_on(connection)
        connection.recv(size)  # Not before: the daemon must find the bytes of all other requests.
        if request.type == "show":
            await self._reply(connection, _ok(message=await self._control.show(request.message_id)))
        else:
            await self._reply(connection, _ok(agent=self._control.status()))
        return False

    async def _pass_on(self, connection: socket.socket) -> bool:
        """Let the daemon read the request, and execute what it allows. The daemon sends messages itself."""
        # All bytes: further requests may follow this one, and the daemon leaves them unread.
        unread_bytes = len(connection.recv(_READ_BYTES, socket.MSG_PEEK))
        try:
            who = await ask_daemon(self._home, self._name, connection.fileno(), limit_s=self._limit_s)
        except Disconnected:
            # The daemon may still get the descriptor: it must not find a request that was refused.
            if _discard(connection) < unread_bytes:
                raise Disconnected(_UNKNOWN) from None
            raise
        if not who.is_ok:
            raise RequestError(who.error)
        if who.replied:
            return False
        request = request_from_json(bytes(who.request))
        match request.type:
            case "attach":
                # Keys of a viewer count as the person's: an agent that could attach could answer its own
                # permission dialogs.
                _check(who, "attaching to an agent", ("human",), kind="human")
                self._control.attach(connection, request)
                return True
            case "hook_event":
                # A hook overrides the state on the screen: another agent could open or close this gate with
                # it.
                self._check_own(who)
                self._control.hook(request.event_name, _payload(request))
                await self._reply(connection, _ok())
            case "stop":
                _check(who, "stopping an agent", _OPERATORS)
                await self._reply(connection, _ok())
                # After the reply: the end of the agent ends this process too.
                self._control.stop()
        return False

    async def _look_at_request(self, connection: socket.socket) -> tuple[bytes, int]:
        """Return the waiting request without consuming it, and its size in bytes.

        Raises BadRequest after a timeout. A request that is too long to be peeked at has an empty line; the
        daemon reads it. A caller that sends nothing has the size 0.
        """
        try:
            async with asyncio.timeout(self._request_limit_s) as limit:
                self._silent[connection] = limit
                await _readable(connection)
                while True:
                    data = connection.recv(_READ_BYTES, socket.MSG_PEEK)
                    # A new reader each time, because every peek returns the request from its first byte.
                    reader = RequestReader()
                    if (found := reader.feed(data)) is not None:
                        return found[0], len(data) - len(found[1])
                    # Such a caller sends nothing more, and the same bytes would be peeked at until the time
                    # limit.
                    if not data or _has_hung_up(connection):
                        return reader.end(), len(data)
                    if len(data) == _READ_BYTES:
                        return b"", len(data)
                    # The peeked bytes keep the socket readable, so there is no event to wait for.
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise BadRequest("no request came in time: send it at once, in one line") from None
        finally:
            self._silent.pop(connection, None)

    def _check_own(self, who: ForwardedCaller) -> None:
        if who.name != self._name:
            raise NotAllowed("a hook of this agent", f"{who.name} ({who.standing})", "the agent itself")

    async def _reply(self, connection: socket.socket, line: bytes) -> None:
        with suppress(OSError):  # The caller has disconnected, or does not read: TimeoutError is an OSError.
            async with asyncio.timeout(self._limit_s):
                await asyncio.get_running_loop().sock_sendall(connection, line)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    is_ready = asyncio.Event()
    # Not `sock_recv`, which would consume bytes that the daemon must read.
    loop.add_reader(connection, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(connection)


def _discard(connection: socket.socket) -> int:
    """Discard all bytes of a caller, and let it send no more. Return how many were unread."""
    count = _drain(connection)  # First, because on macOS the shutdown itself drops unread bytes.
    with suppress(OSError):  # The caller has disconnected.
        connection.shutdown(socket.SHUT_RD)
    return count + _drain(connection)


def _drain(connection: socket.socket) -> int:
    count = 0
    with suppress(OSError):  # The caller has disconnected, or nothing more is unread.
        while data := connection.recv(_READ_BYTES):
            count += len(data)
    return count


def _has_hung_up(connection: socket.socket) -> bool:
    """Return whether the caller has closed its side."""
    poll = select.poll()
    poll.register(connection, _HUNG_UP)
    return bool(poll.poll(0))


def _check(who: ForwardedCaller, what: str, standings: tuple[str, ...], *, kind: str = "") -> None:
    if who.standing not in standings or (kind and who.kind != kind):
        raise NotAllowed(what, who.standing, "the human" if kind else "an operator")


def _payload(request: AgentRequest) -> Mapping[str, object]:
    try:
        payload = msgspec.json.decode(request.payload)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _ok(*, message: dict[str, object] | None = None, agent: dict[str, object] | None = None) -> bytes:
    return reply_to_json(SocketReply(is_ok=True, message=message, agent=agent))
