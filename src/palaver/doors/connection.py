"""One connection of a peer: the lines that wait to be written to it, its caller, and its names."""

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from palaver.broker.context import Joined
from palaver.errors import BadRequest, NotAllowed, RequestError, ShuttingDown, WhoAreYou
from palaver.protocol.agents import INSTANCE, Agent, Caller, Standing, caller_for, standing_of_role
from palaver.protocol.lines import JoinOp, LeaveOp, SubBeginOp, SubEndOp
from palaver.protocol.requests import Join, Leave
from palaver.protocol.text import check_text
from palaver.services.services import Services

# --------------------
# Calls that only wait, such as for the stick or for a job.

STOPS: Final = "the bus is stopping; connect again"
_Result = TypeVar("_Result")


class WaitingCalls:
    """The calls of one connection that only wait. They end with it, and when the daemon stops."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[Any]] = set()
        self._is_over = False

    async def run(self, call: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Wait for the result of a call. Raises ShuttingDown if it must be repeated at the next daemon."""
        if self._is_over:
            raise ShuttingDown(STOPS)
        asking = asyncio.current_task()
        assert asking is not None  # a coroutine runs in a task
        # A separate task, so that `end` can cancel the wait alone: its caller continues, and still replies.
        work = asyncio.ensure_future(call())
        self._waiting.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            # Only a wait that `end` has cancelled becomes an error for the peer. A caller that was cancelled
            # itself must not continue.
            if asking.cancelling() or not self._is_over:
                raise
            raise ShuttingDown(STOPS) from None
        finally:
            self._waiting.discard(work)
            work.cancel()

    def end(self) -> None:
        """Cancel the calls, and refuse new ones."""
        self._is_over = True
        for work in self._waiting:
            work.cancel()


# --------------------
# Lines waiting to be written to one peer. Bounded: a peer that never reads blocks no other.

_LIMIT_LINES: Final = 1024
_LIMIT_BYTES: Final = 4 * 1024 * 1024


class OutboxWriter(Protocol):
    """The part of an asyncio stream that an outbox needs."""

    def write(self, data: bytes, /) -> None:
        """Accept bytes to be written."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more. Raises ConnectionError if the peer has disconnected."""
        ...


class Outbox:
    """Lines to one peer, in order. When full it refuses new lines, and loses none that it accepted.

    The limit counts lines and bytes that are not written yet. A single line always fits, at any length:
    otherwise it could never be sent.
    """

    def __init__(self, *, limit_lines: int = _LIMIT_LINES, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._limit_lines = limit_lines
        self._limit_bytes = limit_bytes
        self._lines: deque[bytes] = deque()
        # Unlike `_lines`, these count the batch that `drain` is writing: it still uses memory.
        self._lines_held = 0
        self._bytes_held = 0
        self._is_closed = False
        self._is_ended = False
        self._something = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will be written."""
        return self._is_closed

    def offer(self, line: bytes) -> bool:
        """Add one line; return False if there is no room, or if the peer has disconnected.

        A refusal loses nothing: the log has the event, and the peer reads on from its cursor.
        """
        if self._is_closed or self._is_ended:
            return False
        is_full = self._lines_held >= self._limit_lines or self._bytes_held + len(line) > self._limit_bytes
        if self._lines_held and is_full:
            self._room.clear()
            return False
        self._lines.append(line)
        self._lines_held += 1
        self._bytes_held += len(line)
        self._something.set()
        self._empty.clear()
        return True

    async def wait_for_room(self) -> bool:
        """Wait after a refusal until half of the limit is free; return False if the peer has disconnected."""
        await self._room.wait()
        return not (self._is_closed or self._is_ended)

    async def wait_until_low(self) -> None:
        """Wait until at least half of the limit is free, or the peer has disconnected."""
        if not self._is_low and not self._is_closed and not self._is_ended:
            self._room.clear()
            await self._room.wait()

    async def wait_until_empty(self) -> bool:
        """Wait until all lines are written; return False if the peer has disconnected."""
        await self._empty.wait()
        return not (self._is_closed or self._is_ended)

    def end(self, last: bytes = b"") -> None:
        """Accept no more lines; accepted lines are still written, and then `drain` returns.

        `last` is written after them, also if there is no room for another line.
        """
        if last and not self._is_closed and not self._is_ended:
            self._lines.append(last)
            self._lines_held += 1
            self._bytes_held += len(last)
        self._is_ended = True
        self._something.set()
        self._room.set()
        self._empty.set()

    def close(self) -> None:
        """Drop lines that were not written, and let `drain` return. Closing twice is harmless."""
        self._is_closed = True
        self._lines.clear()
        self._lines_held = self._bytes_held = 0
        self._something.set()
        self._room.set()
        self._empty.set()

    async def drain(self, writer: OutboxWriter) -> None:
        """Write lines until the outbox is closed, or ended and empty, or the peer has disconnected.

        Run it in one task per outbox. All waiting lines go out in one write.
        """
        while not self._is_closed:
            await self._something.wait()
            batch = b"".join(self._lines)
            count = len(self._lines)
            self._lines.clear()
            if not count:
                if self._is_ended:
                    self.close()
                # No await since `_lines` was read: otherwise this could hide a line that came meanwhile.
                self._something.clear()
                continue
            try:
                writer.write(batch)
                await writer.drain()
            except ConnectionError:
                self.close()
            else:
                self._written(count, len(batch))

    def _written(self, count: int, size: int) -> None:
        if self._is_closed:  # `close` has set the counts to 0 already
            return
        self._lines_held -= count
        self._bytes_held -= size
        if self._is_low:
            self._room.set()
        if not self._lines_held:
            self._empty.set()

    @property
    def _is_low(self) -> bool:
        return self._lines_held <= self._limit_lines // 2 and self._bytes_held <= self._limit_bytes // 2


# --------------------
# One connection: its caller, the names opened on it, and its outbox. Reads and writes no bytes itself.


class Link:
    """A caller at a door, from connecting to closing. Belongs to the loop's thread."""

    def __init__(self, *, id: str, caller: Caller, outbox: Outbox) -> None:
        self.id = id
        self.caller = caller
        self.outbox = outbox
        self._names: dict[str, Standing] = {}
        self._ends = ExitStack()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True as soon as closing starts."""
        return self._is_closed

    @property
    def names(self) -> Mapping[str, Standing]:
        """The names opened on this link, in order of opening. They end with the link."""
        return MappingProxyType(self._names)

    def open_name(self, name: str, standing: Standing) -> None:
        """Open a child name on this link, with at most the link's own standing. Repeats are harmless."""
        if self._is_closed:
            raise BadRequest("the connection is closed")
        if standing > self.caller.standing:
            raise NotAllowed(f"opening {name}", self.caller.standing.word, standing.word)
        self._names[name] = standing

    def close_name(self, name: str) -> None:
        """Close a name; does nothing if it is not open here."""
        self._names.pop(name, None)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the link closes, last added first; at once if it has closed already."""
        if self._is_closed:
            callback()
        else:
            self._ends.callback(callback)

    def close(self) -> None:
        """Close the outbox and run the callbacks, once. A callback that fails does not stop the others."""
        if self._is_closed:
            return
        self._is_closed = True
        self.outbox.close()
        self._ends.close()


# --------------------
# The names of one connection: the caller of each request, the opened names, and the right to use them.

_LIMIT_REASON_BYTES: Final = 1024

IdentifyCaller = Callable[[], Caller]
"""Returns the current caller of the connection: the process itself, or the agent it belongs to."""


class Names:
    """The names opened on a link, and the caller for each request. All of them close with the link."""

    def __init__(self, services: Services, link: Link, look: IdentifyCaller) -> None:
        self._services = services
        self._link = link
        self._look = look
        self._callers: dict[str, Caller] = {}
        self._proofs: dict[str, str] = {}
        self._linked: set[str] = set()

    def caller(self, name: str) -> Caller:
        """Return the caller: an opened name, or the process itself. Without `name`, the only name opened.

        Raises WhoAreYou for a name that has left or that another process has taken over since. A connection
        that may speak for an agent may speak for its live sub-agents.
        """
        names = self._link.names
        if not name:
            if not names:
                return self._own()
            if len(names) > 1:
                raise WhoAreYou(
                    f"this connection opened several names ({', '.join(names)}): choose one with `name`"
                )
            name = next(iter(names))
        if name in names:
            return self._opened(name)
        own = self._own()
        if name == own.name:
            return own
        agent = self._services.broker.directory.get(name)
        if agent is not None and agent.parent and not agent.left:
            parent = self.caller(agent.parent)
            # Its standing is at most that of the caller that speaks for its parent.
            own = caller_for(agent, at_most=parent.standing)
            return replace(own, by=parent.by, is_orphan=parent.is_orphan)
        raise WhoAreYou(f"this connection has not opened the name {name}: join first")

    def _own(self) -> Caller:
        # Identified again for each request, because the process may have joined or left the bus since.
        self._link.caller = self._look()
        return self._link.caller

    def _opened(self, name: str) -> Caller:
        agent = self._services.broker.directory.get(name)
        if agent is None or agent.left or _proof_of(agent) != self._proofs[name]:
            raise WhoAreYou(f"{name} has left, or belongs to another caller now: join again")
        return self._callers[name]

    async def join(self, op: JoinOp) -> dict[str, object]:
        """Open a name, at most with the standing of the caller."""
        own = self._own()
        secret = op.secret or secrets.token_hex(16)
        # Only the hash, because every agent can read the event.
        session = hashlib.sha256(secret.encode()).hexdigest()
        request = Join(
            name=op.name,
            tag=op.tag,
            role=op.role,
            harness=op.harness,
            runtime=op.runtime,
            version=op.version,
            session=session,
            has_link=True,
            takes_over=True,
        )
        joined = await self._services.broker.submit(own, request)
        assert isinstance(joined, Joined)
        agent = joined.agent
        self.take(agent)
        # Once for each name, however often it joins here: `close` counts it down once.
        if agent.name not in self._linked:
            self._linked.add(agent.name)
            self._services.callers.presence.link_opened(agent.name)
        device = self._services.queries.device
        return {"name": agent.name, "secret": secret, "device": device, "role": agent.role}

    def take(self, agent: Agent, standing: Standing | None = None, by: str | None = None) -> None:
        """Speak for an agent from now on, by default at most with the standing of the caller."""
        if standing is None:
            standing = min(standing_of_role(agent.role), self._own().standing)
        self._link.open_name(agent.name, standing)
        self._callers[agent.name] = Caller(name=agent.name, standing=standing, kind=INSTANCE, by=by)
        self._proofs[agent.name] = _proof_of(agent)

    async def leave(self, op: LeaveOp) -> str:
        """Remove a name and return it."""
        caller = self.caller(op.name)
        await self._services.broker.submit(caller, Leave(reason=op.reason))
        self._link.close_name(caller.name)
        if caller.name in self._linked:
            self._linked.remove(caller.name)
            self._services.callers.presence.link_closed(caller.name)
        return caller.name

    async def begin_subagent(self, op: SubBeginOp) -> dict[str, object]:
        """Register a sub-agent of one of the names and return its name."""
        parent = self._parent(op.name)
        try:
            agent = await self._services.agents.subagents.begin(parent, op.key, op.type)
        except RequestError as error:
            raise BadRequest(f"no sub-agent of {parent} can begin: {error}") from error
        return {"name": agent.name}

    async def end_subagent(self, op: SubEndOp) -> str:
        """Record the end of a sub-agent and return its name; empty if there was no such sub-agent."""
        check_text(op.reason, "the reason", _LIMIT_REASON_BYTES)
        parent, subagents = self._parent(op.name), self._services.agents.subagents
        known = subagents.find(parent, op.key)  # before its end: an ended sub-agent is not found
        await subagents.ended(parent, op.key, op.reason)
        return "" if known is None else known.name

    def _parent(self, name: str) -> str:
        caller = self.caller(name)
        if caller.kind != INSTANCE:
            raise WhoAreYou("only an agent has sub-agents: join first")
        return caller.name

    def close(self) -> None:
        """Count one link less for each name of the closed connection."""
        for name in self._linked:
            self._services.callers.presence.link_closed(name)


def _proof_of(agent: Agent) -> str:
    """Return the hash of the secret that the agent was taken with; a connection with another has lost it."""
    return agent.holder or agent.session
