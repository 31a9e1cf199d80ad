"""Passing a caller on to the daemon by its descriptor, so that the daemon sees the caller and not the holder.

The daemon decides, from the process at the other end of that descriptor, and answers it or us. Nothing is
decided here, and while the daemon is away nobody is anybody.
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
    """What the daemon said: who a caller is, or that it was served."""

    is_ok: bool = msgspec.field(name="ok")
    error: str = ""
    code: str = ""
    name: str = ""
    standing: str = ""
    kind: str = ""
    seq: int = 0
    """The place of what was sent."""
    replied: bool = False
    """The caller has its answer already."""


_verdict: Final = msgspec.json.Decoder(Verdict).decode


async def ask_daemon(home: str, descriptor: int, request: dict[str, object]) -> Verdict:
    """Hand a descriptor to the daemon with one request; raises Disconnected when it is away or says nothing.

    The descriptor stays ours, too.
    """
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
