"""Non-blocking reads and writes on a socket, also after the other end has closed."""

import socket
from collections.abc import Iterator

import pytest

from palaver.terminal.viewers import read_ready, send_ready

LARGE = bytes(range(256)) * 16 * 1024


@pytest.fixture
def wires() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_available_bytes_are_read_up_to_the_limit(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.sendall(b"frames")

    assert read_ready(ours, 4) == b"fram"
    assert read_ready(ours, 4) == b"es"
    assert read_ready(ours, 4) is None


def test_closed_connection_reads_as_empty(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.close()

    assert read_ready(ours, 4) == b""


def test_broken_connection_reads_as_empty(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    ours.sendall(b"never read")
    theirs.close()  # unread data turns the close into a connection reset

    assert read_ready(ours, 4) == b""


def test_unsent_bytes_are_kept_and_sent_in_order(
    wires: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = wires
    unsent, received = bytearray(LARGE), bytearray()

    is_sent = send_ready(ours, unsent)

    assert not is_sent
    assert unsent
    while not is_sent:
        received += theirs.recv(len(LARGE))
        is_sent = send_ready(ours, unsent)
    assert not unsent
    while len(received) < len(LARGE):
        received += theirs.recv(len(LARGE))
    assert received == LARGE


def test_bytes_for_a_closed_connection_are_dropped(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.close()
    unsent = bytearray(b"frames")

    assert send_ready(ours, unsent)
    assert not unsent
