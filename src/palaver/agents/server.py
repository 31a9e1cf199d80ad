"""An agent's own socket: one request and one reply for each caller; who attaches, stays.

Who is asking is never what the caller says. The holder only looks at a request without reading it. Whatever
needs to know the caller goes on to the daemon by its descriptor: the daemon reads the request itself.
"""

import asyncio
import logging
import select
import socket
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

import msgspec

from palaver.agents.adopt import Verdict, ask_daemon
from palaver.agents.request_wire import (
    AgentRequest,
    Reply,
    refusal,
    reply_to_json,
    request_from_json,
)
from palaver.errors import BadRequest, NotAllowed, PalaverError, RequestError
from palaver.model.request_reader import RequestReader

_READ_BYTES: Final = 65536
LIMIT_CALLERS: Final = 128
"""Callers that have not been served yet. One more takes the place of the one that has been silent longest."""
REQUEST_LIMIT_S: Final = 5.0
"""So long a caller may take to say what it wants."""
_OPERATORS: Final = ("human", "operator")
_FOR_ALL: Final = ("status", "show")
"""Requests that everybody may make, with or without a daemon."""
_PAUSE_S: Final = 0.01
"""Between two looks at a request that has not ended yet."""
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP

_logger: Final = logging.getLogger("palaver.holder")


class House(Protocol):
    """What an agent's socket can ask of its holder."""

    def show(self, message_id: str) -> Awaitable[dict[str, object]]:
        """Give what is known of a message; raises NotFound."""
        ...

    def status(self) -> dict[str, object]:
        """Give how the agent is."""
        ...

    def attach(self, connection: socket.socket, request: AgentRequest) -> None:
        """Take a person's connection over. What it sent after its request is still to be read."""
        ...

    def hook(self, event_name: str, payload: Mapping[str, object]) -> None:
        """Take what a harness says of itself."""
        ...

    def stop(self) -> None:
        """End the agent politely."""
        ...


class AgentServer:
    """Serves callers until it is cancelled. One that says nothing costs a descriptor, and nobody waits."""

    def __init__(
        self,
        home: str,
        name: str,
        listener: socket.socket,
        house: House,
        *,
        request_limit_s: float = REQUEST_LIMIT_S,
    ) -> None:
        self._request_limit_s = request_limit_s
        self._home = home
        self._name = name
        self._listener = listener
        self._house = house
        self._room = asyncio.Semaphore(LIMIT_CALLERS)
        self._silent: dict[socket.socket, asyncio.Timeout] = {}

    async def run(self) -> None:
        """Take callers in."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as callers:
            while True:
                connection, _ = await self._accept(loop)
                if self._room.locked():
                    await asyncio.sleep(0)  # those who came just now have said nothing yet either
                    self._end_longest_silence()
                await self._room.acquire()
                callers.create_task(self._serve(connection))

    def _end_longest_silence(self) -> None:
        if (oldest := next(iter(self._silent), None)) is not None:
            self._silent.pop(oldest).reschedule(0)

    async def _accept(self, loop: asyncio.AbstractEventLoop) -> tuple[socket.socket, object]:
        while True:
            try:
                return await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptor left, or a caller that went at once
                _logger.warning("no caller taken: %s", error)
                await asyncio.sleep(0.1)

    async def _serve(self, connection: socket.socket) -> None:
        """Answer one caller, whatever it sends. Of this socket, here alone refusals are caught."""
        connection.setblocking(False)
        is_kept = False
        try:
            is_kept = await self._answer(connection)
        except PalaverError as error:
            await self._reply(connection, refusal(str(error)))
        except OSError:
            pass  # it has gone
        except Exception:  # one caller's trouble must not end the agent
            _logger.exception("a request at the socket of %s went wrong", self._name)
            await self._reply(
                connection, refusal("this went wrong in the holder; agents/holder.log says how")
            )
        finally:
            self._room.release()
            if not is_kept:
                connection.close()

    async def _answer(self, connection: socket.socket) -> bool:
        """Do what is asked; True when somebody else has the connection now."""
        line, size = await self._look_at_request(connection)
        request = request_from_json(line) if line else None
        if request is None or request.type not in _FOR_ALL:
            return size > 0 and await self._pass_on(connection)
        connection.recv(size)
        if request.type == "show":
            await self._reply(connection, _ok(message=await self._house.show(request.message_id)))
        else:
            await self._reply(connection, _ok(agent=self._house.status()))
        return False

    async def _pass_on(self, connection: socket.socket) -> bool:
        """Let the daemon read the request, and do what it allows. A message it sends by itself."""
        who = await ask_daemon(self._home, self._name, connection.fileno())
        if not who.is_ok:
            raise RequestError(who.error)
        if who.replied:
            return False
        request = request_from_json(bytes(who.request))
        match request.type:
            case "attach":
                _check(who, "attaching to an agent", ("human",), kind="human")
                self._house.attach(connection, request)
                return True
            case "hook_event":
                self._check_own(who)
                self._house.hook(request.event_name, _payload(request))
                await self._reply(connection, _ok())
            case "stop":
                _check(who, "stopping an agent", _OPERATORS)
                await self._reply(connection, _ok())
                self._house.stop()
        return False

    async def _look_at_request(self, connection: socket.socket) -> tuple[bytes, int]:
        """Return the request that waits, unread, and its size in bytes; raise BadRequest when it is late.

        A long request is not seen whole: then the line is empty, and the daemon reads it. Nothing at all has
        the size 0.
        """
        try:
            async with asyncio.timeout(self._request_limit_s) as limit:
                self._silent[connection] = limit
                await _readable(connection)
                while True:
                    data = connection.recv(_READ_BYTES, socket.MSG_PEEK)
                    reader = RequestReader()
                    if (found := reader.feed(data)) is not None:
                        return found[0], len(data) - len(found[1])
                    if not data or _has_hung_up(connection):
                        return reader.end(), len(data)
                    if len(data) == _READ_BYTES:
                        return b"", len(data)
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise BadRequest("no request came in time: send it at once, in one line") from None
        finally:
            self._silent.pop(connection, None)

    def _check_own(self, who: Verdict) -> None:
        if who.name != self._name:
            raise NotAllowed("a hook of this agent", f"{who.name} ({who.standing})", "the agent itself")

    async def _reply(self, connection: socket.socket, line: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(connection, line)
        except OSError:
            return  # it does not want to know


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    is_ready = asyncio.Event()
    loop.add_reader(connection, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(connection)


def _has_hung_up(connection: socket.socket) -> bool:
    """Whether nothing more can come."""
    poll = select.poll()
    poll.register(connection, _HUNG_UP)
    return bool(poll.poll(0))


def _check(who: Verdict, what: str, standings: tuple[str, ...], *, kind: str = "") -> None:
    if who.standing not in standings or (kind and who.kind != kind):
        raise NotAllowed(what, who.standing, "the human" if kind else "an operator")


def _payload(request: AgentRequest) -> Mapping[str, object]:
    try:
        payload = msgspec.json.decode(request.payload)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _ok(*, message: dict[str, object] | None = None, agent: dict[str, object] | None = None) -> bytes:
    return reply_to_json(Reply(is_ok=True, message=message, agent=agent))
