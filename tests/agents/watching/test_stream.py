"""A socket that never waits: what has come, what there is room for, and an end that has gone."""

import socket
from collections.abc import Iterator

import pytest

from palaver.agents.watching.stream import read_ready, send_ready

LARGE = bytes(range(256)) * 16 * 1024


@pytest.fixture
def wires() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_what_has_come_is_read_up_to_the_limit(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.sendall(b"frames")

    assert read_ready(ours, 4) == b"fram"
    assert read_ready(ours, 4) == b"es"
    assert read_ready(ours, 4) is None


def test_an_end_that_has_gone_reads_as_empty(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.close()

    assert read_ready(ours, 4) == b""


def test_a_broken_connection_reads_as_empty(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    ours.sendall(b"never read")
    theirs.close()  # with something unread, which the system tells us

    assert read_ready(ours, 4) == b""


def test_what_there_is_no_room_for_waits_and_goes_in_order(
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


def test_what_nobody_takes_any_more_is_dropped(wires: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = wires
    theirs.close()
    unsent = bytearray(b"frames")

    assert send_ready(ours, unsent)
    assert not unsent
