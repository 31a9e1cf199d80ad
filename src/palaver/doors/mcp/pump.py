"""One `pal mcp`: passes its lines to the SDK's server and the replies back. Each line is settled once.

Bad input gets a JSON-RPC error and the connection continues. A client that does not read its replies, has too
many open requests, or writes faster than its lines are read, is not read from in the meantime.
"""

import asyncio
import gc
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec

from palaver.doors import tools as calls
from palaver.doors.cli.run import TABLE
from palaver.doors.cli.spec import parse
from palaver.doors.tools import WAITING, Tool, ToolWait, choose_tools
from palaver.errors import (
    AlreadyJoined,
    BadRequest,
    NotFound,
    PalaverError,
    Unavailable,
    UsageError,
    WhoAreYou,
    cut_name,
)
from palaver.harness.hooks import call_in_meta, session_in_arguments, session_in_meta
from palaver.identity.caller import CallerClaim, CallerIdentifier, act_as, marks_of, who_joins
from palaver.identity.process import Peer, Process, read_home
from palaver.protocol import thin as wire
from palaver.protocol.agents import Caller
from palaver.protocol.message import EXTERNAL
from palaver.protocol.requests import Join
from palaver.protocol.thin import FrameReader, ThinRequest, asked_from_bytes, frame
from palaver.services.services import Services
from palaver.services.views import free_session

if TYPE_CHECKING:
    from mcp_types import CallToolRequestParams

    from palaver.doors.mcp.server import Context, McpSession

# --------------------
# Import the MCP SDK at its first use, in a thread, because that takes most of a second.
#
# Meanwhile the interpreter switches threads more often, so that the event loop stays responsive.

_Loaded = TypeVar("_Loaded")
_SWITCH_S: Final = 0.0005
# Read once: a call that overlaps with another one would read the short interval, and keep it at its end.
_USUAL_SWITCH_S: Final = sys.getswitchinterval()


class Loader:
    """Imports of slow modules, one at a time, outside of the event loop. Use it only on the loop's thread."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def session_class(self) -> "type[McpSession]":
        """Return the class that serves one connection."""
        return await self.load(_import_session)

    async def load(self, load: Callable[[], _Loaded]) -> _Loaded:
        """Return the result of a function that imports slow modules."""
        async with self._lock:
            return await asyncio.to_thread(quietly, load)


def quietly(load: Callable[[], _Loaded]) -> _Loaded:
    """Import with frequent thread switches and without garbage collection, so that the loop keeps running.

    New modules are left out of later collections: they live as long as the process.
    """
    known = len(sys.modules)
    was_collecting = gc.isenabled()
    sys.setswitchinterval(_SWITCH_S)
    gc.disable()
    try:
        return load()
    finally:
        sys.setswitchinterval(_USUAL_SWITCH_S)
        # Not after each call: freezing also keeps garbage in cycles that is not collected yet.
        if len(sys.modules) != known:
            gc.freeze()
        if was_collecting:
            gc.enable()


def _import_session() -> "type[McpSession]":
    from palaver.doors.mcp.server import McpSession

    return McpSession


# --------------------
# The state of a pump for the next daemon: the handshake, and the waits of its calls. Pure.
#
# The client keeps it as one object: the handshake's fields, and the waits under a separate key.

_WAITS: Final = "palaver/waits"


class PumpToken:
    """The state of one pump. Lines are identified by the numbers that the client gave them."""

    def __init__(self, content: bytes | None = None) -> None:
        """Start with the client's state from an earlier daemon. Unreadable content is ignored."""
        found = _read(content or b"")
        self._waits = _read_waits(found.pop(_WAITS, {}))
        self.handshake: dict[str, object] | None = found or None

    def to_bytes(self) -> bytes:
        """Encode the state for the client to keep."""
        waits = {_WAITS: {str(number): wait for number, wait in self._waits.items()}} if self._waits else {}
        return msgspec.json.encode({**(self.handshake or {}), **waits})

    def wait(self, number: int) -> ToolWait | None:
        """Return the wait of the call on a line; None if it does not wait, or not yet."""
        return self._waits.get(number)

    def begin(self, number: int, wait: ToolWait) -> None:
        """Record that the call on a line waits."""
        self._waits[number] = wait

    def settle(self, number: int) -> None:
        """Forget a settled line."""
        self._waits.pop(number, None)


def _read(content: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _read_waits(content: object) -> dict[int, ToolWait]:
    try:
        return msgspec.convert(content, dict[int, ToolWait], strict=False)
    except msgspec.ValidationError:
        return {}


# --------------------
# Find the caller of a tool call through a pump: the same seat as for a command in that session.
#
# A shared server process serves several sessions; each call names its session in `_meta`. A session without
# an agent that joins a room joins the bus first, as with `pal join`. Before that it cannot send, because no
# agent could reply to it.

_JOINS: Final = "join_path"
_WRITES: Final = "send"


class PumpCaller:
    """The search for the caller of one pump, repeated for every call: an agent may have joined since."""

    def __init__(
        self, services: Services, identifier: CallerIdentifier, peer: Peer, asked: ThinRequest, as_name: str
    ) -> None:
        self._services = services
        self._identifier = identifier
        self._peer = peer
        self._marks = marks_of(asked.environment)
        self._as_name = as_name
        self.home = read_home(peer.pid)

    def session(self, meta: Mapping[str, object] | None) -> str:
        """Return the key of the session or sub-agent that makes a call; empty if none is named."""
        return session_in_meta(meta) or self._services.agents.subagents.caller_of(call_in_meta(meta))

    async def who(self, tool: Tool, session: str, key: bytes) -> Caller:
        """Return the caller of a tool. `session` is the one that `_meta` names; `key` is the request key."""
        caller = self._look(session)
        if self._as_name:
            return caller
        is_other = bool(session) and caller.seat is not None and caller.seat.key not in ("", session)
        if tool.name == _JOINS and (is_other or caller.kind == EXTERNAL):
            return await self._join_session(caller, session, key)
        if is_other:
            raise WhoAreYou(
                f"this session has not joined, and cannot act as {caller.name}: call join_path first"
            )
        if tool.name == _WRITES and session and caller.kind == EXTERNAL:
            raise WhoAreYou(
                "this session has no name on the bus, so it could get no answer: call join_path first. "
                "Nothing was sent"
            )
        return caller

    def _look(self, session: str) -> Caller:
        chain = self._chain(is_whole=False)
        claim = CallerClaim(marks=self._marks, key=session)
        if self._identifier.is_forged(chain, claim):
            raise WhoAreYou("this server belongs to the session that started it; this call names another one")
        caller = self._identifier.who(chain, claim)
        if not self._as_name or self._as_name.removeprefix("@").lower() == caller.name:
            return caller
        target = self._services.broker.directory.find(self._as_name)
        if target is None:
            raise NotFound(f"agent {cut_name(self._as_name)}", "--as takes the full name of an agent")
        return act_as(caller, target)

    async def _join_session(self, caller: Caller, session: str, key: bytes) -> Caller:
        claim = CallerClaim(marks=self._marks, key=session)
        try:
            anchor = self._identifier.anchor_of(self._chain(is_whole=True), claim)
        except AlreadyJoined:
            return self._look(session)
        own = free_session(self._services, anchor.harness, anchor.session)
        request = Join(harness=anchor.harness, seat=anchor.seat, session=own)
        # `key` belongs to the request of the tool itself, which is submitted next.
        own_key = hashlib.sha256(key + b"join").digest()[:16]
        with suppress(AlreadyJoined):  # Another call of this session, or a hook, has joined meanwhile.
            await self._services.broker.submit(who_joins(caller), request, key=own_key)
        return self._look(session)

    def _chain(self, *, is_whole: bool) -> tuple[Process, ...]:
        chain = tuple(self._peer.chain(None if is_whole else self._services.callers.seats.is_anchor))
        # With pid 0 the process was never visible: it is no error, and the caller counts as a script.
        if not chain and self._peer.pid:
            raise WhoAreYou("the calling process has ended")
        return chain


# --------------------
# The connection of one pump: its lines in, the replies out, and the open requests.

_MCP: Final = ("mcp",)
_LIMIT_OPEN: Final = 256
"""Requests without a reply, and lines that are not taken yet: from there on the client is not read from."""
_LIMIT_WAITING: Final = 128
"""Calls that may wait at the same time. The other open requests end soon, so a line that cancels a wait is
always read."""
_TOO_MANY_WAIT: Final = (
    f"{_LIMIT_WAITING} calls of this session wait already: cancel one, or try again after one has ended"
)
_LIMIT_UNWRITTEN_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Open:
    """A request without a reply yet, with the number that the client gave its line."""

    id: wire.RequestId
    number: int
    is_waiting: bool
    handshake: dict[str, object] | None
    """The parameters of the handshake, if this is one; the next daemon needs them."""


@dataclass(frozen=True, slots=True)
class PumpDoor:
    """The parts that every pump uses."""

    services: Services
    identifier: CallerIdentifier
    tasks: asyncio.TaskGroup
    loader: Loader


class PumpConnection(asyncio.Protocol):
    """A connection that carries one MCP session."""

    def __init__(self, peer: Peer, door: PumpDoor, ended: Callable[["PumpConnection"], None]) -> None:
        """`ended` is called when the connection is closed."""
        self._peer = peer
        self._door = door
        self._ended = ended
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._asked: ThinRequest | None = None
        self._asking: PumpCaller | None = None
        self._offered: tuple[Tool, ...] = ()
        self._session: McpSession | None = None
        self._token = PumpToken()
        self._early: deque[tuple[int, bytes]] = deque()
        self._open: dict[wire.RequestId, _Open] = {}
        self._can_write = True
        self._is_last = False
        self._is_parting = False
        self._is_lost = False

    def attach(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Take over a transport, with the bytes that were read after the magic string."""
        self._transport = transport
        # Far above the needs of one client: it reads and writes in turns, and must not block on both.
        transport.set_write_buffer_limits(high=_LIMIT_UNWRITTEN_BYTES)
        if rest:
            self.data_received(rest)

    # Frames of the client

    def data_received(self, data: bytes) -> None:
        try:
            for kind, payload in self._reader.feed(data):
                self._on_frame(kind, payload)
        except UsageError as error:
            self._exit(2, error)
        except PalaverError as error:
            self._exit(1, error)
        self._read_or_not()

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if self._asked is None:
            if kind != b"R":
                raise BadRequest(f"unexpected frame {kind!r}")
            self._begin(asked_from_bytes(payload))
        elif kind in (b"L", b"M", b"X"):
            number, content = wire.numbered(payload)
            if kind == b"X":
                self._settle(number, wire.TOO_LONG.answer(wire.id_of_ends(content)))
            elif len(content) > wire.LIMIT_LINE_BYTES:  # a client that is not ours
                self._settle(number, wire.TOO_LONG.answer(wire.id_of_ends(wire.ends_of(content))))
            elif not self._is_parting:  # the client passes it to the next daemon
                self._early.append((number, content))
                self._take_early()
        elif kind == b"Z":
            self._is_last = True
            self._end_if_done()
        elif kind == b"S":
            self._close()
        else:
            raise BadRequest(f"unexpected frame {kind!r}")

    def _begin(self, asked: ThinRequest) -> None:
        parsed = parse(TABLE, asked.argv)
        if parsed.command.path != _MCP or parsed.is_help:
            raise BadRequest("only 'pal mcp' speaks this protocol; send other commands as PAL1")
        self._offered = choose_tools(parsed.value("--tools"))
        self._asked = asked
        self._token = PumpToken(asked.resume)
        services, identifier = self._door.services, self._door.identifier
        self._asking = PumpCaller(services, identifier, self._peer, asked, parsed.as_name or "")
        self._send(wire.line_frame(0))  # a client that receives nothing assumes that the daemon hangs
        self._door.tasks.create_task(self._load())

    async def _load(self) -> None:
        """Import the SDK if that is not done yet. Lines wait in the meantime."""
        try:
            session_class = await self._door.loader.session_class()
        except ImportError as error:
            self._exit(1, Unavailable(f"the tools cannot be loaded: {error}"))
            raise  # The task group logs it, with the traceback.
        # The client left during the import: its connection has ended, so nothing would close a session.
        if self._is_lost:
            return
        services = self._door.services
        self._session = session_class(
            services.daemon.version,
            self._offered,
            self._call,
            self._answer,
            self._door.tasks,
            on_room=self._on_room,
        )
        if self._token.handshake is not None:
            self._session.restore(self._token.handshake)
        self._take_early()
        self._end_if_done()

    # Requests

    def _take_early(self) -> None:
        session = self._session
        while session is not None and session.has_room and self._early and not self._is_parting:
            self._take(session, *self._early.popleft())

    def _on_room(self) -> None:
        if self._early and not self._is_lost:
            self._take_early()
            self._end_if_done()
            self._read_or_not()

    def _take(self, session: "McpSession", number: int, content: bytes) -> None:
        message = session.read(content)
        if isinstance(message, wire.BadLine):
            self._settle(number, message.answer(wire.id_of(content)))
            return
        method, params = getattr(message, "method", ""), getattr(message, "params", None) or {}
        id = cast("wire.RequestId | None", getattr(message, "id", None))
        if method and id is not None:
            # Replies and cancellations find a request by its key, so two with one key could be mixed up.
            if (key := session.key_of(id)) in self._open:
                self._settle(number, wire.IN_USE.answer(id))
                return
            name = params.get("name")
            # The SDK checks the parameters only later, and a list or an object cannot be looked up in a set.
            is_waiting = method == "tools/call" and isinstance(name, str) and name in WAITING
            if is_waiting and sum(one.is_waiting for one in self._open.values()) >= _LIMIT_WAITING:
                self._settle(number, wire.BadLine(wire.STOPPED, _TOO_MANY_WAIT).answer(id))
                return
            self._open[key] = _Open(id, number, is_waiting, params if method == "initialize" else None)
        else:
            self._settle(number)  # it has no reply that could settle it later
            if method == "notifications/cancelled":
                self._settle_cancelled(session, params.get("requestId"))
        session.take(message)

    def _settle_cancelled(self, session: "McpSession", id: object) -> None:
        """Settle a cancelled request without a reply. Some clients send its numeric id as a string."""
        # As the SDK does, which does not take true for 1.
        if isinstance(id, str | int) and not isinstance(id, bool):
            known = self._open.pop(session.key_of(id), None)
            if known is not None:
                self._settle(known.number)

    async def _call(self, context: "Context", params: "CallToolRequestParams") -> calls.ToolResult:
        """Run one tool call for its caller."""
        asked, asking = self._asked, self._asking
        assert asked is not None
        assert asking is not None
        session, id = self._session, context.request_id
        assert session is not None  # it is the one that calls
        known = self._open.get(session.key_of(id)) if id is not None else None
        # The client numbers its lines from 1, so 0 is a call that was cancelled before it started.
        number = known.number if known is not None else 0
        # The client repeats its key and the number at the next daemon, so a repeated call is done once.
        key = wire.call_key(asked.key, number)
        named, arguments = session_in_arguments(params.arguments)
        session_key = asking.session(cast("dict[str, object] | None", context.meta)) or named
        if params.name == calls.HOOK:
            session_key = session_key or str((arguments or {}).get("session_id") or "")
        return await calls.call_tool(
            self._door.services,
            self._offered,
            calls.ToolRequest(
                tool=params.name,
                arguments=arguments,
                who=lambda tool: asking.who(tool, session_key, key),
                cwd=asked.cwd,
                home=asking.home,
                key=key,
                waited=self._token.wait(number),
                on_wait=lambda wait: self._keep_wait(number, wait),
            ),
        )

    def _keep_wait(self, number: int, wait: ToolWait) -> None:
        """Send the client the state of a wait, so that the next daemon can continue it."""
        if number:
            self._token.begin(number, wait)
            self._send(frame(b"T", self._token.to_bytes()))

    # Replies

    def _answer(self, line: bytes, id: wire.RequestId | None) -> None:
        """Write a line. A reply settles its request; a reply to no open request is dropped."""
        if id is None:
            self._send(wire.line_frame(0, line))
            return
        assert self._session is not None  # it is the one that replies
        known = self._open.pop(self._session.key_of(id), None)
        if known is None:
            return
        if known.handshake is not None:
            self._token.handshake = known.handshake
            self._send(frame(b"T", self._token.to_bytes()))
        self._settle(known.number, line)
        self._end_if_done()
        self._read_or_not()

    def _settle(self, number: int, line: bytes = b"") -> None:
        """Write a line, if there is one, and tell the client that the line with this number is settled."""
        self._token.settle(number)
        self._send(wire.line_frame(number, line))

    def _read_or_not(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._can_write and len(self._open) + len(self._early) < _LIMIT_OPEN:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._can_write = False
        self._read_or_not()

    def resume_writing(self) -> None:
        self._can_write = True
        self._read_or_not()

    # The end

    def part(self, closing_text: str | None) -> None:
        """End waiting calls now and the others when they are done, because the daemon stops.

        With a `closing_text` a waiting call gets it as an error; without it the client repeats it at the next
        daemon.
        """
        self._is_parting = True
        for key, known in list(self._open.items()):
            if known.is_waiting:
                # No longer open, so that a late reply is dropped: the next daemon gets the line.
                del self._open[key]
                if closing_text is not None:
                    self._settle(known.number, wire.error_line(known.id, wire.STOPPED, closing_text))
        self._end_if_done()

    def _end_if_done(self) -> None:
        """Close when no request is running. After the client's last line, waiting calls are not awaited."""
        if self._is_parting and not self._open:
            self._close()
        elif self._is_last and not self._early and all(known.is_waiting for known in self._open.values()):
            self._exit(0)

    def abort(self) -> None:
        """Close the connection at once and drop unsent output."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        # Before the session is closed: its calls reply as they end, and such a reply is dropped.
        self._open.clear()
        self._early.clear()
        if self._session is not None:
            self._session.close()
        self._peer.close()
        self._ended(self)

    def _exit(self, status: int, error: PalaverError | None = None) -> None:
        if error is not None:
            self._send(frame(b"E", f"pal: {error}\n".encode("utf-8", "backslashreplace")))
        self._send(frame(b"Q", bytes([status])))
        self._close()

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
