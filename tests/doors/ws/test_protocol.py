"""The connection itself on a real socket, with short times: pings, and clients that do not read or close."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.types import Receive, Scope, Send
from tests.limits import LIMIT_S
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from palaver.doors.http import websocket
from palaver.doors.http.listening import _HttpServer
from palaver.doors.http.websocket import WebSocketProtocol


class Door:
    """An application that writes until it is told to close, and says when its connection has ended."""

    def __init__(self, *, writes: bool = False) -> None:
        self.writes = writes
        self.ended = asyncio.Event()
        self.is_stuck = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        writer = asyncio.create_task(self._write(send)) if self.writes else None
        if writer is not None:
            await self.is_stuck.wait()
            await send({"type": "websocket.close", "code": 4008, "reason": "too slow"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        if writer is not None:
            writer.cancel()
        self.ended.set()

    async def _write(self, send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(0.2):
                    await send({"type": "websocket.send", "text": "x" * 100_000})
            except TimeoutError:
                self.is_stuck.set()


@asynccontextmanager
async def served(door: Door, **times: float) -> AsyncIterator[tuple[_HttpServer, int]]:
    server = _HttpServer(door)
    for name, seconds in times.items():
        setattr(server.config, name, seconds)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        yield server, listener.getsockname()[1]
        server.end.set()
        await task


def test_server_pings_every_thirty_seconds_and_limits_frames() -> None:
    config = _HttpServer(Door()).config

    assert (config.ws_ping_interval, config.ws_max_size) == (30.0, 1024 * 1024)
    assert not config.ws_per_message_deflate


async def test_client_that_answers_pings_stays() -> None:
    door = Door()
    async with (
        served(door, ws_ping_interval=0.01, ws_ping_timeout=LIMIT_S) as (server, port),
        connect(f"ws://127.0.0.1:{port}") as client,
    ):
        (connection,) = server.server_state.connections
        assert isinstance(connection, WebSocketProtocol)
        pongs: set[float] = set()
        while len(pongs) < 5:
            await (await client.ping())
            pongs.add(connection.last_ping_rtt)
        assert not door.ended.is_set()


async def test_client_that_answers_no_ping_is_disconnected() -> None:
    door = Door()
    async with served(door, ws_ping_interval=0.01, ws_ping_timeout=0.01) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        async with asyncio.timeout(LIMIT_S):
            await door.ended.wait()
            await reader.readuntil(b"the client did not answer a ping")
        writer.close()


async def test_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_CLOSE_S", 0.05)
    door = Door(writes=True)
    async with served(door) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(
            b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        async with asyncio.timeout(LIMIT_S):
            await door.ended.wait()
            with suppress(ConnectionResetError):
                while await reader.read(65536):
                    pass
        assert server.server_state.connections == set()
        writer.close()


async def test_slow_client_that_reads_on_gets_the_reason() -> None:
    door = Door(writes=True)
    async with served(door) as (_, port):
        client = await connect(f"ws://127.0.0.1:{port}", max_queue=1, compression=None)
        async with asyncio.timeout(LIMIT_S):
            await door.ended.wait()
            with suppress(ConnectionClosed):
                while True:
                    await client.recv()
        assert (client.close_code, client.close_reason) == (4008, "too slow")
