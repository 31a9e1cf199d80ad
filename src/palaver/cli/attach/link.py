"""The connection to an agent's holder after `attach`: frames in both directions, without blocking."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from palaver.agents.request_wire import AgentRequest, Reply, reply_from_json, request_to_json
from palaver.agents.sockets import socket_path
from palaver.agents.watching.frames_wire import Frame, FrameReader, control_to_bytes, data_frames
from palaver.agents.watching.stream import read_ready, send_ready
from palaver.errors import BadRequest, NotFound, PalaverError
from palaver.home import connect_socket

_READ_BYTES: Final = 16 * 1024
"""Read at once: a few milliseconds of drawing, and then a key is handled."""
_ANSWER_LIMIT_S: Final = 10.0
LIMIT_UNSENT_BYTES: Final = 64 * 1024


def call(home: str, name: str, cols: int, rows: int, *, is_drawn: bool) -> tuple[socket.socket, Reply, bytes]:
    """Attach; return the connection, the reply and the data after it.

    `is_drawn`: the screen is drawn here, so the holder replies to queries of the program to its terminal.
    Raises the refusal if there is no such terminal, or the caller may not use it.
    """
    try:
        wire = connect_socket(socket_path(home, name))
    except OSError as error:
        raise NotFound(f"terminal of {name}", "'pal list' shows who is there") from error
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
    """Send a line to the agent as this process's own message, without a header; return its seq.

    Raises the refusal. Blocks until the reply, so call it in a thread.
    """
    request = {"type": "send", "body": text, "priority": priority, "bare": True}
    try:
        with connect_socket(socket_path(home, name)) as wire, wire.makefile("rb") as answer:
            wire.settimeout(_ANSWER_LIMIT_S)
            wire.sendall(msgspec.json.encode(request) + b"\n")
            reply = reply_from_json(answer.readline())
    except OSError as error:
        raise BadRequest(f"the holder of the terminal does not respond: {error}") from error
    if not reply.is_ok:
        raise BadRequest(reply.error)
    return reply.seq


class Link:
    """One attached connection."""

    def __init__(
        self, wire: socket.socket, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]
    ) -> None:
        self._wire = wire
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader()
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
        self._take(rest)

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
            self._take(data)
        elif data is not None:
            self._on_lost()

    def _take(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except PalaverError:  # later frames cannot be read either
            self._on_lost()
