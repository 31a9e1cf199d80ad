"""One thin client as the daemon sees it: the frames written to it, and when they are sent."""

import asyncio
import gc
import weakref
from typing import cast

from palaver.doors.thin import ArgvConnection, Run
from palaver.identity.process import Peer
from palaver.protocol.thin import frame, output_frame


class Wire(asyncio.Transport):
    """A transport that records every write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self._is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True


def connected() -> tuple[ArgvConnection, Wire]:
    wire = Wire()
    connection = ArgvConnection(Peer(0, 0, 0), cast(Run, None), asyncio.TaskGroup(), lambda one: None)
    connection.attach(wire, b"")
    return connection, wire


async def test_output_and_exit_status_are_one_write() -> None:
    connection, wire = connected()

    await connection.output.write(b"sent #1\n")
    connection.exit(0)

    assert wire.writes == [output_frame(1, b"+1", b"sent #1\n") + frame(b"Q", b"\0")]


async def test_waiting_for_a_flush_sends_the_output() -> None:
    connection, wire = connected()
    await connection.output.write(b"line\n")

    waiting = asyncio.ensure_future(connection.output.flushed())
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()

    assert wire.writes == [output_frame(1, b"+1", b"line\n")]
    connection.data_received(frame(b"A", b"\0\0\0\1"))
    await waiting


async def test_error_output_is_sent_while_the_command_continues() -> None:
    connection, wire = connected()
    turn = asyncio.Event()

    connection.write_error("one\n")
    connection.write_error("two\n")
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()

    assert wire.writes == [frame(b"E", b"one\n") + frame(b"E", b"two\n")]


async def test_nothing_is_written_after_the_exit() -> None:
    connection, wire = connected()
    connection.exit(0)

    connection.write_error("late\n")
    connection.exit(1)

    assert wire.writes == [frame(b"Q", b"\0")]


async def test_one_line_of_input_is_read_and_later_input_is_ignored() -> None:
    connection, wire = connected()

    reading = asyncio.ensure_future(connection.read_line(100))
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
    connection.data_received(frame(b"D", b"yes\nmore"))
    connection.data_received(frame(b"D", b"typed later\n") + frame(b"Z"))

    assert await reading == b"yes"
    assert not wire.is_closing()


async def test_line_may_end_with_the_input() -> None:
    connection, _ = connected()

    reading = asyncio.ensure_future(connection.read_line(100))
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
    connection.data_received(frame(b"D", b"y") + frame(b"Z"))

    assert await reading == b"y"


async def test_connection_is_freed_when_its_client_has_left() -> None:
    connection, _ = connected()
    found = weakref.ref(connection)

    gc.disable()  # The daemon seldom collects garbage in cycles, so a connection must not be in one.
    try:
        connection.data_received(frame(b"R", b"half of a request")[:-1])
        connection.connection_lost(None)
        del connection
        is_freed = found() is None
    finally:
        gc.enable()

    assert is_freed
