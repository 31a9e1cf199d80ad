"""A hook on the Unix socket during a permission request: it gets regular signs that the daemon is alive."""

import asyncio
import struct
from types import SimpleNamespace
from typing import cast

from tests.daemon.wires import request
from tests.limits import LIMIT_S

from palaver.doors.hooks import HookAsking, HookConnection
from palaver.identity.process import Peer
from palaver.protocol.thin import FrameReader


class Wire:
    """A transport that collects the frames for the client."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self.frames: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()

    def write(self, data: bytes) -> None:
        for found in self._reader.feed(data):
            self.frames.put_nowait(found)

    def is_closing(self) -> bool:
        return False

    async def next(self) -> tuple[bytes, bytes]:
        async with asyncio.timeout(LIMIT_S):
            return await self.frames.get()


class Asking:
    """An agent that requests permission, and a person that decides when the test says so."""

    def __init__(self) -> None:
        self.is_decided = asyncio.Event()
        self.handler = SimpleNamespace(settle=lambda answer, *, has_left: None)
        self.permissions = self

    async def answer(self, peer: object, asked: object) -> object:
        return SimpleNamespace(content=None, offer=None)

    async def open(self, answer: object) -> object:
        return SimpleNamespace(leave=lambda: None)

    async def decision(self, answer: object, pending: object) -> dict[str, str]:
        await self.is_decided.wait()
        return {"decision": "allow"}


async def test_hook_gets_keepalives_until_the_decision_and_nothing_after() -> None:
    wire, asking = Wire(), Asking()
    async with asyncio.TaskGroup() as tasks:
        hook = HookConnection(
            cast("Peer", SimpleNamespace(pid=1, close=lambda: None)),
            cast("HookAsking", asking),
            tasks,
            lambda ended: None,
            keep_s=0.001,
        )
        hook.attach(cast("asyncio.Transport", wire), request("hook", "claude", "PermissionRequest"))

        heard = [await wire.next() for _ in range(3)]
        asking.is_decided.set()
        while (last := await wire.next())[0] == b"W":
            pass

    assert {kind for kind, _ in heard} == {b"W"}
    assert all(0 < struct.unpack(">I", limit_s)[0] < 60 for _, limit_s in heard)
    assert last == (b"H", b'{"decision":"allow"}')
    assert wire.frames.empty()
