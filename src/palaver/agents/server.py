"""An agent's own socket: one request and one reply for each caller; who attaches, stays.

Who is asking is never what the caller says: `send` goes on to the daemon with the caller's descriptor, and
for what only some may do the daemon is asked whose process it is.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

import msgspec

from palaver.agents.adopt import Verdict, ask_daemon
from palaver.agents.request_wire import (
    AgentRequest,
    Reply,
    RequestReader,
    refusal,
    reply_to_json,
    request_from_json,
)
from palaver.errors import BadRequest, NotAllowed, PalaverError, RequestError

_READ_BYTES: Final = 65536
LIMIT_CALLERS: Final = 128
"""Callers that have not been served yet. One more takes the place of the one that has been silent longest."""
REQUEST_LIMIT_S: Final = 5.0
"""So long a caller may take to say what it wants."""
_OPERATORS: Final = ("human", "operator")

_logger: Final = logging.getLogger("palaver.holder")


class House(Protocol):
    """What an agent's socket can ask of its holder."""

    def show(self, message_id: str) -> Awaitable[dict[str, object]]:
        """Give what is known of a message; raises NotFound."""
        ...

    def status(self) -> dict[str, object]:
        """Give how the agent is."""
        ...

    def attach(self, connection: socket.socket, request: AgentRequest, rest: bytes) -> None:
        """Take a person's connection over, with what it sent behind its request."""
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
        line, rest = await self._read_request(connection)
        if not line:
            return False
        request = request_from_json(line)
        match request.type:
            case "send":
                await self._send(connection, line)
            case "attach":
                await self._check(connection, "attaching to an agent", ("human",), kind="human")
                self._house.attach(connection, request, rest)
                return True
            case "show":
                await self._reply(connection, _ok(message=await self._house.show(request.message_id)))
            case "status":
                await self._reply(connection, _ok(agent=self._house.status()))
            case "hook_event":
                await self._check_own(connection)
                self._house.hook(request.event_name, _payload(request))
                await self._reply(connection, _ok())
            case "stop":
                await self._check(connection, "stopping an agent", _OPERATORS)
                await self._reply(connection, _ok())
                self._house.stop()
        return False

    async def _read_request(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """Read up to the end of the request. Who takes too long, or must make room, is told so."""
        loop = asyncio.get_running_loop()
        reader = RequestReader()
        try:
            async with asyncio.timeout(self._request_limit_s) as limit:
                self._silent[connection] = limit
                while data := await loop.sock_recv(connection, _READ_BYTES):
                    if (found := reader.feed(data)) is not None:
                        return found
        except TimeoutError:
            raise BadRequest("no request came in time: send it at once, in one line") from None
        finally:
            self._silent.pop(connection, None)
        return reader.end(), b""

    # Who is asking

    async def _send(self, connection: socket.socket, line: bytes) -> None:
        """Pass the caller on: the daemon sees its process, decides and answers it."""
        verdict = await self._ask(connection, {"do": "send", "request": msgspec.Raw(line)})
        if not verdict.is_ok and not verdict.replied:
            await self._reply(connection, refusal(verdict.error))

    async def _check(
        self, connection: socket.socket, what: str, standings: tuple[str, ...], *, kind: str = ""
    ) -> None:
        who = await self._who(connection)
        if who.standing not in standings or (kind and who.kind != kind):
            raise NotAllowed(what, who.standing, "the human" if kind else "an operator")

    async def _check_own(self, connection: socket.socket) -> None:
        who = await self._who(connection)
        if who.name != self._name:
            raise NotAllowed("a hook of this agent", f"{who.name} ({who.standing})", "the agent itself")

    async def _who(self, connection: socket.socket) -> Verdict:
        verdict = await self._ask(connection, {"do": "who"})
        if not verdict.is_ok:
            raise RequestError(verdict.error)
        return verdict

    async def _ask(self, connection: socket.socket, request: dict[str, object]) -> Verdict:
        return await ask_daemon(self._home, connection.fileno(), {**request, "name": self._name})

    async def _reply(self, connection: socket.socket, line: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(connection, line)
        except OSError:
            return  # it does not want to know


def _payload(request: AgentRequest) -> Mapping[str, object]:
    try:
        payload = msgspec.json.decode(request.payload)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _ok(*, message: dict[str, object] | None = None, agent: dict[str, object] | None = None) -> bytes:
    return reply_to_json(Reply(is_ok=True, message=message, agent=agent))
