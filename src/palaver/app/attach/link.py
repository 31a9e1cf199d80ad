"""The two connections of an attached terminal: frames to and from the holder, and the status on the bus."""

import asyncio
import socket
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from palaver.client.wire import ReplyLine, Wire
from palaver.errors import BadRequest, NotFound, PalaverError
from palaver.holder.agent_socket import socket_path
from palaver.home import connect_socket
from palaver.protocol.agent_socket import (
    AgentRequest,
    Frame,
    SocketReply,
    ViewerFrameReader,
    control_to_bytes,
    data_frames,
    reply_from_json,
    request_to_json,
)
from palaver.protocol.lines import EventsOp, ListOp, Op, op_to_json
from palaver.terminal.viewers import read_ready, send_ready

# --------------------
# The connection to an agent's holder after `attach`: frames in both directions, without blocking.

_READ_BYTES: Final = 16 * 1024
"""Read at once: a few milliseconds of drawing, and then a key is handled."""
_REPLY_LIMIT_S: Final = 10.0
LIMIT_UNSENT_BYTES: Final = 64 * 1024
"""Unsent bytes above which `is_full` is true: the holder does not read them."""


def call(
    home: str, name: str, cols: int, rows: int, *, is_drawn: bool
) -> tuple[socket.socket, SocketReply, bytes]:
    """Attach to the terminal of an agent; return the connection, the reply and the data after it.

    `is_drawn`: the screen is drawn here, so the holder replies to queries of the program to its terminal.
    Raises NotFound or BadRequest if there is no such terminal, or the caller may not use it. Blocks.
    """
    try:
        wire = connect_socket(socket_path(home, name))
    except OSError as error:
        raise NotFound(f"terminal of {name}", "'pal list' shows the agents") from error
    try:
        request = request_to_json(AgentRequest(type="attach", cols=cols, rows=rows))
        wire.sendall(request + (control_to_bytes({"type": "screen", "on": True}) if is_drawn else b""))
        received = b""
        while b"\n" not in received:
            piece = wire.recv(_READ_BYTES)
            if not piece:
                raise BadRequest("the holder of the terminal has exited")
            received += piece
        line, _, rest = received.partition(b"\n")
        reply = reply_from_json(line)
        if not reply.is_ok:
            raise BadRequest(reply.error)
    except BaseException:
        wire.close()
        raise
    return wire, reply, rest


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
        self, wire: socket.socket, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]
    ) -> None:
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
_FOLLOWED_TYPES: Final = ("message", "delivery", "agent.paused", "agent.unpaused")


class AgentPage(msgspec.Struct, frozen=True, kw_only=True):
    """The shown fields of an agent's page: its waiting messages by priority, and whether it is paused."""

    queue: dict[str, int] = {}
    paused: bool = False


class _ListedAgents(msgspec.Struct, frozen=True):
    agents: list[AgentPage]


class _FoundEvents(msgspec.Struct, frozen=True):
    """The result of a request for events. `last` is the seq of the last one."""

    last: int


_decode_list: Final = msgspec.json.Decoder(_ListedAgents).decode
_decode_events: Final = msgspec.json.Decoder(_FoundEvents).decode

Tell = Callable[[AgentPage | None], None]
"""Called with the current page; None if the bus does not respond."""


async def watch(home: str, name: str, tell: Tell) -> None:
    """Report changes until cancelled. It starts no bus: the agent's holder does."""
    while True:
        wire = await _open(home, watcher := _Watcher(name, tell))
        if wire is not None:
            try:
                await watcher.run(wire)
            except msgspec.DecodeError:  # The daemon has another version, with another format.
                pass
            finally:
                wire.close()
        tell(None)
        await asyncio.sleep(_RECONNECT_S)


async def _open(home: str, watcher: "_Watcher") -> Wire | None:
    try:
        plain = connect_socket(Path(home) / "daemon.sock", can_wait=False)
    except OSError:
        return None
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_unix_connection(lambda: Wire(watcher.on_line, watcher.on_lost), sock=plain)
    return wire


class _Watcher:
    """One connection to the bus, which follows one agent."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name = name
        self._tell = tell
        self._numbers = count(1)
        self._open: dict[int, asyncio.Future[msgspec.Raw]] = {}
        """The requests without a reply, by number."""
        self._has_news = asyncio.Event()
        self._is_lost = False

    async def run(self, wire: Wire) -> None:
        """Request the page after each event; return if the connection is lost or the bus cannot do it."""
        newest = await self._ask(wire, EventsOp(last=1, limit=1))  # Where the log ends: follow from there.
        if newest is None:
            return
        after = _decode_events(newest).last
        await self._ask(wire, EventsOp(types=_FOLLOWED_TYPES, agents=(self._name,), after=after, follow=True))
        while True:
            self._has_news.clear()  # Before the request: an event during it causes another request.
            listed = await self._ask(wire, ListOp(agent=self._name))
            if listed is None:
                return
            pages = _decode_list(listed).agents
            self._tell(pages[0] if len(pages) == 1 else AgentPage())
            await self._has_news.wait()
            await asyncio.sleep(_BURST_S)

    async def _ask(self, wire: Wire, request: Op) -> msgspec.Raw | None:
        """Return the result of a request; None if it was refused or the connection is lost."""
        if self._is_lost:
            return None
        number = next(self._numbers)
        reply: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._open[number] = reply
        wire.write(op_to_json(number, request))
        try:
            return await reply
        except ConnectionError:
            return None

    def on_line(self, line: ReplyLine) -> None:
        """Handle a line of the bus: an event, or the reply to a request."""
        if line.push:
            self._has_news.set()
            return
        reply = self._open.pop(line.req, None)
        if reply is None or reply.done():  # A cancelled request is done.
            return
        if line.error:
            reply.set_exception(ConnectionError(line.error))
        else:
            reply.set_result(line.ok)

    def on_lost(self, wire: Wire) -> None:
        """Handle the end of the connection."""
        self._is_lost = True
        self._has_news.set()
        for reply in self._open.values():
            if not reply.done():
                reply.set_exception(ConnectionError("the connection to the bus was lost"))
