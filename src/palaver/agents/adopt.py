"""Pass a caller on to the daemon by its descriptor, so that the daemon sees the caller and not the holder.

The daemon reads the request from that descriptor itself, looks at the process at its other end, and answers
it or us. Nothing is decided here, and nothing can be said in a caller's name.
"""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from palaver.errors import Disconnected
from palaver.home import connect_socket

_LIMIT_S: Final = 10.0
_READ_BYTES: Final = 65536
_PAUSE_S: Final = 0.01
_AWAY: Final = "the bus is not running, so nobody can say who you are: 'pal up' starts it"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon said: what a caller asks and who it is, or that it was served."""

    is_ok: bool = msgspec.field(name="ok")
    error: str = ""
    code: str = ""
    name: str = ""
    standing: str = ""
    kind: str = ""
    request: msgspec.Raw = msgspec.Raw(b"")
    """The request that the daemon read; empty when the caller sent nothing, or was served."""
    replied: bool = False
    """The caller has its answer already."""


_verdict: Final = msgspec.json.Decoder(Verdict).decode


async def ask_daemon(home: str, name: str, descriptor: int) -> Verdict:
    """Have the daemon read the request that waits at a descriptor of the agent's socket.

    Raises Disconnected when the daemon is away or says nothing. The descriptor stays ours, too.
    """
    request = {"do": "read", "name": name}
    try:
        async with asyncio.timeout(_LIMIT_S):
            return _verdict(await _exchange(home, descriptor, msgspec.json.encode(request) + b"\n"))
    except (OSError, TimeoutError, msgspec.DecodeError) as error:
        raise Disconnected(_AWAY) from error


async def _exchange(home: str, descriptor: int, line: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with await _connect(Path(home) / "adopt.sock") as wire:
        sent = await _send_with(loop, wire, line, descriptor)
        with suppress(BrokenPipeError):  # it has read enough to say no, and that is still to be read
            while sent < len(line):
                await _wait_writable(loop, wire)
                sent += wire.send(line[sent:])
        answer = b""
        while not answer.endswith(b"\n") and (piece := await loop.sock_recv(wire, _READ_BYTES)):
            answer += piece
        return answer


async def _connect(path: Path) -> socket.socket:
    while True:
        try:
            return connect_socket(path, can_wait=False)
        except BlockingIOError:  # many callers are before us
            await asyncio.sleep(_PAUSE_S)


async def _send_with(
    loop: asyncio.AbstractEventLoop, wire: socket.socket, line: bytes, descriptor: int
) -> int:
    """Send the first bytes together with the descriptor, when there is room."""
    own = os.dup(descriptor)  # whoever has the caller may close it meanwhile
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
