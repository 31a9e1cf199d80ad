"""An agent's socket: where it lies, whose it is, and what is replaced."""

import os
import socket
import stat
from pathlib import Path

import pytest

from palaver.agents.sockets import listen, socket_path
from palaver.errors import NameTaken
from palaver.home import connect_socket


@pytest.fixture(params=["short", "long"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A place in a home whose path is short, or too long for a socket address."""
    home = tmp_path if request.param == "short" else tmp_path / ("x" * 120) / ("y" * 120)
    home.mkdir(parents=True, exist_ok=True)
    return socket_path(str(home), "api-luna")


def test_who_connects_reaches_the_one_who_listens(path: Path) -> None:
    with listen(path) as listener, connect_socket(path) as caller:
        listener.setblocking(True)
        taken, _ = listener.accept()
        with taken:
            caller.sendall(b"hello")

            assert taken.recv(5) == b"hello"


def test_it_is_for_its_owner_alone(path: Path) -> None:
    with listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_making_it_changes_nobodys_mask(path: Path) -> None:
    before = os.umask(0o027)
    try:
        with listen(path):
            assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_what_a_dead_holder_left_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.exists()

    with listen(path), connect_socket(path):
        pass


def test_a_live_one_is_not_replaced(path: Path) -> None:
    with listen(path):
        with pytest.raises(NameTaken, match="api-luna"):
            listen(path)
        with connect_socket(path):
            pass


def test_a_live_one_that_takes_nobody_in_is_not_replaced_either(path: Path) -> None:
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


def test_nobody_there_is_an_error_of_the_system(path: Path) -> None:
    path.parent.mkdir()

    with pytest.raises(FileNotFoundError):
        connect_socket(path)
