"""Forward a caller's connection to the daemon by its descriptor, so that the daemon identifies the caller.

The daemon reads the request from the descriptor itself, identifies the process at the other end, and either
replies to the caller directly or returns the request to the holder. This module makes no decisions and cannot
make a request on behalf of a caller.
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


_verdict: Final = msgspec.json.Decoder(Verdict).decode


async def ask_daemon(home: str, name: str, descriptor: int) -> Verdict:
    """Let the daemon read the request that is waiting on a connection to the agent's socket.

    The descriptor stays open here as well. Raises Disconnected if the daemon is not running or does not reply
    within `_LIMIT_S` seconds.
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
        # The daemon may refuse before it has read everything; its reply can still be read.
        with suppress(BrokenPipeError):
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
        except BlockingIOError:  # The backlog of the socket is full.
            await asyncio.sleep(_PAUSE_S)


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
