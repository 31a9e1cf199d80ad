"""The sockets of the Unix door: what is read and written, in which order, and how each connection ends.

One suite for our transport and for that of asyncio, which it replaces: both must behave in the same way.
"""

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

from palaver.doors.unix import SocketListener, SocketTransport, bind_socket

LARGE = b"0123456789abcdef" * 128 * 1024
"""More than a socket takes at once."""


class Heard(asyncio.Protocol):
    """Records everything that a transport reports."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.keeps_open = keeps_open
        self.transport: asyncio.Transport | None = None
        self.data = b""
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.changed = asyncio.Event()

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.changed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self._note("data")

    def eof_received(self) -> bool:
        self._note("end of input")
        return self.keeps_open

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._note("lost")

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_true():
                self.changed.clear()
                await self.changed.wait()

    async def until_lost(self) -> None:
        await self.until(lambda: "lost" in self.calls)


Open = Callable[[Heard], Awaitable[tuple[asyncio.Transport, socket.socket]]]
"""Opens a connection; returns the transport and the socket of the peer."""


@pytest.fixture(params=["ours", "asyncio"])
async def open_connection(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    ends: list[socket.socket] = []
    transports: list[asyncio.Transport] = []

    async def connect(heard: Heard) -> tuple[asyncio.Transport, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        ends.extend((ours, theirs))
        if request.param == "ours":
            mine = SocketTransport(ours, heard)
            mine.begin()
            transports.append(mine)
        else:
            found, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: heard, ours)
            transports.append(found)
        return transports[-1], theirs

    yield connect
    for transport in transports:
        heard = transport.get_protocol()
        if isinstance(heard, Heard):  # A transport of asyncio that is closed has no protocol.
            transport.abort()
            await heard.until_lost()
    for end in ends:
        end.close()


async def read_all(peer: socket.socket, count: int) -> bytes:
    found = b""
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count and (part := await asyncio.get_running_loop().sock_recv(peer, 1 << 20)):
            found += part
    return found


async def test_bytes_that_were_sent_early_are_read(open_connection: Open) -> None:
    heard = Heard()

    _, peer = await open_connection(heard)
    peer.send(b"hello")

    await heard.until(lambda: heard.data == b"hello")
    peer.send(b", again")
    await heard.until(lambda: heard.data == b"hello, again")
    assert heard.calls[0] == "made"


async def test_small_write_arrives_at_once(open_connection: Open) -> None:
    transport, peer = await open_connection(Heard())

    transport.write(b"hello")

    assert peer.recv(100) == b"hello"
    transport.write(b"")
    with pytest.raises(BlockingIOError):
        peer.recv(100)


async def test_large_write_arrives_whole_and_pauses_its_writer(open_connection: Open) -> None:
    heard = Heard()
    transport, peer = await open_connection(heard)

    transport.write(LARGE)
    transport.write(b"end")
    assert transport.get_write_buffer_size() > 0
    received = await read_all(peer, len(LARGE) + 3)

    assert received == LARGE + b"end"
    await heard.until(lambda: "resume" in heard.calls)
    assert [call for call in heard.calls if call != "made"] == ["pause", "resume"]
    assert transport.get_write_buffer_size() == 0


async def test_higher_limit_pauses_no_writer(open_connection: Open) -> None:
    heard = Heard()
    transport, peer = await open_connection(heard)

    transport.set_write_buffer_limits(high=len(LARGE))
    transport.write(LARGE)

    assert "pause" not in heard.calls
    assert await read_all(peer, len(LARGE)) == LARGE


async def test_close_writes_everything_first(open_connection: Open) -> None:
    heard = Heard()
    transport, peer = await open_connection(heard)

    transport.write(LARGE)
    transport.close()
    transport.close()
    assert transport.is_closing()
    received = await read_all(peer, len(LARGE) + 1)

    assert received == LARGE
    await heard.until_lost()
    assert heard.error is None
    assert heard.calls.count("lost") == 1


async def test_abort_drops_what_was_not_written(open_connection: Open) -> None:
    heard = Heard()
    transport, peer = await open_connection(heard)

    transport.write(LARGE)
    transport.abort()
    transport.write(b"too late")
    await heard.until_lost()
    received = await read_all(peer, len(LARGE))

    assert len(received) < len(LARGE)
    assert not received.endswith(b"too late")


async def test_peer_that_ends_closes_the_connection(open_connection: Open) -> None:
    heard = Heard()
    _, peer = await open_connection(heard)

    peer.send(b"bye")
    peer.close()
    await heard.until_lost()

    assert heard.data == b"bye"
    assert heard.calls[-2:] == ["end of input", "lost"]
    assert heard.error is None


async def test_peer_that_only_ends_its_input_can_be_answered(open_connection: Open) -> None:
    heard = Heard(keeps_open=True)
    transport, peer = await open_connection(heard)

    peer.shutdown(socket.SHUT_WR)
    await heard.until(lambda: "end of input" in heard.calls)
    transport.write(b"answer")

    assert await read_all(peer, 6) == b"answer"
    transport.close()
    await heard.until_lost()
    assert heard.calls.count("end of input") == 1


async def test_write_to_a_peer_that_has_left_is_no_error(open_connection: Open) -> None:
    heard = Heard(keeps_open=True)
    transport, peer = await open_connection(heard)

    peer.close()
    transport.write(b"one")
    transport.write(b"two")
    await heard.until_lost()

    assert isinstance(heard.error, OSError)


async def test_peer_that_leaves_before_it_has_read_all_ends_the_connection(open_connection: Open) -> None:
    heard = Heard(keeps_open=True)
    transport, peer = await open_connection(heard)

    transport.write(LARGE)
    peer.close()

    await heard.until_lost()
    assert transport.get_write_buffer_size() == 0


async def test_paused_connection_reads_nothing_until_it_goes_on(open_connection: Open) -> None:
    heard, other = Heard(), Heard()
    transport, peer = await open_connection(heard)
    peer.send(b"a")
    await heard.until(lambda: heard.data == b"a")

    transport.pause_reading()
    peer.send(b"b")
    _, other_peer = await open_connection(other)
    other_peer.send(b"later")  # It is read after the byte before it could have been.
    await other.until(lambda: other.data == b"later")
    assert heard.data == b"a"
    transport.resume_reading()

    await heard.until(lambda: heard.data == b"ab")


async def test_protocol_can_be_replaced(open_connection: Open) -> None:
    first, second = Heard(), Heard()
    transport, peer = await open_connection(first)
    await first.until(lambda: "made" in first.calls)

    transport.set_protocol(second)
    peer.send(b"x")
    await second.until(lambda: second.data == b"x")

    assert transport.get_protocol() is second
    assert first.data == b""
    transport.close()
    await second.until_lost()
    assert "lost" not in first.calls


async def test_bug_of_a_protocol_is_reported_and_ends_its_connection(open_connection: Open) -> None:
    class Broken(Heard):
        def data_received(self, data: bytes) -> None:
            raise ValueError("bug")

    found: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: found.append(context.get("exception"))
    )
    heard = Broken()
    _, peer = await open_connection(heard)

    peer.send(b"x")
    await heard.until_lost()

    assert [str(one) for one in found] == ["bug"]


async def test_connection_that_is_paused_at_its_start_reads_nothing(open_connection: Open) -> None:
    class Paused(Heard):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert self.transport is not None
            self.transport.pause_reading()

    heard, other = Paused(), Heard()
    transport, peer = await open_connection(heard)
    peer.send(b"a")
    _, other_peer = await open_connection(other)
    other_peer.send(b"later")
    await other.until(lambda: other.data == b"later")
    assert heard.data == b""

    transport.resume_reading()

    await heard.until(lambda: heard.data == b"a")


async def test_ended_connection_does_not_keep_its_protocol(open_connection: Open) -> None:
    freed = asyncio.Event()

    async def connect() -> socket.socket:
        heard = Heard()
        weakref.finalize(heard, freed.set)
        _, peer = await open_connection(heard)
        await heard.until(lambda: "made" in heard.calls)
        return peer

    gc.disable()  # The daemon seldom collects garbage in cycles, so a protocol must not be in one.
    try:
        peer = await connect()
        peer.close()
        async with asyncio.timeout(LIMIT_S):
            await freed.wait()
    finally:
        gc.enable()


async def test_bug_at_the_start_of_a_connection_ends_it() -> None:
    class Broken(Heard):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            raise ValueError("bug")

    found: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: found.append(context.get("exception"))
    )
    heard = Broken()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)

    SocketTransport(ours, heard).begin()

    assert await read_all(theirs, 1) == b""
    assert heard.calls == ["lost"]
    assert [str(one) for one in found] == ["bug"]
    theirs.close()


# --------------------
# The listener.


class Command(asyncio.Protocol):
    """A client's command: its task releases what it has claimed when the client has disconnected."""

    def __init__(self, order: list[str], changed: asyncio.Semaphore) -> None:
        """Write each step into `order`. `changed` is released after the beginning and after the end."""
        self._order = order
        self._changed = changed
        self._task: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._task = asyncio.create_task(self._serve(data.decode()))

    async def _serve(self, name: str) -> None:
        self._order.append(f"{name} begins")
        self._changed.release()
        try:
            await asyncio.Event().wait()
        finally:
            self._order.append(f"{name} has released its claims")
            self._changed.release()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is None:
            self._changed.release()
        else:
            self._task.cancel()


def steps(*names: str) -> list[str]:
    """Return the steps of commands that run one after the other."""
    return [step for name in names for step in (f"{name} begins", f"{name} has released its claims")]


async def acquire(semaphore: asyncio.Semaphore, count: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        for _ in range(count):
            await semaphore.acquire()


async def test_end_of_a_client_is_cleaned_up_before_the_next_one_is_served(tmp_path: Path) -> None:
    order: list[str] = []
    changed = asyncio.Semaphore(0)
    path = tmp_path / "s.sock"
    listener = SocketListener(
        bind_socket(path), 5, lambda found: SocketTransport(found, Command(order, changed)).begin()
    )

    before = None
    for number in range(20):
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(path))
        client.send(b"%d" % number)
        if before is not None:
            before.close()  # The door notices both in the same turn of the loop, the new client first.
        await acquire(changed, 1 if before is None else 2)
        before = client
    assert before is not None
    before.close()
    await acquire(changed, 1)

    assert order == steps(*map(str, range(20)))
    listener.close()


async def test_next_client_of_a_turn_is_served_after_the_earlier_one_ended(tmp_path: Path) -> None:
    order: list[str] = []
    changed = asyncio.Semaphore(0)
    path = tmp_path / "s.sock"
    first, other, second = (socket.socket(socket.AF_UNIX) for _ in range(3))
    accepted = 0

    def accept(connection: socket.socket) -> None:
        nonlocal accepted
        accepted += 1
        SocketTransport(connection, Command(order, changed)).begin()
        if accepted == 2:  # The turn has begun, so it does not notice the end any more.
            first.close()
            second.connect(str(path))
            second.send(b"second")

    listener = SocketListener(bind_socket(path), 5, accept)
    first.connect(str(path))
    first.send(b"first")
    await acquire(changed, 1)
    other.connect(str(path))
    await acquire(changed, 2)
    second.close()
    other.close()
    await acquire(changed, 2)

    assert order == steps("first", "second")
    listener.close()


async def test_many_clients_that_wait_are_accepted_in_few_turns(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    count, limit_turns = 100, 20
    turns, accepted_at = 0, list[int]()
    done = asyncio.Event()

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not done.is_set():
            loop.call_soon(turn)

    def accept(connection: socket.socket) -> None:
        connection.close()
        accepted_at.append(turns)
        if len(accepted_at) == count:
            done.set()

    path = tmp_path / "s.sock"
    listener = SocketListener(bind_socket(path), count, accept)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    for client in clients:
        client.connect(str(path))

    loop.call_soon(turn)
    async with asyncio.timeout(LIMIT_S):
        await done.wait()

    assert accepted_at[-1] - accepted_at[0] < limit_turns
    for client in clients:
        client.close()
    listener.close()


async def test_closed_listener_accepts_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    listener = SocketListener(bind_socket(path), 5, lambda connection: connection.close())

    listener.close()
    listener.close()

    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(path))


async def test_client_that_left_before_it_was_accepted_stops_no_other(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    early, heard = Heard(), Heard()
    waiting = [heard, early]

    def accept(connection: socket.socket) -> None:
        SocketTransport(connection, waiting.pop()).begin()

    listener = SocketListener(bind_socket(path), 5, accept)
    with socket.socket(socket.AF_UNIX) as hasty:
        hasty.connect(str(path))
    with socket.socket(socket.AF_UNIX) as patient, suppress(BlockingIOError):
        patient.connect(str(path))
        patient.send(b"x")
        await heard.until(lambda: heard.data == b"x")
    await heard.until_lost()
    assert early.calls == ["made", "end of input", "lost"]
    listener.close()
