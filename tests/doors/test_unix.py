"""The listener of the Unix door: what it does when the system refuses a connection, and how it closes."""

import asyncio
import errno
import logging
import socket
from pathlib import Path

import pytest

from palaver.doors.unix import SocketListener, bind_socket


class FullSocket(socket.socket):
    """A listening socket that has no descriptor for the first connection."""

    refusals = 1

    def accept(self) -> "tuple[socket.socket, object]":
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_connection_is_accepted_after_the_system_has_refused_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admitted: asyncio.Queue[socket.socket] = asyncio.Queue()
    bound = bind_socket(tmp_path / "s")
    full = FullSocket(fileno=bound.detach())
    listener = SocketListener(full, admitted.put_nowait, retry_s=0)
    client = socket.socket(socket.AF_UNIX)

    with caplog.at_level(logging.ERROR):
        client.connect(str(tmp_path / "s"))
        connection = await admitted.get()

    client.sendall(b"x")
    assert await asyncio.get_running_loop().sock_recv(connection, 1) == b"x"
    assert [record.message for record in caplog.records] == [
        "no connection can be accepted for 0 s: [Errno 24] Too many open files"
    ]
    listener.close()
    client.close()
    connection.close()


async def test_closed_listener_refuses_connections(tmp_path: Path) -> None:
    listener = SocketListener(bind_socket(tmp_path / "s"), lambda connection: None)

    listener.close()
    listener.close()

    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(tmp_path / "s"))
