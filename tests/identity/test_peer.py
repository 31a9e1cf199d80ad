"""The process at the other end of a Unix socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.limits import LIMIT_S

from palaver.errors import NotPerson
from palaver.identity.process import Peer, peer_of

_NO_SUCH_OPTION = 9999
_CALL = """
import socket, sys
caller = socket.socket(socket.AF_UNIX)
caller.connect(sys.argv[1])
caller.recv(1)
"""


class _Door:
    """A listening socket and one process that connects and then waits."""

    def __init__(self, folder: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        path = os.path.relpath(folder / "s")  # short enough for a socket address
        self.socket.bind(path)
        self.socket.listen()
        self.child = subprocess.Popen([sys.executable, "-I", "-S", "-c", _CALL, path])
        self.connection = self.socket.accept()[0]

    def end_child(self) -> None:
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        self.end_child()
        self.connection.close()
        self.socket.close()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[_Door]:
    door = _Door(tmp_path)
    yield door
    door.close()


@pytest.mark.parametrize("option", [77, _NO_SUCH_OPTION], ids=["by-socket", "by-number"])
def test_peer_is_the_connected_process_and_its_chain_includes_ours(door: _Door, option: int) -> None:
    with peer_of(door.connection, peer_pidfd_option=option) as peer:
        chain = peer.chain()

    assert (peer.pid, peer.uid, peer.gid) == (door.child.pid, os.getuid(), os.getgid())
    assert peer.pidfd is not None
    assert [process.pid for process in chain[:2]] == [door.child.pid, os.getpid()]


@pytest.mark.parametrize("option", [77, _NO_SUCH_OPTION], ids=["by-socket", "by-number"])
def test_ended_peer_has_no_chain(door: _Door, option: int) -> None:
    door.end_child()

    with peer_of(door.connection, peer_pidfd_option=option) as peer:
        assert peer.chain() == []


def test_peer_that_ends_after_it_was_pinned_has_no_chain(door: _Door) -> None:
    with peer_of(door.connection) as peer:
        door.end_child()

        assert peer.chain() == []


def test_reused_pid_is_not_the_peer(door: _Door) -> None:
    """The pidfd is the peer's, but its pid now belongs to a live stranger, as after a wrap."""
    with peer_of(door.connection) as peer:
        door.end_child()
        reused = Peer(os.getpid(), peer.uid, peer.gid, peer.pidfd)

        assert reused.chain() == []


def test_unconnected_socket_has_no_peer() -> None:
    with socket.socket(socket.AF_UNIX) as alone:
        peer = peer_of(alone)

    assert (peer.pid, peer.pidfd, peer.chain()) == (0, None, [])


def test_peer_without_a_pidfd_is_found_by_its_pid() -> None:
    peer = Peer(os.getpid(), os.getuid(), os.getgid())

    assert peer.chain()[0].pid == os.getpid()
    peer.close()


def test_closed_peer_has_no_processes() -> None:
    peer = Peer(os.getpid(), os.getuid(), os.getgid(), os.pidfd_open(os.getpid()))

    peer.close()
    peer.close()

    assert peer.chain() == []


def test_own_user_is_accepted() -> None:
    Peer(1, os.geteuid(), 0).check_user()


def test_other_user_is_refused_with_the_reason() -> None:
    with pytest.raises(NotPerson, match="belongs to user"):
        Peer(1, os.geteuid() + 1, 0).check_user()
