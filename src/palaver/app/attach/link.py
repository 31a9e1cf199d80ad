"""The two connections of an attached terminal: frames to and from the holder, and the status on the bus."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.wire import ReplyLine, Wire
from palaver.errors import BadRequest, Disconnected, NotFound, PalaverError
from palaver.holder.agent_socket import socket_path
from palaver.home import connect_socket
from palaver.protocol.agent_socket import (
    AgentRequest,
    Frame,
    ViewerFrameReader,
    control_to_bytes,
    data_frames,
    is_size,
    reply_from_json,
    request_to_json,
)
from palaver.protocol.lines import EventsOp, ListOp, NoticeOp, NoticeReply, Op, ViewOp, op_to_json
from palaver.protocol.views import Changes, Snapshot
from palaver.terminal.viewers import read_ready, send_ready

# --------------------
# The connection to an agent's holder after `attach`: frames in both directions, without blocking.

_READ_BYTES: Final = 16 * 1024
"""Read at once: a few milliseconds of drawing, and then a key is handled."""
_REPLY_LIMIT_S: Final = 10.0
LIMIT_UNSENT_BYTES: Final = 64 * 1024
"""Unsent bytes above which `is_full` is true: the holder does not read them."""


@dataclass(frozen=True, slots=True)
class AttachedWire:
    """A new connection to the terminal of an agent."""

    name: str
    wire: socket.socket
    size: tuple[int, int] | None
    """The columns and rows of the terminal; None if the holder did not send them."""
    rest: bytes
    """The data after the reply."""


def _size_of(agent: Mapping[str, object]) -> tuple[int, int] | None:
    cols, rows = agent.get("cols"), agent.get("rows")
    if isinstance(cols, int) and isinstance(rows, int) and is_size(cols, rows):
        return cols, rows
    return None


def call(home: str, name: str, cols: int, rows: int, *, is_drawn: bool) -> AttachedWire:
    """Attach to the terminal of an agent.

    `is_drawn`: the screen is drawn here, so the holder replies to queries of the program to its terminal.
    Raises NotFound or BadRequest if there is no such terminal, or the caller may not use it. Blocks.
    """
    try:
        wire = connect_socket(socket_path(home, name))
    except OSError as error:
        raise NotFound(f"terminal of {name}", "'pal list' shows the agents") from error
    try:
        wire.settimeout(_REPLY_LIMIT_S)
        request = request_to_json(AgentRequest(type="attach", cols=cols, rows=rows))
        # In one write: a query that the program makes in between would get no reply.
        wire.sendall(request + (control_to_bytes({"type": "screen", "on": True}) if is_drawn else b""))
        received = b""
        while b"\n" not in received:
            piece = wire.recv(_READ_BYTES)
            if not piece:
                raise BadRequest("the holder of the terminal has exited")
            received += piece
        # The first frames of the terminal may follow in the same block of data.
        line, _, rest = received.partition(b"\n")
        reply = reply_from_json(line)
        if not reply.is_ok:
            raise BadRequest(reply.error)
    except OSError as error:
        wire.close()
        raise BadRequest(f"the holder of {name} does not respond: {error}") from error
    # Also after Ctrl-C: the caller has no socket that it could close.
    except BaseException:
        wire.close()
        raise
    return AttachedWire(name, wire, _size_of(reply.agent or {}), rest)


def send_line(home: str, name: str, text: str, priority: str) -> int:
    """Send a line to the agent as a message of this process, typed without a header; return its seq.

    Raises BadRequest with the holder's reason. Blocks until the reply, so call it in a thread.
    """
    request = {"type": "send", "body": text, "priority": priority, "bare": True}
    try:
        with connect_socket(socket_path(home, name)) as wire, wire.makefile("rb") as lines:
            wire.settimeout(_REPLY_LIMIT_S)
            wire.sendall(msgspec.json.encode(request) + b"\n")
            reply = reply_from_json(lines.readline())
    except OSError as error:
        raise BadRequest(f"the holder of the terminal does not respond: {error}") from error
    if not reply.is_ok:
        raise BadRequest(reply.error)
    return reply.seq


class HolderLink:
    """One attached connection."""

    def __init__(
        self,
        wire: socket.socket,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[], None],
        on_sent: Callable[[], None],
    ) -> None:
        """`on_sent` is called whenever `is_full` may have changed."""
        self._on_sent = on_sent
        self._wire = wire
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = ViewerFrameReader()
        self._unsent = bytearray()
        self._loop = asyncio.get_running_loop()
        wire.setblocking(False)

    @property
    def is_full(self) -> bool:
        """Whether too many bytes are unsent to read more keys."""
        return len(self._unsent) > LIMIT_UNSENT_BYTES

    def start(self, rest: bytes) -> None:
        """Start with the data after the reply."""
        self._loop.add_reader(self._wire, self._read)
        self._read_frames(rest)

    def close(self) -> None:
        """Close the connection: the holder notices it, the agent does not."""
        self._loop.remove_reader(self._wire)
        self._loop.remove_writer(self._wire)
        self._wire.close()

    def press(self, keys: bytes) -> None:
        """Send keys to the agent."""
        self._send(data_frames(keys))

    def control(self, kind: str, **fields: object) -> None:
        """Send a control frame."""
        self._send(control_to_bytes({"type": kind, **fields}))

    def _send(self, frames: bytes) -> None:
        self._unsent += frames
        self._flush()

    def _flush(self) -> None:
        if send_ready(self._wire, self._unsent):
            self._loop.remove_writer(self._wire)
        else:
            self._loop.add_writer(self._wire, self._flush)
        self._on_sent()

    def _read(self) -> None:
        data = read_ready(self._wire, _READ_BYTES)
        if data:
            self._read_frames(data)
        elif data is not None:  # No bytes: the holder closed. None: there is nothing to read yet.
            self._on_lost()

    def _read_frames(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except PalaverError:  # Later frames cannot be read either.
            self._on_lost()


# --------------------
# The agent's status on the bus, for the status line, and whether the bus can be reached.
#
# The agent's page is its entry in the result of `list`. It is requested again only after an event about the
# agent's messages.

_RECONNECT_S: Final = 0.5
"""Seconds before the next try to reach the bus."""
_BURST_S: Final = 0.05
"""Seconds to wait for more events before the next request: a burst causes one request."""
_PULSE_S: Final = 2.0
"""Seconds without an event after which a small request checks that the bus still replies."""
_SILENCE_S: Final = 3.0
"""Seconds without a reply after which the bus counts as away: its process may hang."""
_FOLLOWED_TYPES: Final = ("message", "delivery", "agent.paused", "agent.unpaused")
_PULSE: Final = EventsOp(last=1, limit=1)
"""A request whose cost does not depend on the length of the log."""


class ShownGate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether messages can pass on one lane of an agent, and why not."""

    lane: str
    open: bool = False
    reason: str | None = None


class AttachedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The shown fields of an agent's page: its role and folder, its waiting messages, and its gates."""

    role: str = ""
    cwd: str | None = None
    queue: dict[str, int] = {}
    paused: bool = False
    gates: tuple[ShownGate, ...] = ()


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent in the list of all agents."""

    name: str
    state: str
    detail: str | None = None
    unread: int = 0
    present: bool = False
    left: bool = False


class _FoundPage(msgspec.Struct, frozen=True):
    agents: list[AttachedPage]


class _FoundAgents(msgspec.Struct, frozen=True):
    agents: list[ListedAgent]


class _FoundEvents(msgspec.Struct, frozen=True):
    """The result of a request for events. `last` is the seq of the last one."""

    last: int


_decode_page: Final = msgspec.json.Decoder(_FoundPage).decode
_decode_agents: Final = msgspec.json.Decoder(_FoundAgents).decode
_decode_events: Final = msgspec.json.Decoder(_FoundEvents).decode
_decode_snapshot: Final = msgspec.json.Decoder(Snapshot).decode
_decode_changes: Final = msgspec.json.Decoder(Changes).decode
_decode_notice: Final = msgspec.json.Decoder(NoticeReply).decode

Tell = Callable[[AttachedPage | None], None]
"""Called with the current page; None if the bus does not respond."""


TakeRecord = Callable[[Snapshot | Changes], None]
"""Called with each record of the whole bus, in order."""


class BusWatch:
    """Follows the bus for one attached terminal: the page of its agent, and the records of a view."""

    def __init__(self, home: str, name: str, tell: Tell, take_record: TakeRecord) -> None:
        self._home = home
        self._name = name
        self._tell = tell
        self._take_record = take_record
        self._ask: Callable[[Op], Awaitable[msgspec.Raw | None]] | None = None
        """Sends a request on the current connection; None without one."""

    async def run(self) -> None:
        """Report changes until cancelled. It starts no bus: the agent's holder does."""
        while True:
            wire = await _open(self._home, watcher := _Watcher(self._take_record))
            if wire is not None:
                # Without a limit, because the daemon may delay this reply to join several notices.
                self._ask = partial(watcher.ask, wire, limit_s=None)
                try:
                    await watcher.run(wire, self._name, self._tell)
                except msgspec.DecodeError:  # The daemon has another version, with another format.
                    pass
                finally:
                    self._ask = None
                    wire.close()
            self._tell(None)
            await asyncio.sleep(_RECONNECT_S)

    async def notice(self, key: str, *, is_in_view: bool) -> NoticeReply:
        """Ask the bus whether to tell the person of something here. Raises Disconnected."""
        reply = None if self._ask is None else await self._ask(NoticeOp(key=key, is_in_view=is_in_view))
        if reply is None:
            raise Disconnected("the bus is not reachable; run 'pal status'")
        return _decode_notice(reply)


async def list_others(home: str, name: str) -> list[ListedAgent] | None:
    """Return the other agents that have not left; None if the bus does not reply."""
    wire = await _open(home, watcher := _Watcher())
    if wire is None:
        return None
    try:
        listed = await watcher.ask(wire, ListOp())
        found = [] if listed is None else _decode_agents(listed).agents
    # The daemon has another version, with another format.
    except msgspec.DecodeError:
        listed = None
    finally:
        wire.close()
    return None if listed is None else [one for one in found if one.name != name and not one.left]


def has_terminal(home: str, name: str) -> bool:
    """Return whether an agent has a terminal that can be attached to."""
    return socket_path(home, name).exists()


async def _open(home: str, watcher: "_Watcher") -> Wire | None:
    try:
        # Without waiting: a blocking connect would delay keys and drawing.
        plain = connect_socket(Path(home) / "daemon.sock", can_wait=False)
    except OSError:
        return None
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(lambda: Wire(watcher.on_line, watcher.on_lost), sock=plain)
    return wire


class _Watcher:
    """One connection to the bus: it asks, or follows one agent."""

    def __init__(self, take_record: TakeRecord = lambda record: None) -> None:
        self._take_record = take_record
        self._view_number = 0
        """The number of the request that has opened the view."""
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[msgspec.Raw]] = {}
        """The requests without a reply, by number."""
        self._has_news = asyncio.Event()
        self._is_lost = False

    async def run(self, wire: Wire, name: str, tell: Tell) -> None:
        """Request the page after each event; return if the connection is lost or the bus does not reply."""
        newest = await self.ask(wire, _PULSE)  # Where the log ends: follow from there.
        if newest is None:
            return
        after = _decode_events(newest).last
        await self.ask(wire, EventsOp(types=_FOLLOWED_TYPES, agents=(name,), after=after, follow=True))
        await self.ask(wire, ViewOp())  # An older daemon refuses it, and there are no records then.
        while True:
            self._has_news.clear()  # Before the request: an event during it causes another request.
            listed = await self.ask(wire, ListOp(agent=name))
            if listed is None:
                return
            pages = _decode_page(listed).agents
            tell(pages[0] if len(pages) == 1 else AttachedPage())
            while not await self._hears():
                if await self.ask(wire, _PULSE) is None:
                    return
            await asyncio.sleep(_BURST_S)

    async def _hears(self) -> bool:
        """Wait for an event, for at most `_PULSE_S` seconds; return whether there was one."""
        try:
            async with asyncio.timeout(_PULSE_S):
                return await self._has_news.wait()
        except TimeoutError:
            return False

    async def ask(self, wire: Wire, request: Op, *, limit_s: float | None = _SILENCE_S) -> msgspec.Raw | None:
        """Return the result of a request; None if it was refused, got no reply or the connection is lost."""
        if self._is_lost:
            return None
        number = next(self._numbers)
        if isinstance(request, ViewOp):
            self._view_number = number
        reply: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._open[number] = reply
        wire.write(op_to_json(number, request))
        try:
            async with asyncio.timeout(limit_s):
                return await reply
        except (ConnectionError, TimeoutError):
            return None

    def on_line(self, line: ReplyLine) -> None:
        """Handle a line of the bus: an event, a record of the view, or the reply to a request."""
        if line.push == "view":
            is_snapshot = bytes(line.changes) == b"null"
            self._take(line.snapshot if is_snapshot else line.changes, is_snapshot=is_snapshot)
            return
        if line.push:
            self._has_news.set()
            return
        if line.req == self._view_number and not line.error:
            # Here and not in `run`: changes may follow in the same block of data.
            self._take(line.ok, is_snapshot=True)
        reply = self._open.pop(line.req, None)
        if reply is None or reply.done():  # A cancelled request is done.
            return
        if line.error:
            reply.set_exception(ConnectionError(line.error))
        else:
            reply.set_result(line.ok)

    def _take(self, raw: msgspec.Raw, *, is_snapshot: bool) -> None:
        with suppress(msgspec.DecodeError):  # The daemon has another version, with another format.
            self._take_record(_decode_snapshot(raw) if is_snapshot else _decode_changes(raw))

    def on_lost(self, wire: Wire) -> None:
        """Handle the end of the connection."""
        self._is_lost = True
        # Ends a wait for events. The next request then sees that the connection is lost.
        self._has_news.set()
        for reply in self._open.values():
            if not reply.done():
                reply.set_exception(ConnectionError("the connection to the bus was lost"))
