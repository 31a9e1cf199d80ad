"""An agent's socket: its path, its permissions, when it is replaced, and requests without a daemon."""

import asyncio
import json
import os
import select
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.limits import LIMIT_S

from palaver.clock import SystemClock
from palaver.errors import NameTaken, NotFound
from palaver.harness.base import Profile, Spawn
from palaver.holder import agent
from palaver.holder.agent_socket import AgentServer, SocketControl, listen, socket_path
from palaver.holder.connection import HolderConnection
from palaver.holder.lane import TerminalLane
from palaver.holder.terminal_host import TerminalHost
from palaver.home import connect_socket
from palaver.protocol.agent_socket import AgentRequest
from palaver.protocol.lines import Op


@pytest.fixture(params=["short", "long"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a socket path in a home whose path is short, or too long for a socket address."""
    home = tmp_path if request.param == "short" else tmp_path / ("x" * 120) / ("y" * 120)
    home.mkdir(parents=True, exist_ok=True)
    return socket_path(str(home), "api-luna")


def test_caller_reaches_the_listener(path: Path) -> None:
    with listen(path) as listener, connect_socket(path) as caller:
        listener.setblocking(True)
        taken, _ = listener.accept()
        with taken:
            caller.sendall(b"hello")

            assert taken.recv(5) == b"hello"


def test_socket_is_accessible_to_its_owner_only(path: Path) -> None:
    with listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_listening_leaves_the_umask_unchanged(path: Path) -> None:
    before = os.umask(0o027)
    try:
        with listen(path):
            assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_socket_of_a_dead_holder_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.exists()

    with listen(path), connect_socket(path):
        pass


def test_live_socket_is_not_replaced(path: Path) -> None:
    with listen(path):
        with pytest.raises(NameTaken, match="api-luna"):
            listen(path)
        with connect_socket(path):
            pass


def test_live_socket_with_a_full_backlog_is_not_replaced(path: Path) -> None:
    waiting: list[socket.socket] = []
    try:
        with listen(path):
            for _ in range(200):
                caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                caller.setblocking(False)
                waiting.append(caller)
                folder = os.open(path.parent, os.O_PATH)
                try:
                    caller.connect(f"/proc/self/fd/{folder}/{path.name}")
                except BlockingIOError:
                    break
                finally:
                    os.close(folder)

            with pytest.raises(NameTaken):
                listen(path)
    finally:
        for caller in waiting:
            caller.close()


def test_missing_socket_raises_file_not_found(path: Path) -> None:
    path.parent.mkdir()

    with pytest.raises(FileNotFoundError):
        connect_socket(path)


# Requests that the daemon must read


class ShowControl:
    """The functions of a holder: only `show` does something, and its reply is large."""

    async def show(self, message_id: str) -> dict[str, object]:
        return {"id": message_id, "body": "x" * 10_000_000}

    def status(self) -> dict[str, object]:
        return {}

    def attach(self, connection: socket.socket, request: AgentRequest) -> None:
        connection.close()

    def hook(self, event_name: str, payload: Mapping[str, object]) -> None:
        pass

    def stop(self) -> None:
        pass


@asynccontextmanager
async def serving(home: Path, control: SocketControl) -> AsyncIterator[socket.socket]:
    """Serve the socket of an agent with a short time limit; yield a connection to it."""
    path = socket_path(str(home), "luna")
    with listen(path) as listener:
        server = asyncio.create_task(AgentServer(str(home), "luna", listener, control, limit_s=0.05).run())
        try:
            with connect_socket(path) as caller:
                caller.setblocking(False)
                yield caller
        finally:
            server.cancel()


async def read_refusal(caller: socket.socket) -> str:
    """Read one line; the connection of a stopped daemon keeps it open."""
    found = b""
    async with asyncio.timeout(LIMIT_S):
        while not found.endswith(b"\n"):
            found += await asyncio.get_running_loop().sock_recv(caller, 1 << 20)
    return str(json.loads(found)["error"])


def take_passed(door: socket.socket) -> socket.socket:
    """Accept what a holder has forwarded, and return the connection of its caller."""
    wire, _ = door.accept()
    with wire:
        _, (descriptor,), _, _ = socket.recv_fds(wire, 65536, 1)
    return socket.socket(fileno=descriptor)


async def test_refused_request_is_not_carried_out_by_a_daemon_that_was_stopped(tmp_path: Path) -> None:
    with listen(tmp_path / "adopt.sock") as door:  # Nothing accepts: the daemon is stopped.
        async with serving(tmp_path, ShowControl()) as caller:
            caller.sendall(b'{"type": "send", "body": "once"}\n{"type": "send", "body": "twice"}\n')
            refused = await read_refusal(caller)

            with pytest.raises(BrokenPipeError):
                caller.sendall(b'{"type": "send", "body": "again"}\n')
            with take_passed(door) as passed:
                assert passed.recv(65536, socket.MSG_DONTWAIT) == b""
    assert refused == "the bus does not answer, so nothing was done: run 'pal doctor', then try again"


@pytest.mark.parametrize("further", [b"", b'{"type": "send", "body": "more than once"}\n'])
async def test_refusal_of_a_request_that_the_daemon_has_read_says_so(tmp_path: Path, further: bytes) -> None:
    request = b'{"type": "send", "body": "once"}\n'
    with listen(tmp_path / "adopt.sock") as door:
        wires = []

        def read_and_stop() -> None:
            wires.append(door.accept()[0])
            _, (descriptor,), _, _ = socket.recv_fds(wires[0], 65536, 1)
            with socket.socket(fileno=descriptor) as passed:
                passed.recv(len(request))

        asyncio.get_running_loop().add_reader(door, read_and_stop)
        async with serving(tmp_path, ShowControl()) as caller:
            caller.sendall(request + further)
            refused = await read_refusal(caller)
        asyncio.get_running_loop().remove_reader(door)
        wires[0].close()

    assert "check whether it was carried out before you repeat it" in refused


async def test_caller_that_does_not_read_its_reply_is_disconnected(tmp_path: Path) -> None:
    async with serving(tmp_path, ShowControl()) as caller:
        caller.sendall(b'{"type": "show", "message_id": "x"}\n')

        await until_hung_up(caller)


async def until_hung_up(caller: socket.socket) -> None:
    """Wait until the server closes the connection, and read nothing."""
    closed = asyncio.Event()
    watched = select.epoll()
    watched.register(caller, select.EPOLLHUP)
    loop = asyncio.get_running_loop()
    loop.add_reader(watched.fileno(), closed.set)
    async with asyncio.timeout(LIMIT_S):
        await closed.wait()
    loop.remove_reader(watched.fileno())
    watched.close()


class SilentBus:
    """A connection to a daemon that is stopped."""

    async def ask(self, request: Op) -> msgspec.Raw:
        await asyncio.Event().wait()
        return msgspec.Raw()


class EmptyLane:
    """A lane that was offered no message."""

    def find(self, message_id: str) -> None:
        return None


async def test_message_is_not_found_when_the_bus_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "DAEMON_LIMIT_S", 0.01)
    control = agent.HolderControl(
        home="",
        name="luna",
        child=1,
        command=(),
        profile=cast("Profile", None),
        host=cast("TerminalHost", None),
        lane=cast("TerminalLane", EmptyLane()),
        bus=cast("HolderConnection", SilentBus()),
        clock=SystemClock(),
        has_ended=asyncio.Event(),
        spawn=cast("Spawn", None),
        renew=lambda: None,
    )

    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(NotFound, match="the bus did not answer"):
            await control.show("01K")
